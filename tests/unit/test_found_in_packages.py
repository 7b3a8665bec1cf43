"""What reading the conversion of real packages has shown to be missed or wrong, each in its smallest form."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchport.convert import convert_source, preview_tree
from torchport.findings import Finding, Severity

REWRITTEN = {
    "a Literal and its default": (
        "from typing import Literal\nimport torch\nbackend: Literal['nccl', 'gloo'] = 'nccl'\n"
        "torch.distributed.init_process_group(backend)\n",
        "Literal['hccl', 'gloo'] = 'hccl'",
    ),
    "a Literal of a parameter": (
        "from typing import Literal, Optional\nimport torch\ndef f(d: Optional[Literal['cuda', 'cpu']] = None):\n"
        "    return torch.ones(1, device=d)\n",
        "Literal['npu', 'cpu']",
    ),
    "unittest": ("def test_it(self):\n    self.assertEqual(p.device.type, 'cuda')\n", "(p.device.type, 'npu')"),
    "a device by the name of what holds it": ("if self.devices[0].type == 'cuda':\n    pass\n", "== 'npu'"),
    "what a function of that name gives": ("if 'cuda' in dist.get_device().type:\n    pass\n", "if 'npu' in"),
    "an attribute of what another file makes": (
        "from settings import device_config\ndevice_config.device = 'cuda'\n",
        "device_config.device = 'npu'",
    ),
    "a method of that name": ("if accelerator().device_name() == 'cuda':\n    pass\n", "== 'npu'"),
    "a table of functions": (
        "import torch\nm = {'cuda': torch.cuda.synchronize, 'cpu': None}\n",
        "{'npu': torch.npu.synchronize, 'cpu'",
    ),
    "an operator for devices": (
        "import torch\n@torch.library.custom_op('a::b', mutates_args=(), device_types='cuda')\ndef f(x):\n    pass\n",
        "device_types='npu'",
    ),
    "an import that binds torch": (
        "import torch.cuda\ntorch.cuda.init()\n",
        "import torch, torch_npu\ntorch.npu.init()",
    ),
    "settings that change name in two places": (
        "import torch\ntorch.backends.cudnn.allow_tf32 = True\n",
        "torch.npu.conv.allow_hf32 = True",
    ),
    "out of memory": ("def f(e):\n    return 'CUDA out of memory' in str(e)\n", "'NPU out of memory' in str(e)"),
}
KEPT = {
    "devices of another library": "import jax\nif jax.default_device == 'cuda':\n    pass\nd = jax.get_device()\n",
    "the state of a random generator": "import torch\n# cuda\nstate['cuda'] = get_states()\n",
    "a table of kernels": "m = {'cuda': CudaLayer, 'cpu': None}\n",
    "what an override describes": (
        "import functools, torch\nclass M(torch.nn.Module):\n    @functools.wraps(torch.nn.Module.cuda)\n"
        "    def cuda(self, *args):\n        return self\n"
    ),
    "a toolkit": "import os\nhome = os.environ.get('CUDA_HOME', '/usr/local/cuda')\n",
    "names of errors and keys": "x = ['CUBLAS_STATUS_ALLOC_FAILED', 'NVIDIA_API_KEY']\n",
    "words that translate": "def f(device):\n    return device.replace('cuda', 'gpu')\n",
}


def said(text: str, code: str) -> list[Finding]:
    return [finding for finding in convert_source(text.encode(), "a.py").findings if finding.code == code]


@pytest.mark.parametrize("name", REWRITTEN)
def test_rewritten(name: str) -> None:
    before, word = REWRITTEN[name]
    assert word in convert_source(before.encode(), "a.py").output.decode()


@pytest.mark.parametrize("name", KEPT)
def test_kept(name: str) -> None:
    assert convert_source(KEPT[name].encode(), "a.py").output.decode() == KEPT[name]


def test_names_of_errors_are_no_variables() -> None:
    assert said(KEPT["names of errors and keys"], "TP160") == []
    assert [one.severity for one in said("x = 'NCCL_SOMETHING_NEW'\n", "TP160")] == [Severity.WARNING]


def test_other_texts_of_errors_are_reported() -> None:
    (finding,) = said("if re.search('CUDA error: invalid', str(e)):\n    pass\nimport re\n", "TP140")
    assert finding.severity is Severity.WARNING
    assert not finding.fix


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("s, shuffle=True", ["drop_last", "pin_memory"]),
        ("s, shuffle=True, drop_last=True", ["Pin_memory"]),
        ("s, sampler=x, drop_last=True, pin_memory=True", []),
        ("s", []),
        ("s, shuffle=False", []),
        ("s, **options", []),
    ],
)
def test_advice_on_loading(arguments: str, words: list[str]) -> None:
    findings = said(f"# cuda\nfrom torch.utils.data import DataLoader\nd = DataLoader({arguments})\n", "TP501")
    assert len(findings) == bool(words)
    assert all(word.lower() in findings[0].hint.lower() for word in words)
    assert all(finding.severity is Severity.INFO and not finding.fix for finding in findings)


def test_a_project_is_no_library_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "composer").mkdir()
    (tmp_path / "composer" / "__init__.py").write_text("")
    (tmp_path / "composer" / "a.py").write_text("import composer.b\nimport bmtrain\n")
    findings = preview_tree(tmp_path).findings
    assert [finding.message for finding in findings if finding.code == "TP401"] == ["bmtrain does not exist on an NPU"]


def test_the_package_itself_may_be_the_project(tmp_path: Path) -> None:
    folder = tmp_path / "composer"
    folder.mkdir()
    (folder / "__init__.py").write_text("import composer.b\n")
    (folder / "b.py").write_text("")
    assert preview_tree(folder).findings == ()


@pytest.mark.parametrize(
    ("name", "severity"),
    [
        ("bmtrain", Severity.ERROR),
        ("bitsandbytes", Severity.ERROR),
        ("grouped_gemm", Severity.ERROR),
        ("composer", Severity.ERROR),
        ("xformers", Severity.ERROR),
        ("pynvml", Severity.WARNING),
        ("deepspeed", Severity.INFO),
    ],
)
def test_what_the_guide_calls_unsupported_blocks(name: str, severity: Severity) -> None:
    (finding,) = said(f"import {name}\n", "TP401")
    assert finding.severity is severity
    assert finding.hint


def test_kernels_that_block() -> None:
    text = "from numba import cuda\n@cuda.jit\ndef f(x):\n    x[0] = 0\n"
    assert [one.severity for one in said(text, "TP401")] == [Severity.WARNING, Severity.ERROR]
