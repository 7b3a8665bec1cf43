"""`torchport convert --distributed`: the whole way, with its launcher, and as other tools are called."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from counting import grows_with

from torchport.cli import main
from torchport.convert import Extras, convert_tree, preview_tree
from torchport.findings import Edit, Result, Severity
from torchport.rules import Style
from torchport.source.edits import compose_edits, find_origin_offset, splice

SCRIPT = """\
import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader

class Net(nn.Module):
    pass

def train(loader, model, optimizer):
    for x in loader:
        loss = model(x.cuda(0))
        loss.backward()
        optimizer.step()

def evaluate(loader, model):
    for x in loader:
        model(x.cuda(0))

def main():
    train_loader = DataLoader(train_set, batch_size=64, shuffle=True)
    test_loader = DataLoader(test_set, batch_size=64)
    model = Net().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        train(train_loader, model, optimizer)
        evaluate(test_loader, model)
        print(epoch)
        torch.save(model.state_dict(), "model.pt")

if __name__ == "__main__":
    main()
"""
LINES = (
    'LOCAL_RANK = int(os.environ.get("LOCAL_RANK", 0))',
    "x.npu())",
    "DataLoader(train_set, batch_size=64, sampler=torch.utils.data.distributed.DistributedSampler(train_set))",
    "test_loader = DataLoader(test_set, batch_size=64)\n",
    "    model = Net().npu()\n    model = torch.nn.parallel.DistributedDataParallel(model, "
    "device_ids=[torch.npu.current_device()])\n",
    "        train_loader.sampler.set_epoch(epoch)\n",
    '        if IS_MAIN:\n            print(epoch)\n            torch.save(model.module.state_dict(), "model.pt")\n',
    '    torch.npu.set_device(LOCAL_RANK)\n    torch.distributed.init_process_group("hccl")\n    main()\n',
)


def project(folder: Path, name: str = "train.py", text: str = SCRIPT) -> Path:
    (folder / "proj").mkdir(exist_ok=True)
    (folder / "proj" / name).write_text(text)
    return folder / "proj"


def test_the_whole_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = project(tmp_path)
    out = tmp_path / "out"
    assert main(["convert", str(root), "-o", str(out), "--distributed", "--main", "train.py"]) == 0
    text = (out / "train.py").read_text()
    for line in LINES:
        assert line in text, text
    assert "Divide it by N" in capsys.readouterr().out
    again = preview_tree(out, extras=Extras("train.py"))
    assert again.data["changed"] == []
    assert [finding.code for finding in again.findings if finding.code == "TP210"] == ["TP210"]
    places = Result.read(out / ".torchport" / "convert.json").findings
    lines = SCRIPT.splitlines()
    (saved,) = [one.location for one in places if "state_dict" in one.message]
    assert saved is not None
    assert lines[saved.line - 1][saved.column - 1 : saved.end_column - 1] == "model.state_dict"
    moved = [one.location.line for one in places if one.code == "TP120" and one.location]
    assert [lines[line - 1].count(".cuda") for line in moved] == [1] * 3


def test_the_script_alone_is_its_own_main(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = project(tmp_path) / "train.py"
    monkeypatch.chdir(tmp_path)
    for number, main_ in enumerate(["train.py", "proj/train.py", str(script)]):
        out = f"out{number}"
        assert main(["convert", "proj/train.py", "-o", out, "-q", "--distributed", "--main", main_]) == 0
        assert "DistributedSampler" in (tmp_path / out / "train.py").read_text()


def test_agnostic_style_runs_on_cuda_still(tmp_path: Path) -> None:
    diff = preview_tree(project(tmp_path), Style.AGNOSTIC, Extras("train.py")).data["diff"]
    assert "get_default_backend_for_device(ACCELERATOR)" in diff
    assert "npu" not in "".join(line for line in diff.splitlines() if line.startswith("+") and "#" not in line)


def test_the_launcher_runs_as_written(tmp_path: Path) -> None:
    root = project(tmp_path, "my train.py")
    out = tmp_path / "out dir"
    main(["convert", str(root), "-o", str(out), "-q", "--distributed", "--main", "my train.py"])
    launcher = out / "run_distributed_npu.sh"
    assert subprocess.run(["bash", "-n", str(launcher)], check=False).returncode == 0
    stub = tmp_path / "bin" / "torchrun"
    stub.parent.mkdir()
    # Through a shell: a first line with the interpreter's path would end at a blank in it.
    code = "import json, os, sys; print(json.dumps([os.getcwd(), *sys.argv[1:]]))"
    stub.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c {shlex.quote(code)} "$@"\n')
    stub.chmod(0o755)
    names = ("NPROC_PER_NODE", "NNODES", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT", "ASCEND_RT_VISIBLE_DEVICES")
    clean = {key: value for key, value in os.environ.items() if key not in names}
    clean["PATH"] = f"{stub.parent}:{clean['PATH']}"

    def launch(**more: str) -> subprocess.CompletedProcess[str]:
        command = [str(launcher), "--epochs", "a b"]
        return subprocess.run(command, env={**clean, **more}, capture_output=True, text=True, cwd="/", check=False)

    where, *words = json.loads(launch(ASCEND_RT_VISIBLE_DEVICES="0,1,5").stdout)
    assert where == str(out)
    assert "--nproc_per_node=3" in words
    assert words[-3:] == ["./my train.py", "--epochs", "a b"]
    words = json.loads(launch(NPROC_PER_NODE="8", NNODES="2", NODE_RANK="1", MASTER_ADDR="10.0.0.1").stdout)
    assert {"--nproc_per_node=8", "--nnodes=2", "--node_rank=1", "--master_addr=10.0.0.1"} <= set(words)
    if list(Path("/dev").glob("davinci[0-9]*")):
        return  # what is asked where there is no such file cannot be seen here
    asked = tmp_path / "bin" / "python"
    for answer, count in (("exit 1", 0), ("echo 0", 0), ("echo text; echo 4", 4)):
        asked.write_text(f"#!/bin/sh\necho of no interest >&2\n{answer}\n")
        asked.chmod(0o755)
        ended = launch()
        if count:
            assert f"--nproc_per_node={count}" in json.loads(ended.stdout)
        else:
            assert (ended.returncode, ended.stdout) == (2, "") and "set NPROC_PER_NODE" in ended.stderr


DATA = """\
from torch.utils.data import DataLoader

