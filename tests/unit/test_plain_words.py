"""The word "cuda" where it is no device: a note, not a decision; and where it may be one: a decision."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchport.cli import main
from torchport.convert import convert_source, preview_tree
from torchport.convert.project import for_people
from torchport.findings import Severity


def words(text: str) -> list[str]:
    """The severities of the findings on words without an edit."""
    found = convert_source(text.encode(), "a.py").findings
    return [one.severity.value for one in found if one.code == "TP110" and not one.fix]


@pytest.mark.parametrize(
    "text",
    [
        "DEVICE = 'cuda'\n",
        "from x import move\nmove(y, 'cuda')\n",
        "kinds = ['cpu', 'cuda']\n",
        "stats = {'cuda': 0, 'cpu': 0}\n",
        "flags = {'cuda': True, 'cpu': False}\n",
        "import pytest\n@pytest.mark.parametrize('where', ['cuda'])\ndef test(where):\n    run(where)\n",
        "def f(x):\n    return 'cuda' in x\n",
        "def f(kind):\n    if kind == 'cuda':\n        return 1\n    return 2 if kind == 'cpu' else 3\n",
        "def f(x, kind):\n    yield kind or 'cuda'\n",
        "pool.alloc(4, 'cuda')\n",
        "x = {'cuda': 3}\n",
        "assert 'cuda'\n",
        "setattr(torch, 'is_cuda', 'cuda')\n",
        "log('cuda')\n",
    ],
)
def test_what_may_be_a_device_is_a_decision(text: str) -> None:
    assert words(text) == ["warning"] * len(words(text)) != []


@pytest.mark.parametrize(
    "text",
    [
        "assert ok, 'cuda'\n",
        "raise RuntimeError('cuda')\n",
        "e = ExceptionGroup('cuda', errors)\n",
        "kw = {'cuda': True}\n",
        "kw = {'cuda': make()}\nf(**kw)\n",
        "LABELS = ['cuda', 'opencl', 'triton']\n",
        "p.add_argument('--impl', choices=['cuda', 'triton'], default='cuda')\n",
        "p.add_argument('--impl', choices=['cuda', 'triton'])\nif p.parse_args().impl == 'cuda':\n    pass\n",
        "def f(kind):\n    if kind == 'cuda':\n        return 1\n    return 2 if kind == 'reference' else 3\n",
        "import pytest\npytest.param(1, id='cuda')\n",
        "import pytest\n@pytest.mark.needs('cuda')\ndef test():\n    pass\n",
        "print('cuda')\nlogger.info('cuda')\n",
        "import os\nfolder = os.path.join('csrc', 'cuda')\n",
        "p.add_argument('cuda')\n",
        "__all__ = ['cuda']\n",
        "monkeypatch.setattr(m, 'cuda', 1)\n",
        "plt.plot(x, label='cuda')\n",
    ],
)
def test_what_is_none_is_a_note(text: str) -> None:
    assert words(text) == ["info"] * len(words(text)) != []


def test_notes_do_not_fail_a_conversion(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "a.py"
    script.write_text("DEVICE = 'cuda'\n")
    assert main(["convert", str(script), "--diff"]) == 1  # first: what does fail one
    script.write_text("LABELS = ['cuda', 'triton']\n")
    capsys.readouterr()
    assert main(["convert", str(script), "--diff"]) == 0
    assert "TP110" not in capsys.readouterr().err
    assert main(["convert", str(script), "--diff", "--verbose"]) == 0
    assert "'cuda' is no device here: one of several names" in capsys.readouterr().err
    assert main(["analyze", str(script), "-v"]) == 0
    assert "'cuda' is no device here" in capsys.readouterr().out


def plain(folder: Path, **files: str) -> list[bool]:
    """For each finding on a word of a.py, whether it is a note."""
    folder.mkdir()
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    found = [one for one in preview_tree(folder).findings if one.location and one.location.path == "a.py"]
    return [one.severity is Severity.INFO for one in found if one.code == "TP110"]


def test_a_script_of_which_nothing_reaches_torch_has_no_devices(tmp_path: Path) -> None:
    table = "import math\ntimes = {'cuda': 1.5, 'cpu': 2.0}\nprint(times)\n"
    assert plain(tmp_path / "script", a=table) == [True]
    assert plain(tmp_path / "settings", a="times = {'cuda': 1.5, 'cpu': 2.0}\n") == [False]
    assert plain(tmp_path / "imported", a=table, b="import a\n") == [False]
    assert plain(tmp_path / "importing", a=f"import b\n{table}", b="import torch\n") == [False]
    assert plain(tmp_path / "starting", a=f"import subprocess\n{table}") == [False]
    assert plain(tmp_path / "writing", a=f"{table}open('x', 'w').write(str(times))\n") == [False]


def test_the_same_note_is_said_once_with_a_count(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.sh").write_text("export NCCL_IB_DISABLE=1\n" * 2)
    (tmp_path / "c.sh").write_text("export CUDA_MODULE_LOADING=LAZY\n" * 3)
    found = preview_tree(tmp_path).findings
    assert len(found) == 7
    once = for_people(found)
    assert [one.message.partition(" (and")[2] for one in once] == [" in 1 more file)", " at 2 more places)"]
    assert for_people(found, all_=True) == found


def severities(text: str) -> list[Severity]:
    return [one.severity for one in convert_source(text.encode(), "a.py").findings if one.code == "TP202"]


@pytest.mark.parametrize(
    "text",
    [
        "import torch\nm = torch.nn.DataParallel(m)\n",
        "import torch\nm = torch.nn.DataParallel(m, device_ids=[0, 1])\n",
        "import torch\nif verbose:\n    m = torch.nn.DataParallel(m)\n",
        "from torch.nn.parallel import replicate\nr = replicate(m, devices)\n",
        "from torch.nn.parallel.scatter_gather import scatter\nr = scatter(x, devices)\n",
        "import torch\nr = torch.nn.parallel.gather(xs, 0)\n",
        "import torch\ny = torch.nn.parallel.data_parallel(m, x)\n",
    ],
)
def test_several_devices_in_one_process_is_a_decision(text: str) -> None:
    assert severities(text) == [Severity.WARNING]


@pytest.mark.parametrize(
    "text",
    [
        "import torch\nif torch.cuda.device_count() > 1:\n    m = torch.nn.DataParallel(m)\n",
        "import torch\nm = torch.nn.DataParallel(m) if args.multi_gpu else m\n",
        "import torch\nif len(gpus) > 1:\n    m = torch.nn.DataParallel(m, device_ids=gpus)\n",
        "import torch\nm = torch.nn.DataParallel(m, device_ids=[0])\n",
    ],
)
def test_data_parallel_that_one_device_does_not_come_to_is_a_note(text: str) -> None:
    assert severities(text) == [Severity.INFO]
