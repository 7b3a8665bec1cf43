"""A converted project runs where nobody loads torch_npu by itself: torch before 2.5, TORCH_DEVICE_BACKEND_AUTOLOAD=0."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from torchport import vnpu
from torchport.convert import convert_tree

NET = "import torch\nclass Net(torch.nn.Linear):\n    def __init__(self):\n        super().__init__(2, 1)\n"
PROJECTS: dict[str, dict[str, str]] = {
    "library alone names CUDA": {
        "lib/__init__.py": "",
        "lib/trainer.py": "import torch\ndef place(x):\n"
        "    return x.to('cuda' if torch.cuda.is_available() else 'cpu')\n",
        "main.py": "import torch\nfrom lib.trainer import place\nif __name__ == '__main__':\n"
        "    print(place(torch.ones(2)).device)\n",
    },
    "constant of another file": {
        "config.py": "WHERE = 'cuda'\n",
        "main.py": "import torch\nimport config\nx = torch.ones(2).to(config.WHERE)\nprint(x.device)\n",
    },
    "star import": {
        "settings.py": "WHERE = 'cuda:0'\n",
        "main.py": "import torch\nfrom settings import *\nx = torch.ones(2, device=WHERE)\nprint(x.device)\n",
    },
    "class of another file": {
        "model.py": NET,
        "main.py": "from model import Net\nnet = Net().cuda()\nprint(net.weight.device)\n",
    },
    "is_cuda alone": {"main.py": "import torch\nx = torch.ones(2)\nassert not x.is_cuda\nprint('npu:0')\n"},
    "function with a default": {
        "tools.py": "import torch\ndef place(x, where='cuda'):\n    return x.to(where)\n",
        "main.py": "import torch\nimport tools\nx = tools.place(torch.ones(2))\nprint(x.device)\n",
    },
    "one line": {"main.py": "import torch; print(torch.ones(2).cuda().device)\n"},
}
# Two ways for torch_npu to be needed: by a file that imports it for another, and by one that never names a device.
IN_MAKE_TEST = ("library alone names CUDA", "is_cuda alone")


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | vnpu.environment() | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    return subprocess.run(
        [sys.executable, "main.py"], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.ports] * (name not in IN_MAKE_TEST)) for name in PROJECTS]
)
def test_converted(tmp_path: Path, name: str) -> None:
    for path, text in PROJECTS[name].items():
        (tmp_path / "in" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / path).write_text(text)
    convert_tree(tmp_path / "in", tmp_path / "out")
    done = run(tmp_path / "out")
    assert done.stdout.strip() == "npu:0", done.stderr


def test_without_the_import_it_fails(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("import torch\nprint(torch.ones(2).to('npu').device)\n")
    assert run(tmp_path).returncode != 0
