"""`convert --try`: what was imported on the virtual NPU before the conversion is imported after it, or taken back."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchport.convert.stages import Extras
from torchport.convert.tree import convert_tree
from torchport.errors import TorchportError
from torchport.findings import Result, Severity

# Right before the conversion, and wrong after it: nothing in the text says that this is the name of the device.
BREAKS = "import torch\nwhere = torch.device('cuda')\nassert where.type[::-1] == 'aduc'\nx = torch.ones(1)\n"
FILES = {
    "pkg/__init__.py": "from .device import x\n",
    "pkg/device.py": BREAKS,
    "pkg/good.py": "import torch\ndef f(x):\n    return x.cuda()\n",
    "pkg/user.py": "import torch\nfrom pkg import x\ndef g():\n    return torch.ones(1).cuda() + x\n",
    "never.py": "import torch\nimport a_module_that_is_not_there\nx = torch.ones(1).cuda()\n",
    "prints.py": "import os, sys, torch\nprint('{')\nopen('made', 'w').close()\nd = torch.device('cuda')\nos.kill(os.getppid(), 0)\n",
    "dies.py": "import os, torch\nd = torch.device('cuda')\nos._exit(3)\n",
    "tests/test_it.py": "import torch\nimport pytest\n@pytest.mark.parametrize('d', ['cpu', 'cuda'])\ndef test_it(d):\n"
    "    torch.ones(1, device=d)\n",
}


def convert(folder: Path, files: dict[str, str]) -> tuple[Result, Path]:
    for name, text in files.items():
        (folder / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "in" / name).write_text(text)
    out = folder / "out"
    return convert_tree(folder / "in", out, extras=Extras(tries=True)), out


def test_files_that_break_are_left_as_they_were(tmp_path: Path) -> None:
    result, out = convert(tmp_path, FILES)
    assert (out / "pkg/device.py").read_text() == BREAKS
    assert {name for name, text in FILES.items() if (out / name).read_text() != text} == {
        "pkg/good.py",
        "pkg/user.py",
        "never.py",
        "prints.py",
        "dies.py",
        "tests/test_it.py",
    }
    said = [finding for finding in result.findings if finding.code == "TP905"]
    summary, taken = said
    assert summary.message == (
        "tried on the virtual NPU: 7 changed files, 5 of them imported before the conversion, 1 taken back; not told: 2 "
        "that are not imported as they were, 0 that took too long"
    )
    assert taken.location is not None
    assert taken.location.path == "pkg/device.py"
    assert taken.message.endswith("it ends with AssertionError")
    assert taken.severity is Severity.WARNING
    assert not (tmp_path / "in/made").exists(), "what the code writes goes to a copy"


def test_nothing_is_taken_back_from_a_healthy_project(tmp_path: Path) -> None:
    result, _ = convert(tmp_path, {"pkg/__init__.py": "", "pkg/good.py": FILES["pkg/good.py"]})
    assert [finding.severity for finding in result.findings if finding.code == "TP905"] == [Severity.INFO]


def test_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import torch\nx = torch.ones(1).cuda()\n")
    with pytest.raises(TorchportError, match="imports the files of a project"):
        convert_tree(tmp_path / "a.py", tmp_path / "out", extras=Extras(tries=True))
