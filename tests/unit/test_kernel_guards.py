"""A condition that opens a CUDA kernel beside a fallback stays; every other one is converted."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchport.convert import convert_source
from torchport.convert.workers import convert_files
from torchport.findings import Severity
from torchport.rules import Style

LOADS = (
    "import torch\nfrom torch.utils import cpp_extension\n_plugin = None\n"
    "def _init():\n    global _plugin\n    if _plugin is None:\n"
    "        _plugin = cpp_extension.load(name='p', sources=['p.cpp', 'p.cu'])\n    return True\n"
)
KEPT = {
    "the condition builds": LOADS
    + "def act(x):\n    if x.device.type == 'cuda' and _init():\n        return _plugin.act(x)\n    return torch.relu(x)\n",
    "the branch builds": LOADS + "def act(x):\n    if x.is_cuda:\n        _init()\n        return _plugin.act(x)\n"
    "    else:\n        return torch.relu(x)\n",
    "negated": LOADS + "def act(x):\n    if not x.is_cuda:\n        return torch.relu(x)\n    _init()\n"
    "    return _plugin.act(x)\n",
    "another device": LOADS + "def act(x):\n    if x.device.type != 'cuda':\n        return torch.relu(x)\n"
    "    return _plugin.act(x)\n",
    "an expression": LOADS + "def act(x):\n    return _plugin.act(x) if x.is_cuda else torch.relu(x)\n",
    "a compiled module": "import torch\ntry:\n    import scan_cuda\nexcept ImportError:\n    scan_cuda = None\n"
    "def scan(x):\n    if x.is_cuda and scan_cuda is not None:\n        return scan_cuda.fwd(x)\n    return x.cumsum(0)\n",
    "a flag": "import torch\nfrom . import _C\nFUSED = torch.cuda.is_available()\ndef f(x):\n    if FUSED:\n"
    "        return _C.f(x)\n    return x\n",
    "a function of autograd": LOADS + "class Act(torch.autograd.Function):\n    @staticmethod\n"
    "    def forward(ctx, x):\n        return _plugin.act(x)\ndef act(x):\n    if x.is_cuda:\n"
    "        return Act.apply(x)\n    return torch.relu(x)\n",
    "an import": "import torch\nif torch.cuda.is_available():\n    import cupy\n    xp = cupy\nelse:\n"
    "    import numpy\n    xp = numpy\n",
    "setup.py": "import torch\nfrom torch.utils.cpp_extension import CUDAExtension\nmodules = []\n"
    "if torch.cuda.is_available():\n    modules.append(CUDAExtension('k', ['k.cu']))\n",
    "the version of the compiler": "import torch\ndef f(b):\n    if torch.cuda.is_available():\n"
    "        b.installed_cuda_version()\n",
}


@pytest.mark.parametrize("name", KEPT)
def test_a_guard_of_a_kernel_stays(name: str) -> None:
    conversion = convert_source(KEPT[name].encode(), "a.py")
    changed = [
        line
        for line in conversion.output.decode().splitlines()
        if line not in KEPT[name].splitlines() and line != "import torch_npu"
    ]
    assert not changed
    said = [finding for finding in conversion.findings if "stays off on the NPU" in finding.message]
    assert said
    assert all(finding.severity is Severity.INFO and not finding.fix for finding in said)


CONVERTED = {
    "no fallback": (
        LOADS + "def act(x):\n    if x.is_cuda:\n        return _plugin.act(x)\n    raise TypeError\n",
        "x.is_npu",
    ),
    "a kernel in both": (
        LOADS + "def act(x):\n    if x.is_cuda:\n        return _plugin.act(x)\n    return _plugin.slow(x)\n",
        "x.is_npu",
    ),
    "a model that has a fallback": (
        LOADS + "def act(x):\n    if x.is_cpu:\n        return x\n    return torch.relu(x)\n"
        "def main(m):\n    if torch.cuda.is_available():\n        m.cuda()\n    act(m)\n",
        "if torch.npu.is_available()",
    ),
    "a function with its own fallback": (
        LOADS + "def act(x):\n    if x.is_cuda and _init():\n        return _plugin.act(x)\n    return torch.relu(x)\n"
        "def main(x):\n    if torch.cuda.is_available():\n        x = act(x.cuda())\n    return x\n",
        "if torch.npu.is_available()",
    ),
    "a version that is printed": (
        "import torch\nif torch.cuda.is_available():\n    print(torch.version.cuda)\n    torch.cuda.manual_seed(1)\n",
        "if torch.npu.is_available()",
    ),
    "a flag with another use": (
        "import torch\nfrom . import _C\nON = torch.cuda.is_available()\ndef f(x):\n    if ON:\n        return _C.f(x)\n"
        "    return x\ndef g(x):\n    if ON:\n        x = x.cuda()\n    return x\n",
        "ON = torch.npu.is_available()",
    ),
    "a module of the project with such a name": (
        "import torch\nfrom tools_ext import load\nif torch.cuda.is_available():\n    load()\n",
        "if torch.npu.is_available()",
    ),
}


@pytest.mark.parametrize("name", CONVERTED)
def test_other_conditions_are_converted(tmp_path: Path, name: str) -> None:
    text, word = CONVERTED[name]
    (tmp_path / "a.py").write_text(text)
    (tmp_path / "tools_ext.py").write_text("def load(): pass\n")
    first, _ = convert_files([(tmp_path / file, file) for file in ("a.py", "tools_ext.py")], Style.NPU)
    assert word in first.output.decode()


def test_a_kernel_in_another_file(tmp_path: Path) -> None:
    files = {
        "ops/__init__.py": "",
        "ops/plugins.py": "from torch.utils import cpp_extension\ndef get(name):\n"
        "    return cpp_extension.load(name=name, sources=[name + '.cu'])\n",
        "ops/act.py": "import torch\nfrom .plugins import get\ndef act(x):\n    if x.is_cuda:\n"
        "        return get('act').act(x)\n    return torch.relu(x)\n",
    }
    for file, text in files.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text)
    found = list(convert_files([(tmp_path / file, file) for file in files], Style.NPU))
    assert not [one.name for one in found if one.changed]
