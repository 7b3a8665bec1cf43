"""`.cuda()` of what another file or a library makes: changed where it is proven to be torch's, else a finding."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from torchport.convert import Extras, convert_tree, preview_tree
from torchport.findings import Result


def project(folder: Path, files: dict[str, str]) -> Path:
    """A project of Python files by name, without their suffix."""
    for name, text in files.items():
        path = folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def converted(folder: Path, name: str, extras: Extras | None = None) -> tuple[str, Result]:
    out = folder.parent / "out"
    result = convert_tree(folder, out, extras=extras)
    return (out / name).read_text(), result


def left(result: Result) -> list[str]:
    return [one.code for one in result.findings if not one.fix and one.severity != "info"]


NET = "import torch\nclass Net(torch.nn.Module):\n    pass\n"


@pytest.mark.parametrize(
    "files",
    [
        {
            "graph": "class Graph:\n    def cuda(self):\n        return self\n",
            "train": "from graph import Graph\ng = Graph().cuda()\n",
        },
        {
            "parent": "class P:\n    def cuda(self):\n        return self\n",
            "graph": "from parent import P\nclass Graph(P):\n    pass\n",
            "train": "import graph\ng = graph.Graph()\ng.cuda()\n",
        },
        {
            "nets": "import unknownlib\ndef make():\n    return unknownlib.Net()\n",
            "train": "from nets import make\nnet = make().cuda()\n",
        },
        {"train": "import unknownlib\nnet = unknownlib.Net().cuda()\n"},
        {"train": "from cuda_free import Net\nnet = Net().cuda()\n"},
    ],
    ids=["own cuda", "own cuda of a parent", "function of unknown", "unknown", "missing module"],
)
def test_what_is_not_torchs_stays(tmp_path: Path, files: dict[str, str]) -> None:
    folder = project(tmp_path / "in", files)
    text, _ = converted(folder, "train.py")
    assert text == files["train"]


@pytest.mark.parametrize(
    ("files", "after"),
    [
        (
            {"model": NET, "train": "from model import Net\nnet = Net().cuda()\n"},
            "from model import Net\nnet = Net().npu()\n",
        ),
        (
            {
                "nets/__init__": "from .model import Net as Best\n",
                "nets/model": NET,
                "train": "from nets import Best\nnet = Best().cuda()\n",
            },
            "from nets import Best\nnet = Best().npu()\n",
        ),
        (
            {
                "nets/__init__": "from .model import *\n",
                "nets/model": NET,
                "train": "import nets\nnet = nets.Net().cuda()\n",
            },
            "import nets\nnet = nets.Net().npu()\n",
        ),
        (
            {
                "model": NET,
                "deep": "from model import Net\nclass Deep(Net):\n    pass\n",
                "train": "from deep import Deep\nnet = Deep()\nnet.cuda()\n",
            },
            "from deep import Deep\nnet = Deep()\nnet.npu()\n",
        ),
        (
            {
                "model": NET + "def make(big):\n    if big:\n        return Net()\n    return Net()\n",
                "train": "import model\nnet = model.make(1).cuda()\n",
            },
            "import model\nnet = model.make(1).npu()\n",
        ),
        (
            {
                "model": NET + "    @classmethod\n    def make(cls):\n        return cls()\n",
                "train": "from model import Net\nnet = Net.make().cuda()\n",
            },
            "from model import Net\nnet = Net.make().npu()\n",
        ),
        (
            {"model": NET + "net = Net()\n", "train": "import model\nmodel.net.cuda()\n"},
            "import model\nmodel.net.npu()\n",
        ),
        (
            {
                "model": "class Graph:\n    def cuda(self):\n        return self\n" + NET,
                "train": "import copy\nfrom model import Net\nnet = copy.deepcopy(Net()).cuda()\n",
            },
            "import copy\nfrom model import Net\nnet = copy.deepcopy(Net()).npu()\n",
        ),
    ],
    ids=["class", "re-export", "star", "derived", "function", "classmethod", "variable", "copy"],
)
def test_what_is_torchs_is_changed(tmp_path: Path, files: dict[str, str], after: str) -> None:
    text, result = converted(project(tmp_path / "in", files), "train.py")
    assert text.replace("import torch_npu\n", "") == after
    assert left(result) == []


def test_the_user_may_say_what_unknown_libraries_make(tmp_path: Path) -> None:
    folder = project(tmp_path / "in", {"train": "import unknownlib\nnet = unknownlib.Net().cuda()\n", "other": ""})
    _, result = converted(folder, "train.py")
    assert [finding.evidence.get("offer") for finding in result.findings] == ["npu"]
    assert result.data["summary"].decisions == 1
    text, result = converted(folder, "train.py", Extras(assume_modules=True))
    assert "net = unknownlib.Net().npu()" in text
    assert left(result) == []


def test_a_class_of_an_installed_library_is_known_by_its_bases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = project(
        tmp_path / "site-packages",
        {
            "newlib/__init__": "raise SystemExit('it is never imported')\nfrom .nets import Net, Graph\n",
            "newlib/nets": NET + "class Graph:\n    def cuda(self):\n        return self\n",
        },
    )
    monkeypatch.syspath_prepend(str(site))
    before = "import newlib\na = newlib.Net().cuda()\nb = newlib.Graph().cuda()\n"
    text, _ = converted(project(tmp_path / "in", {"train": before}), "train.py")
    assert text == "import torch_npu\n" + before.replace("Net().cuda", "Net().npu")
    assert "newlib" not in sys.modules


def test_one_file_alone_is_seen_beside_its_neighbours(tmp_path: Path) -> None:
    folder = project(tmp_path, {"model": NET, "train": "from model import Net\nnet = Net().cuda()\n"})
    result = preview_tree(folder / "train.py")
    assert "+net = Net().npu()" in result.data["diff"]


def test_modules_that_import_each_other_end(tmp_path: Path) -> None:
    files = {
        "a": "from b import *\nfrom b import x\ndef f():\n    return x()\n",
        "b": "from a import *\nfrom a import f as x\n",
        "train": "from a import f, missing\nf().cuda()\nmissing().cuda()\n",
    }
    text, _ = converted(project(tmp_path / "in", files), "train.py")
    assert "f().npu()" in text
