"""Cases that other migration tools were measured on: what they break stays whole, what is tricky is handled.

`DEFECTS` are rewrites that are known to go wrong when names are replaced without proof; `PATTERNS` are ways in which
people write CUDA code. Each is converted as a whole file, and the output is compared as a whole.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from torchport.convert import Extras, convert_source, convert_tree
from torchport.findings import Severity

DEFECTS = {
    "keyword stays a keyword": (
        "import torch\nmodel.cuda()\nmodel.to_empty(device=device)\n",
        "import torch\nimport torch_npu\nmodel.npu()\nmodel.to_empty(device=device)\n",
    ),
    "modules that do not exist": ("import torch.cuda.nccl as nccl\n", "import torch.cuda.nccl as nccl\n"),
    "nvtx is mstx": (
        "from torch.cuda import nvtx\nnvtx.range_push('a')\n",
        "from torch_npu.npu import mstx\nmstx.range_push('a')\n",
    ),
    "user names": (
        "class Foo:\n    is_cuda = True\n    CUDA = 3\n    def cuda(self):\n        return self.CUDA\n"
        "f = Foo()\nf.cuda(), f.is_cuda, f.CUDA\ndef cuda(n):\n    return n\ncuda(3)\n",
        None,
    ),
    "override": (
        "from torch import nn\nclass M(nn.Module):\n    def cuda(self, d=None):\n        return super().cuda(d)\nM().cuda()\n",
        "from torch import nn\nimport torch_npu\n"
        "class M(nn.Module):\n    def cuda(self, d=None):\n        return super().npu(d)\nM().cuda()\n",
    ),
    "imports inside functions": (
        "def a():\n    import torch\n    return torch.cuda.Event()\ndef b():\n    import torch\n    return torch.cuda.Event()\n",
        "import torch_npu\n"
        "def a():\n    import torch\n    return torch.npu.Event()\ndef b():\n    import torch\n    return torch.npu.Event()\n",
    ),
    "import after a try": (
        "try:\n    import torchvision\nexcept ImportError:\n    torchvision = None\nimport torch\ntorch.cuda.init()\n",
        "try:\n    import torchvision\nexcept ImportError:\n    torchvision = None\n"
        "import torch\nimport torch_npu\ntorch.npu.init()\n",
    ),
    "to() of other things": ("# cuda\nQuantity(3, 'm').to(unit)\nq.to(5)\nx.to(0)\n", None),
    "latin-1": (
        "# -*- coding: latin-1 -*-\nimport torch\ns = 'caf\xe9'\nx.cuda()\n",
        "# -*- coding: latin-1 -*-\nimport torch\nimport torch_npu\ns = 'caf\xe9'\nx.npu()\n",
    ),
    "hasattr": ("# cuda\nhasattr(self.model.module, 'x')\n", None),
    "called conditional": (
        "import torch\n(fs[0] if torch.cuda.is_available() else print)(1)\n",
        "import torch\nimport torch_npu\n(fs[0] if torch.npu.is_available() else print)(1)\n",
    ),
    "backend per device": (
        "import torch.distributed as dist\ndist.init_process_group('cpu:gloo,cuda:nccl')\n",
        "import torch.distributed as dist\nimport torch_npu\ndist.init_process_group('cpu:gloo,npu:hccl')\n",
    ),
    "prose": (
        "'''Runs on cuda: see below.'''\nprint('please install cuda: see https://x.org/whl/torch.cuda.html')\n"
        "# torch.cuda.is_available()\n",
        None,
    ),
    "TorchScript": (
        "import torch\n@torch.jit.script\ndef f(x):\n    return x.is_cuda\n",
        'import torch\nimport torch_npu\n@torch.jit.script\ndef f(x):\n    return (x.device.type == "npu")\n',
    ),
    "CUDAGraph": (
        "import torch\ng = torch.cuda.CUDAGraph()\nwith torch.cuda.graph(g):\n    pass\n",
        "import torch\nimport torch_npu\ng = torch.npu.NPUGraph()\nwith torch.npu.graph(g):\n    pass\n",
    ),
    "the CPU stays the CPU": (
        "import torch\na = torch.device('cpu')\nb = torch.device('cuda')\n",
        "import torch\nimport torch_npu\na = torch.device('cpu')\nb = torch.device('npu')\n",
    ),
    "class constants and their uses": ("class RNGType:\n    CUDA = 'cuda'\nif kind == RNGType.CUDA:\n    pass\n", None),
    "activities that only other devices have": (
        "from torch import profiler as p\nx = [p.ProfilerActivity.CUDA, p.ProfilerActivity.XPU]\n",
        "from torch import profiler as p\nimport torch_npu\n"
        "x = [torch_npu.profiler.ProfilerActivity.NPU, p.ProfilerActivity.XPU]\n",
    ),
    "a profile of the CPU": (
        "import torch\n# cuda\nwith torch.profiler.profile(with_flops=True) as p:\n    pass\np.key_averages()\n",
        None,
    ),
    "a table of activities": (
        "import torch\nm = {'cpu': torch.profiler.ProfilerActivity.CPU, 'npu': None,\n"
        "     'cuda': torch.profiler.ProfilerActivity.CUDA}\n",
        None,
    ),
    "an index is no text": ("import torch\nx.cuda()\nx.to(0)\n", "import torch\nimport torch_npu\nx.npu()\nx.to(0)\n"),
    "hasattr of a wrapper": (
        "import torch\nmodel.cuda()\nif hasattr(model.module, 'head'):\n    pass\n",
        "import torch\nimport torch_npu\nmodel.npu()\nif hasattr(model.module, 'head'):\n    pass\n",
    ),
    "docstrings": (
        "import torch\ndef f(x):\n    '''Moves x to cuda: see torch.cuda.'''\n    return x.cuda()\n",
        "import torch\nimport torch_npu\ndef f(x):\n    '''Moves x to cuda: see torch.cuda.'''\n    return x.npu()\n",
    ),
    "masks are assigned as they were": ("import torch\n# cuda\nx[mask] = y[mask]\n", None),
    "statements with several imports": ("import amp_C, os\nos.getcwd()\n", None),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_defects_of_other_tools(name: str) -> None:
    before, after = DEFECTS[name]
    encoding = "latin-1" if "latin-1" in before else "utf-8"
    conversion = convert_source(before.encode(encoding), "a.py")
    assert conversion.output.decode(encoding) == (before if after is None else after)
    assert "TP903" not in {finding.code for finding in conversion.findings}


def test_any_path_name(tmp_path: Path) -> None:
    for name in ("c10_plus+dir", "中文", "a@b", "p(1)", "x,y", "k=v", "-o", "new\nline"):
        folder = tmp_path / "in" / name
        folder.mkdir(parents=True)
        (folder / f"{name}.py").write_text("import torch\ntorch.cuda.init()\n")
    result = convert_tree(tmp_path / "in", tmp_path / "out")
    assert len(result.data["changed"]) == 8


def test_one_bad_file_does_not_stop_the_others(tmp_path: Path) -> None:
    texts = {"a.py": "import torch\nprint 'cuda'\n", "b.py": "import torch\ntorch.cuda.init()\n", "c.py": "cuda = (\n"}
    (tmp_path / "in").mkdir()
    for name, text in texts.items():
        (tmp_path / "in" / name).write_text(text)
    result = convert_tree(tmp_path / "in", tmp_path / "out")
    assert result.data["changed"] == ["b.py"]
    assert {one.location.path for one in result.findings if one.code == "TP901" and one.location} == {"a.py", "c.py"}
    assert (tmp_path / "out" / "a.py").read_text() == texts["a.py"]


def test_one_file_is_enough_and_nothing_is_asked(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\ntorch.cuda.init()\n")
    script.chmod(0o751)
    for _ in range(2):  # the second time the output is there already
        command = [sys.executable, "-m", "torchport", "convert", str(script), "-o", str(tmp_path / "out")]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "out" / "train.py").stat().st_mode & 0o777 == 0o751


def test_the_cpu_stays_the_cpu_on_several_devices(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\nimport torch.nn as nn\n\ndevice = torch.device('cuda:0')\nhost = torch.device('cpu')\n"
        "model = nn.Linear(2, 2).to(device)\nx = torch.ones(2, device=host)\n"
    )
    diff = convert_tree(script, tmp_path / "out", extras=Extras("train.py")).data["diff"]
    assert "+device = torch.device('npu')" in diff
    assert " host = torch.device('cpu')" in diff


# The rows of the guide's tables "device interfaces" and "creating tensors"; today's torch calls use_npu=True
# use_device="npu".
INTERFACES = [
    ("torch.cuda.is_available()", "torch.npu.is_available()"),
    ("torch.cuda.current_device()", "torch.npu.current_device()"),
    ("torch.cuda.device_count()", "torch.npu.device_count()"),
    ("torch.cuda.set_device(0)", "torch.npu.set_device(0)"),
    ("torch.tensor([1, 2, 3]).is_cuda", "torch.tensor([1, 2, 3]).is_npu"),
    ("torch.tensor([1, 2, 3]).cuda()", "torch.tensor([1, 2, 3]).npu()"),
    ("torch.tensor([1, 2, 3]).to('cuda')", "torch.tensor([1, 2, 3]).to('npu')"),
    ("torch.cuda.synchronize()", "torch.npu.synchronize()"),
    ("torch.cuda.device", "torch.npu.device"),
    ("torch.cuda.Stream(device)", "torch.npu.Stream(device)"),
    ("torch.cuda.stream(s)", "torch.npu.stream(s)"),
    ("torch.cuda.current_stream()", "torch.npu.current_stream()"),
    ("torch.cuda.default_stream()", "torch.npu.default_stream()"),
    ("torch.device('cuda:0')", "torch.device('npu:0')"),
    ("torch.autograd.profiler.profile(use_cuda=True)", 'torch.autograd.profiler.profile(use_device="npu")'),
    ("torch.cuda.Event()", "torch.npu.Event()"),
    *(
        (
            f"torch.tensor([1, 2, 3], dtype=torch.{dtype}, device='cuda')",
            f"torch.tensor([1, 2, 3], dtype=torch.{dtype}, device='npu')",
        )
        for dtype in ("long", "int", "half", "float", "bool")
    ),
    *(
        (f"torch.cuda.{kind}Tensor([1, 2, 3])", f"torch.npu.{kind}Tensor([1, 2, 3])")
        for kind in ("Bool", "Float", "Int", "Long", "Half")
    ),
]


@pytest.mark.parametrize(("before", "after"), INTERFACES)
def test_interfaces_of_the_guide(before: str, after: str) -> None:
    conversion = convert_source(f"import torch\nx = {before}\n".encode(), "a.py")
    assert conversion.output.decode() == f"import torch\nimport torch_npu\nx = {after}\n"
    assert not [finding for finding in conversion.findings if not finding.fix]


# pattern: (input, words of the output in order, codes of findings that are left for people)
PATTERNS: dict[str, tuple[str, list[str], set[str]]] = {
    "1 strings": (
        "import torch\na = torch.device(f'cuda:{r}')\nb = torch.device('cuda:%d' % r)\n"
        "c = torch.device('{}:{}'.format('cuda', r))\nd = torch.device(f'cuda')\ne = torch.device('cu' + 'da')\n",
        ["f'npu:{r}'", "'npu:%d' % r", "format('npu', r)", "f'npu'", "e = torch.device('npu')"],
        set(),
    ),
    "2 ternary and type": (
        "import torch\ndevice = 'cuda' if torch.cuda.is_available() else 'cpu'\nm.to(device)\n"
        "if next(m.parameters()).device.type == 'cuda':\n    pass\n",
        ["device = 'npu' if torch.npu.is_available() else 'cpu'", "m.to(device)", ".device.type == 'npu'"],
        set(),
    ),
    "3 by name": (
        "import importlib, torch\na = getattr(torch, 'cuda')\nb = importlib.import_module('torch.cuda.amp')\n"
        "c = torch.__dict__['cuda']\n",
        ["getattr(torch, 'npu')", "import_module('torch_npu.npu.amp')", "torch.__dict__['npu']"],
        set(),
    ),
    "4 aliases": (
        "from torch import cuda as tc\nimport torch.cuda as C\nfrom torch.cuda import is_available, Event\n"
        "tc.Stream(), C.CUDAGraph(), is_available(), Event()\n",
        [
            "from torch import npu as tc",
            "import torch_npu.npu as C",
            "from torch_npu.npu import is_available, Event",
            "tc.Stream(), C.NPUGraph(), is_available(), Event()",
        ],
        set(),
    ),
    "5 amp": (
        "import torch\nimport torch.cuda.amp as amp\n@torch.amp.custom_fwd(device_type='cuda')\ndef f(x):\n"
        "    with torch.autocast('cuda'), amp.autocast():\n        return x\n",
        ["import torch_npu.npu.amp as amp", "custom_fwd(device_type='npu')", "torch.autocast('npu'), amp.autocast()"],
        set(),
    ),
    "6 argparse and environment": (
        "import argparse, os, torch\np = argparse.ArgumentParser()\n"
        "p.add_argument('--device', default='cuda', choices=['cuda', 'cpu'], help='device (default: cuda)')\n"
        "p.add_argument('--no-cuda', action='store_true')\nargs = p.parse_args()\n"
        "os.environ['CUDA_VISIBLE_DEVICES'] = '0'\nx = torch.ones(1, device=args.device)\n",
        ["default='npu', choices=['npu', 'cpu']", "'--no-cuda'", "'ASCEND_RT_VISIBLE_DEVICES'", "device=args.device"],
        set(),
    ),
    "8 is_cuda": ("import torch\nx = torch.ones(1)\nif x.is_cuda:\n    pass\n", ["if x.is_npu:"], set()),
    "9 typed tensors": (
        "import torch\nx = x.type('torch.cuda.FloatTensor')\nisinstance(x, torch.cuda.FloatTensor)\n"
        "torch.set_default_tensor_type('torch.cuda.FloatTensor')\n",
        ["type('torch.npu.FloatTensor')", "isinstance(x, torch.npu.FloatTensor)", 'torch.set_default_device("npu")'],
        set(),
    ),
    "10 backends": (
        "import torch\ntorch.backends.cudnn.benchmark = True\ntorch.backends.cuda.matmul.allow_tf32 = True\n"
        "assert torch.version.cuda\nwith torch.backends.cuda.sdp_kernel():\n    pass\n",
        [
            "torch.backends.cudnn.benchmark = True",
            "torch.npu.matmul.allow_hf32 = True",
            "torch.version.cuda",
            "torch.backends.cuda.sdp_kernel()",
        ],
        {"TP101"},
    ),
    "11 arguments": (
        "import torch\nfrom torch.utils.data import DataLoader\nd = DataLoader(s, pin_memory_device='cuda')\n"
        "a = torch.load('cuda/x.pt', map_location=lambda s, l: s.cuda(1))\n"
        "b = torch.load(path, map_location={'cuda:0': 'cuda:1'})\nx.to(0)\nz.to(device=gpu)\n",
        ["pin_memory_device='npu'", "'cuda/x.pt'", "s.npu(1)", "{'npu:0': 'npu:1'}", "x.to(0)", "z.to(device=gpu)"],
        set(),
    ),
    "12 extensions": (
        "from setuptools import setup\nfrom torch.utils.cpp_extension import BuildExtension, CUDAExtension, load_inline\n"
        "setup(ext_modules=[CUDAExtension('foo_cuda', ['foo.cu'])], cmdclass={'build_ext': BuildExtension})\n"
        "m = load_inline('k', cuda_sources='')\n",
        ["CUDAExtension('foo_cuda'"],
        {"TP102", "TP402"},
    ),
    "13 libraries": (
        "import triton\nimport flash_attn\nimport xformers.ops\nimport bitsandbytes as bnb\nfrom apex import amp\n"
        "from apex.optimizers import FusedAdam\nimport cupy\nfrom numba import cuda\nimport pycuda\n"
        "import transformer_engine\no = FusedAdam(p)\n",
        ["import triton"],
        {"TP401"},
    ),
    "14 monitoring": (
        "import pynvml, subprocess, torch\nsubprocess.run(['nvidia-smi', '-L'])\nfrom torch.cuda import nvtx\nnvtx.mark('x')\ng = torch.cuda.CUDAGraph()\n"
        "torch.cuda.get_arch_list()\nif torch.cuda.get_device_capability()[0] >= 8:\n    pass\n"
        "print(prof.key_averages().table(sort_by='cuda_time_total'))\n"
        "with torch.autograd.profiler.profile(use_cuda=True):\n    pass\n",
        [
            "from torch_npu.npu import mstx",
            "mstx.mark('x')",
            "torch.npu.NPUGraph()",
            "torch.npu.get_device_capability()",
        ],
        {"TP101", "TP150", "TP170", "TP401"},
    ),
    "15 distributed": (
        "import torch\nimport torch.distributed as dist\ndist.init_process_group('cpu:gloo,cuda:nccl')\n"
        "assert dist.get_backend() == 'nccl'\nb = dist.Backend.NCCL\ndist.is_nccl_available()\n"
        "try:\n    pass\nexcept torch.cuda.OutOfMemoryError:\n    pass\n",
        [
            "'cpu:gloo,npu:hccl'",
            "get_backend() == 'hccl'",
            "dist.Backend.HCCL",
            "dist.is_hccl_available()",
            "except torch.OutOfMemoryError",
        ],
        set(),
    ),
}


@pytest.mark.parametrize("name", PATTERNS)
def test_patterns(name: str) -> None:
    before, words, left = PATTERNS[name]
    conversion = convert_source(before.encode(), "a.py")
    output = conversion.output.decode()
    position = 0
    for word in words:
        assert word in output[position:], output
        position = output.index(word, position)
    open_findings = [one for one in conversion.findings if not one.fix and one.severity is not Severity.INFO]
    assert {finding.code for finding in open_findings} == left, open_findings
    assert all(finding.hint for finding in open_findings)


# file: (before, after)
PATTERN_7 = {
    "c.yaml": ("device: cuda\nbackend: nccl\n", "device: npu\nbackend: hccl\n"),
    "c.json": ('{"device": "cuda:0", "dist_backend": "nccl"}\n', '{"device": "npu:0", "dist_backend": "hccl"}\n'),
    "run.sh": (
        "export CUDA_VISIBLE_DEVICES=0,1\nexport NCCL_SOCKET_IFNAME=eth0\nexport NCCL_DEBUG=INFO\nnvidia-smi\n"
        "nvidia-smi -L\npython train.py --device cuda --backend nccl\n",
        "export ASCEND_RT_VISIBLE_DEVICES=0,1\nexport HCCL_SOCKET_IFNAME=eth0\nexport NCCL_DEBUG=INFO\nnpu-smi info\n"
        "nvidia-smi -L\npython train.py --device npu --backend hccl\n",
    ),
    "requirements.txt": (
        "torch==2.1.0+cu121\nflash-attn==2.5.0\nnvidia-nccl-cu12\n",
        "torch==2.1.0\nflash-attn==2.5.0\nnvidia-nccl-cu12\n",
    ),
    "Dockerfile": (
        "FROM nvidia/cuda:12.1.0-devel\nENV CUDA_VISIBLE_DEVICES=0\n",
        "FROM nvidia/cuda:12.1.0-devel\nENV ASCEND_RT_VISIBLE_DEVICES=0\n",
    ),
}


def test_pattern_7_other_files(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name, (before, _) in PATTERN_7.items():
        (tmp_path / "in" / name).write_text(before)
    result = convert_tree(tmp_path / "in", tmp_path / "out")
    written = {name: (tmp_path / "out" / name).read_text() for name in PATTERN_7}
    assert written == {name: after for name, (_, after) in PATTERN_7.items()}
    said = {(one.location.path, one.location.line) for one in result.findings if not one.fix and one.location}
    left = {("run.sh", 3), ("run.sh", 5), ("requirements.txt", 2), ("requirements.txt", 3), ("Dockerfile", 1)}
    assert said == left
    mentions = {(one["path"], one["line"]) for one in result.data["residue"]["mentions"]}
    assert mentions == left - {("requirements.txt", 2)}  # flash-attn does not say CUDA


def test_pattern_15_scripts_of_torch_keep_their_text() -> None:
    text = "import torch\n@torch.jit.script\ndef f(x: torch.Tensor):\n    'Is it on cuda: ?'\n    return x.is_cuda\n"
    output = convert_source(text.encode(), "a.py").output.decode()
    assert "'Is it on cuda: ?'" in output
    assert '(x.device.type == "npu")' in output


def test_all_patterns_are_here() -> None:
    numbers = {name.split()[0] for name in PATTERNS} | {"7"}
    assert numbers == {str(number) for number in range(1, 16)}


def test_every_library_of_a_file_is_reported() -> None:
    findings = convert_source(PATTERNS["13 libraries"][0].encode(), "a.py").findings
    said = " ".join(finding.message for finding in findings)
    for name in (
        "triton",
        "flash_attn",
        "xformers",
        "bitsandbytes",
        "apex",
        "cupy",
        "numba",
        "pycuda",
        "transformer_engine",
    ):
        assert name in said


def test_flash_attention_conditions_are_said_at_the_call() -> None:
    text = "from flash_attn import flash_attn_func\no = flash_attn_func(q, k, v, causal=True)\n"
    findings = convert_source(text.encode(), "a.py").findings
    assert any(
        "sparse_mode=3" in finding.hint and finding.location and finding.location.line == 2 for finding in findings
    )
