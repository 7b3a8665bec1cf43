"""Code that already has a branch for the NPU keeps its other branches; what stands outside of them is converted."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchport.cli import main
from torchport.convert import convert_source
from torchport.convert.stages import Extras
from torchport.convert.workers import convert_files
from torchport.findings import Severity
from torchport.rules import Style

HANDLED = [
    "import torch\nif is_npu_available():\n    d = 'npu'\nelif torch.cuda.is_available():\n    d = 'cuda'\nx.to(d)\n",
    "import torch\nif torch.cuda.is_available():\n    torch.cuda.init()\nelif torch.npu.is_available():\n    pass\n",
    "import torch\nif is_npu_available():\n    pass\nelse:\n    x.cuda()\n",
    "import torch\nif not is_npu_available():\n    x.cuda()\nelse:\n    x.npu()\n",
    "import torch\nd = torch.device('cuda' if torch.cuda.is_available() else 'npu' if has_npu() else 'cpu')\n",
    "import torch\nd = torch.device('npu' if has_npu() else 'cuda')\n",
    "import torch\nbackend = {'cuda': 'nccl', 'npu': 'hccl'}[kind]\ntorch.distributed.init_process_group(backend)\n",
    "import torch\nsync = {'cuda': torch.cuda.synchronize, 'npu': torch.npu.synchronize, 'cpu': None}\n",
    "import torch\nif x.device.type in ('cuda', 'npu'):\n    pass\n",
    "import torch\nif x.device.type == 'cuda' or x.device.type == 'npu':\n    pass\n",
    "import torch\nclass Device:\n    CUDA = 'cuda'\n    NPU = 'npu'\nx.to(device=Device.CUDA)\n",
    "p.add_argument('--device', choices=['cuda', 'npu', 'cpu'])\nimport torch\nx.to(p.parse_args().device)\n",
]


@pytest.mark.parametrize("text", HANDLED)
def test_stays(text: str) -> None:
    conversion = convert_source(text.encode(), "a.py")
    assert conversion.output.decode() == text
    said = [finding for finding in conversion.findings if "branch of its own" in finding.message]
    assert said
    assert all(finding.severity is Severity.INFO for finding in said)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("import torch\nif has_npu():\n    pass\nelse:\n    x.cuda()\ny.cuda()\n", "y.npu()"),
        ("import torch\nif not has_npu():\n    raise SystemExit\nelse:\n    x.cuda()\n", "x.npu()"),
        ("import torch\nif x.device.type in ('cuda', 'cpu'):\n    npu = 1\n", "('npu', 'cpu')"),
        ("import torch\nif torch.cuda.is_available():\n    x.cuda()\nelse:\n    x.cpu()\n# npu\n", "x.npu()"),
        ("import torch\nnpus = 1\nx.cuda()\n", "x.npu()"),
    ],
)
def test_the_rest_is_converted(text: str, word: str) -> None:
    assert word in convert_source(text.encode(), "a.py").output.decode()


@pytest.mark.parametrize(
    "text",
    [
        "import torch\ndef f():\n    if HAS_NPU:\n        return 'npu'\n    if torch.cuda.is_available():\n"
        "        return 'cuda'\n    return 'cpu'\n",
        "import torch\ndef f(x):\n    if is_npu_available():\n        return x.to('npu')\n    return x.cuda()\n",
    ],
)
def test_what_follows_a_return_for_the_npu_is_for_other_devices(text: str) -> None:
    assert convert_source(text.encode(), "a.py").output.decode() == text


@pytest.mark.parametrize(
    "text",
    [
        "def f(x, ascending):\n    if ascending:\n        return x\n    return x.cuda()\n",
        "def f(x):\n    if not is_npu_available():\n        return x\n    return x.cuda()\n",
        "def f(x):\n    if is_npu_available():\n        print(x)\n    return x.cuda()\n",
    ],
)
def test_what_follows_another_return_is_for_the_npu_too(text: str) -> None:
    assert "return x.npu()" in convert_source(text.encode(), "a.py").output.decode()


CASES = {
    "flags": "import torch\nis_cuda = torch.cuda.is_available()\nis_npu = torch.npu.is_available()\n"
    "device = 'cuda' if is_cuda else 'npu' if is_npu else 'cpu'\n",
    "a flag of another name": "import torch\nhas_gpu = torch.cuda.is_available()\nif has_gpu:\n    d = 'cuda'\n"
    "elif is_torch_npu_available():\n    d = 'npu'\n",
    "attributes": "import torch\nclass A:\n    def __init__(self):\n        self.use_cuda = torch.cuda.is_available()\n"
    "        self.use_npu = hasattr(torch, 'npu')\n    def go(self, x):\n        if self.use_cuda:\n"
    "            return x.cuda()\n        if self.use_npu:\n            return x.npu()\n",
    "functions": "import torch\ndef is_cuda_available():\n    return torch.cuda.is_available()\n"
    "def is_npu_available():\n    return hasattr(torch, 'npu')\n",
    "an answer of a function": "import torch\ndef has_gpu():\n    return torch.cuda.is_available()\n"
    "def find():\n    if has_gpu():\n        return 'cuda'\n    elif is_npu_available():\n        return 'npu'\n",
    "CUDA first, then the NPU": "import torch\ndef find():\n    if torch.cuda.is_available():\n"
    "        return torch.device('cuda')\n    if torch.npu.is_available():\n        return torch.device('npu')\n"
    "    return torch.device('cpu')\n",
    "the same question of both": "import torch\ndef find(d):\n    if d == 'cuda':\n        b = 'nccl'\n"
    "    if d == 'npu':\n        b = 'hccl'\n    torch.distributed.init_process_group(b)\n",
    "match": "import torch\nmatch torch.device(d).type:\n    case 'cuda':\n        t = torch.bfloat16\n"
    "    case 'npu' | 'xpu':\n        t = torch.float16\n    case _:\n        t = torch.float32\n",
    "pairs": "import torch\nfor device, backend in (('npu', 'hccl'), ('cuda', 'nccl')):\n    torch.ones(1, device=device)\n",
    "words of a call": "import torch\nb = dict(cuda='nccl', npu='hccl')\ntorch.distributed.init_process_group(b[d])\n",
    "values": "import torch\nd = {'nvidia': 'cuda', 'huawei': 'npu'}[maker]\ntorch.ones(1, device=d)\n",
    "classes": "import torch\nclass CudaPlatform:\n    def sync(self):\n        torch.cuda.synchronize()\n"
    "class NpuPlatform:\n    def sync(self):\n        torch.npu.synchronize()\n",
    "the rest": "import torch\nd = 'cuda' if torch.cuda.is_available() else 'npu'\nx.to(torch.device(d))\n",
    "backends in a text": "import torch\ntorch.distributed.init_process_group('cpu:gloo,cuda:nccl,npu:hccl')\n",
    "an import that fails": "import torch\ntry:\n    import torch_npu\n    d = torch.device('npu')\n"
    "except ImportError:\n    d = torch.device('cuda')\n",
    "CUDA's return before a try for the NPU": "import torch\ndef find():\n    if torch.cuda.is_available():\n"
    "        return torch.device('cuda')\n    try:\n        import torch_npu\n        return torch.device('npu')\n"
    "    except ImportError:\n        return torch.device('cpu')\n",
    "CUDA's return before the NPU's": "import torch\ndef find():\n    if torch.cuda.is_available():\n"
    "        return 'cuda'\n    return 'npu'\n",
    "one name in two questions": "import torch\nd = 'cpu'\nif torch.cuda.is_available():\n    d = 'cuda'\n"
    "if hasattr(torch, 'npu') and torch.npu.is_available():\n    d = 'npu'\nx.to(torch.device(d))\n",
    "a block for the NPU": "import torch\nif torch.cuda.is_available():\n    d = torch.device('cuda')\n"
    "    torch.cuda.set_device(0)\nelse:\n    import torch_npu\n    d = torch.device('npu:0')\n",
    "a device each": "import torch\nif torch.cuda.is_available():\n    torch.cuda.empty_cache()\n"
    "if npu_specific.has_npu:\n    torch.npu.empty_cache()\n",
    "a sibling in another module": "import torch\ndef get_cuda_string():\n    return 'cuda:0'\ndef find():\n"
    "    if torch.cuda.is_available():\n        return get_cuda_string()\n    if npu_specific.has_npu:\n"
    "        return npu_specific.get_npu_string()\n    return 'cpu'\n",
    "entries by keyword": "import torch\nSPECS = [Spec(name='cuda', clear=lambda: torch.cuda.empty_cache()),\n"
    "         Spec(name='npu', clear=lambda: torch.npu.empty_cache())]\n",
    "imported siblings": "import torch\nfrom mylib import is_cuda, is_npu\nif is_cuda():\n    torch.cuda.empty_cache()\n",
    "parameters of a test": "import pytest, torch\n"
    "@pytest.mark.parametrize('device', [pytest.param('cuda'), pytest.param('npu')])\n"
    "def test_it(device):\n    torch.ones(1, device=device)\n",
}


@pytest.mark.parametrize("name", CASES)
def test_all_forms_of_a_branch_for_the_npu(name: str) -> None:
    assert convert_source(CASES[name].encode(), "a.py").output.decode() == CASES[name]


OTHERS = {
    "a chosen device": (
        "import torch\ndevice = 'cuda'\nif device == 'cuda':\n    b = 'nccl'\nelif device == 'npu':\n    b = 'hccl'\n"
        "torch.ones(1, device=device)\n",
        "device = 'npu'",
    ),
    "another question": (
        "import torch\nif torch.cuda.is_available():\n    torch.cuda.init()\nif npu_count > 1:\n    pass\n",
        "torch.npu.init()",
    ),
    "a flag that no branch asks": (
        "import torch\nuse_cuda = torch.cuda.is_available()\nd = torch.device('cuda' if use_cuda else 'cpu')\nnpus = 0\n",
        "use_cuda = torch.npu.is_available()",
    ),
    "words that hold these letters": ("import torch\ninput_npus = 1\ncompute_cuda = x.cuda()\n", "x.npu()"),
    "a message that names the NPU": (
        "import torch\ndef f():\n    if torch.cuda.is_available():\n        return x.cuda()\n    print('NPU is missing')\n",
        "x.npu()",
    ),
    "a method of this name": (
        "import torch\ndef cuda_of(x):\n    return x.cuda()\nif torch.npu.is_available():\n    pass\n",
        "x.npu()",
    ),
    "an import without a sibling": (
        "import torch\nfrom mylib import is_cuda, npu_count\nif is_cuda():\n    torch.cuda.empty_cache()\n",
        "torch.npu.empty_cache()",
    ),
    "two names": (
        "import torch\nif torch.cuda.is_available():\n    d = 'cuda'\nif npu_first():\n    e = 1\ntorch.ones(1, device=d)\n",
        "d = 'npu'",
    ),
    "not the NPU": ("import torch\nif d != 'npu':\n    pass\nelse:\n    pass\nx.cuda()\n", "x.npu()"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_code_without_such_a_branch_is_converted(name: str) -> None:
    text, word = OTHERS[name]
    assert word in convert_source(text.encode(), "a.py").output.decode()


def convert(folder: Path, files: dict[str, str], **options: bool) -> dict[str, str]:
    """The files that change, converted as one project."""
    for file, text in files.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text)
    found = convert_files([(folder / file, file) for file in files], Style.NPU, Extras(**options))
    return {one.name: one.output.decode() for one in found if one.changed}


PROJECT = {
    "acc/__init__.py": "from .cuda_acc import CudaAcc\nfrom .npu_acc import NpuAcc\n",
    "acc/cuda_acc.py": "import torch\nname = 'cuda'\ndef sync():\n    torch.cuda.synchronize()\n",
    "acc/npu_acc.py": "import torch\nname = 'npu'\ndef sync():\n    torch.npu.synchronize()\n",
    "ops/cuda/build.py": "import torch\ndef find():\n    return torch.cuda.is_available()\n",
    "ops/npu/build.py": "def find():\n    return True\n",
    "a.py": "import torch\nclass CudaRunner:\n    def go(self):\n        torch.cuda.synchronize()\n",
    "b.py": "class NpuRunner:\n    pass\n",
    "flags.py": "import torch\nhas_gpu = torch.cuda.is_available()\ndef gpu_there():\n    return torch.cuda.is_available()\n",
    "c.py": "from flags import has_gpu\nd = 'cuda' if has_gpu else 'npu' if has_npu() else 'cpu'\n",
    "d.py": "import flags\ndef find():\n    if flags.gpu_there():\n        return 'cuda'\n    elif has_npu():\n        return 'npu'\n",
}


def test_files_classes_and_flags_of_a_project_that_knows_the_npu_stay(tmp_path: Path) -> None:
    assert convert(tmp_path, PROJECT) == {}


def test_they_are_converted_if_the_user_says_so(tmp_path: Path) -> None:
    changed = convert(tmp_path, PROJECT, ignore_npu_path=True)
    assert {"acc/cuda_acc.py", "ops/cuda/build.py", "a.py", "flags.py"} <= changed.keys()


def test_the_same_files_without_a_sibling_are_converted(tmp_path: Path) -> None:
    alone = {"acc/cuda_acc.py", "ops/cuda/build.py", "a.py", "flags.py"}
    assert convert(tmp_path, {file: PROJECT[file] for file in alone}).keys() == alone


@pytest.mark.parametrize("command", ["analyze", "check", "convert"])
def test_the_first_line_says_that_a_project_knows_the_npu(tmp_path, capsys, command) -> None:
    convert(tmp_path, {**PROJECT, "plain.py": "import torch\nx = torch.ones(1).cuda()\n"})
    options = ["-o", str(tmp_path / "out")] if command == "convert" else []
    main([command, str(tmp_path), *options])
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("This project has an NPU path of its own (beside a.py:4 and 5 more files)")
    (tmp_path / "new").mkdir()
    convert(tmp_path / "new", {"plain.py": "import torch\nx = torch.ones(1).cuda()\n"})
    main([command, str(tmp_path / "new"), *(["-o", str(tmp_path / "other")] if options else [])])
    assert "NPU path" not in capsys.readouterr().out


def test_names_that_are_imported_beside_their_sibling_for_the_npu_are_known() -> None:
    text = b"from mylib import is_cuda%s\n"
    warned = [one.code for one in convert_source(text % b", npu_count", "a.py").findings]
    assert warned == ["TP195"]
    assert not convert_source(text % b", is_npu", "a.py").findings
