"""An output folder that somebody has edited: nothing of theirs is overwritten without being asked."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from torchport.cli import main
from torchport.convert import convert_tree
from torchport.errors import TorchportError
from torchport.rules import Style

SCRIPT = "import torch\nx = torch.ones(2).cuda()\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    source = tmp_path / "in"
    (source / "pkg").mkdir(parents=True)
    (source / "train.py").write_text(SCRIPT)
    (source / "pkg" / "model.py").write_text(SCRIPT)
    (source / "data.txt").write_text("1 2 3\n")
    (source / "link.txt").symlink_to("data.txt")
    convert_tree(source, tmp_path / "out")
    return source


LIMITED = """
import resource, sys
from torchport.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
sys.exit(main(sys.argv[2:]))
"""


def full(room: int, *words: object) -> subprocess.CompletedProcess[str]:
    """`torchport` where no file becomes larger than `room` bytes: writes then fail half-way, as on a full disk."""
    command = [sys.executable, "-c", LIMITED, str(room), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("name", "room"), [("data.bin", 50_000), ("large.py", 50_000)])
def test_a_full_disk_names_the_file_and_leaves_what_was(project: Path, name: str, room: int) -> None:
    out, other = project.parent / "out", project.parent / "other"
    before = contents(out)
    (project / name).write_text(SCRIPT + "# 0123456789\n" * 10_000)
    (project / "data.txt").write_text("5\n")
    for target in (out, other):
        ended = full(room, "convert", project, "-o", target)
        assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
        assert f"cannot write {target / name}: File too large" in ended.stderr
    assert not other.exists()
    assert contents(out) == before
    assert full(10**6, "convert", project, "-o", other).returncode == 0
    assert full(10**6, "convert", project, "-o", out).returncode == 0
    assert (out / "data.txt").read_text() == "5\n"
    assert sorted(path.name for path in (out / ".torchport").iterdir()) == ["convert.json", "written.json"]


def test_a_file_that_cannot_be_read_is_not_called_unwritable(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = shutil.copy2

    def gone(source: Path, target: Path) -> None:
        (project / "data.txt").unlink(missing_ok=True)
        real(source, target)

    monkeypatch.setattr(shutil, "copy2", gone)
    (project / "aaa.txt").write_text("1")  # comes before it
    with pytest.raises(TorchportError, match=r"cannot read .*in/data\.txt: No such file"):
        convert_tree(project, project.parent / "new")
    assert not (project.parent / "new").exists()


def contents(folder: Path) -> dict[str, str | bytes]:
    return {
        path.relative_to(folder).as_posix(): os.readlink(path) if path.is_symlink() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def test_what_nobody_has_touched_is_written_again(project: Path) -> None:
    out = project.parent / "out"
    before = contents(out)
    convert_tree(project, out)
    assert contents(out) == before
    (project / "train.py").write_text("import torch\ny = torch.ones(3).cuda()\n")
    (project / "data.txt").write_text("4\n")
    convert_tree(project, out)
    assert "y = torch.ones(3).npu()" in (out / "train.py").read_text()
    assert (out / "data.txt").read_text() == "4\n"


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda out: (out / "train.py").write_text("mine\n"), "train.py (edited)"),
        (lambda out: (out / "data.txt").write_text("mine\n"), "data.txt (edited)"),
        (lambda out: (out / "pkg" / "model.py").unlink(), "pkg/model.py (deleted)"),
        (lambda out: (out / "link.txt").unlink(), "link.txt (deleted)"),
        (lambda out: (out / "new.py").write_text("mine\n"), "new.py (not torchport's)"),
    ],
)
def test_an_edited_tree_is_refused(project: Path, edit, said: str) -> None:
    out = project.parent / "out"
    (project / "new.py").write_text(SCRIPT)  # what a later version of the project brings
    (project / "first.py").write_text(SCRIPT)
    edit(out)
    before = contents(out)
    with pytest.raises(TorchportError) as error:
        convert_tree(project, out)
    assert error.value.message.endswith(f"nothing was written: {said}")
    assert error.value.exit_code == 2
    assert "--force" in error.value.hint
    assert contents(out) == before
    convert_tree(project, out, force=True)
    assert "npu" in (out / "train.py").read_text()
    assert (out / "link.txt").is_symlink()
    convert_tree(project, out)


def test_files_that_a_run_left_are_nobodys_edits(project: Path) -> None:
    out = project.parent / "out"
    (out / "model.pt").write_bytes(b"weights")
    convert_tree(project, out)
    assert (out / "model.pt").read_bytes() == b"weights"


def test_a_conversion_that_was_killed_half_way_is_done_again(project: Path, monkeypatch) -> None:
    out = project.parent / "out"
    (project / "train.py").write_text("import torch\ny = torch.ones(3).cuda()\n")
    (project / "pkg" / "model.py").write_text("import torch\ny = torch.ones(4).cuda()\n")
    from torchport.convert import output

    real, calls = output.Planned.write, []

    def write(one, target):
        calls.append(target)
        if len(calls) == 3:
            raise KeyboardInterrupt
        real(one, target)

    monkeypatch.setattr(output.Planned, "write", write)
    with pytest.raises(KeyboardInterrupt):
        convert_tree(project, out)
    monkeypatch.undo()
    convert_tree(project, out)
    assert "torch.ones(4).npu()" in (out / "pkg" / "model.py").read_text()
    (out / "train.py").write_text("mine\n")
    with pytest.raises(TorchportError, match=r"train\.py"):
        convert_tree(project, out)


def test_a_script_is_not_written_over_a_file_of_somebody_else(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "train.py").write_text("mine\n")
    (tmp_path / "train.py").write_text(SCRIPT)
    with pytest.raises(TorchportError, match="not torchport's"):
        convert_tree(tmp_path / "train.py", tmp_path / "out")
    assert contents(tmp_path / "out") == {"train.py": b"mine\n"}


def test_another_style_replaces_what_torchport_wrote(project: Path) -> None:
    out = project.parent / "out"
    convert_tree(project, out, Style.AGNOSTIC)
    assert "ACCELERATOR" in (out / "train.py").read_text()


def test_the_command_line(project: Path, capsys) -> None:
    out = project.parent / "out"
    (out / "train.py").write_text("mine\n")
    assert main(["convert", str(project), "-o", str(out)]) == 2
    said = capsys.readouterr()
    assert "train.py (edited)" in said.err and "--force" in said.err and not said.out
    assert (out / "train.py").read_text() == "mine\n"
    assert main(["convert", str(project), "-o", str(out), "--force"]) == 0
    assert "npu" in (out / "train.py").read_text()


def test_tables_and_the_launcher_are_kept_too(project: Path, capsys) -> None:
    command = ["convert", "-i", str(project), "-o", str(project.parent / "o"), "distributed", "-m", "train.py"]
    main(command)
    (folder,) = (project.parent / "o").iterdir()
    launcher = folder / "run_distributed_npu.sh"
    assert launcher.stat().st_mode & 0o111
    launcher.write_text("mine\n")
    capsys.readouterr()
    assert main(command) == 2
    assert "run_distributed_npu.sh (edited)" in capsys.readouterr().err
    assert json.loads((folder / ".torchport" / "written.json").read_text())["data"]["written"]["change_list.csv"]