def make(batch, names=("train", "test")):
    sets = {name: load(name) for name in names}
    train = DataLoader(sets["train"], batch, shuffle=True)
    test = DataLoader(load("test"), batch, shuffle=False)
    return train, test
"""
MAIN = """\
{future}import torch
{imported}

model = torch.nn.Linear(2, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
first, second = {made}(8)
for epoch in range(3):
    for x in first:
        model(x.cuda()).sum().backward()
        optimizer.step()
    for x in second:
        model(x.cuda())
"""
SHARED = (
    'train = DataLoader(train_data := sets["train"], batch, shuffle=not torch.distributed.is_initialized(), '
    "sampler=torch.utils.data.distributed.DistributedSampler(train_data) "
    "if torch.distributed.is_initialized() else None)"
)


@pytest.mark.parametrize(
    ("future", "imported", "made", "place"),
    [
        ("", "from data import make", "make", "data.py"),
        ("from __future__ import annotations\n", "import data", "data.make", "data.py"),
        ("", "import data as d", "d.make", "data.py"),
        ("", "from lib import (\n    make,\n)", "make", "lib/loaders.py"),
    ],
)
def test_loaders_of_other_files_are_followed(tmp_path: Path, future: str, imported: str, made: str, place: str) -> None:
    root = project(tmp_path, "train.py", MAIN.format(future=future, imported=imported, made=made))
    (root / "lib").mkdir()
    (root / "lib" / "__init__.py").write_text("from .loaders import make\n" if "lib" in place else "")
    (root / place).write_text(DATA)
    result = convert_tree(root, tmp_path / "out", Style.NPU, Extras("train.py"))
    text = (tmp_path / "out" / place).read_text()
    assert SHARED in text and "import torch\n" in text and 'load("test"), batch, shuffle=False)' in text
    script = (tmp_path / "out" / "train.py").read_text()
    assert "for epoch in range(3):\n    first.sampler.set_epoch(epoch)\n" in script and imported in script
    assert [one.code for one in result.findings if one.severity is Severity.WARNING] == []
    (made_at,) = [one.location for one in result.findings if one.code == "TP211" and one.fix]
    assert made_at is not None and (made_at.path, made_at.line) == (place, 5)


@pytest.mark.parametrize(
    ("data", "main_file"),
    [
        (
            DATA + "loader, _ = make(8)\nepoch = 3\n",
            MAIN.format(future="", imported="from data import make", made="make"),
        ),
        (DATA, MAIN.format(future="", imported="from data import make as build", made="build")),
        (DATA, MAIN.format(future="", imported="from data import *", made="make")),
        (
            "from torch.utils.data import DataLoader\nfirst, second = DataLoader(a), DataLoader(b)\n\ndef f(): pass\n",
            MAIN.format(future="", imported="from data import first, second", made="f").replace(
                "first, second = f(8)\n", ""
            ),
        ),
        (
            DATA.replace("return train, test", "return pick(train, test)"),
            MAIN.format(future="", imported="from data import make", made="make"),
        ),
    ],
)
def test_loaders_of_other_files_are_asked_about(tmp_path: Path, data: str, main_file: str) -> None:
    root = project(tmp_path, "train.py", main_file)
    (root / "data.py").write_text(data)
    found = preview_tree(root, extras=Extras("train.py")).findings
    asked = [one for one in found if one.code == "TP211" and one.location and one.location.path == "data.py"]
    assert asked and not [one for one in asked if one.fix]
    assert {one.severity for one in asked} == {Severity.WARNING}


def test_loaders_of_other_files_are_reported(tmp_path: Path) -> None:
    root = project(tmp_path)
    project(tmp_path, "data.py", "from torch.utils.data import DataLoader\nloader = DataLoader(d)\n")
    found = preview_tree(root, extras=Extras("train.py")).findings
    (other,) = [one for one in found if one.location and one.location.path == "data.py"]
    assert (other.code, other.severity, other.fix) == ("TP211", Severity.WARNING, ())


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-o", "out", "--distributed"], "--main"),
        (["-o", "out", "--distributed", "--main", "none.py"], "none.py is no Python file"),
        (["-o", "out", "--main", "train.py"], "belong to --distributed"),
        (["--write", "--distributed", "--main", "train.py"], "-o FOLDER"),
        (["more", "-o", "out"], "one path too many"),
    ],
)
def test_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], says: str) -> None:
    assert main(["convert", str(project(tmp_path)), *words]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("word", ["distributed", None])
def test_options_of_other_tools(tmp_path: Path, word: str | None) -> None:
    root = project(tmp_path)
    more = [word, "-m", str(root / "train.py"), "-t", "model"] if word else []
    code = main(["convert", "-i", str(root), "-o", str(tmp_path / "out"), "-v", "2.8.0", "-s", "-sim", "-q", *more])
    assert code == 0
    folder = tmp_path / "out" / ("proj_msft_multi" if word else "proj_msft")
    names = {path.name for path in folder.iterdir()}
    assert main(["convert", "-i", str(root.rename(tmp_path / "proj.v2")), "-o", str(tmp_path / "out"), "-q"]) == 0
    assert (tmp_path / "out" / "proj.v2_msft" / "train.py").is_file()
    assert {"train.py", "change_list.csv", "unsupported_api.csv", "msFmkTranspltlog.txt"} <= names
    assert ("run_distributed_npu.sh" in names) == bool(word)


def test_the_work_for_many_edits_grows_with_their_number() -> None:
    """Each look at one of 20,000 edits took a look at all others: minutes."""

    def added_up(count: int) -> None:
        data = b"ab" * count
        first = tuple(Edit(2 * i, 2 * i + 1, b"xy") for i in range(count))
        second = tuple(Edit(3 * i + 1, 3 * i + 2, b"") for i in range(count))
        assert splice(data, compose_edits(data, first, second)) == b"xb" * count

    added_up(20_000)
    assert grows_with(lambda: added_up(500), lambda: added_up(2_000), 4)


def test_stages_add_up() -> None:
    data = b"0123456789"
    first = (Edit(2, 4, b"abc"), Edit(6, 6, b"X"), Edit(8, 10, b""))
    middle = splice(data, first)
    for start in range(len(middle) + 1):
        for end in range(start, len(middle) + 1):
            second = (Edit(start, end, b"__"),)
            assert splice(data, compose_edits(data, first, second)) == splice(middle, second), (start, end)
    assert [find_origin_offset(data, first, place) for place in (0, 2, 4, 5, 7, 8)] == [0, 2, 2, 4, 6, 6]
