"""Nothing is written through a link of a view, and what is written elsewhere is remembered."""

import json
import os
import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path

import pytest

from torchport.port.mirror import Budget
from torchport.port.view import View
from torchport.record import links
from torchport.record.writes import read_report
from torchport.results.port import WrittenFile

PRELUDE = """
import json, os, sys
from pathlib import Path
from torchport.record import writes as room
room.SYSTEM = ("/dev", "/proc", "/sys")  # the folders of these tests lie below /tmp
writes = room.guard_writes(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
"""


@pytest.fixture
def view(tmp_path: Path) -> View:
    """A view of which everything is a link."""
    folder = tmp_path / "folder"
    (folder / "data" / "deep").mkdir(parents=True)
    for name in ("a.dat", "b.dat", "data/c.dat", "data/deep/d.dat"):
        (folder / name).write_text("old")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "e.dat").write_text("old")
    (folder / "users").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "out").mkdir()
    made = View.from_folder(
        folder, tmp_path / "out" / "view", tmp_path / "out", budget=Budget(entries=5, files=0, clones=False)
    )
    assert all((made.place / name).is_symlink() for name in ("a.dat", "b.dat", "data", "users"))
    return made


def originals(view: View) -> dict[str, str]:
    roots = (view.folder, view.folder.parent / "elsewhere")
    return {
        str(path.relative_to(root)): path.read_text() for root in roots for path in root.rglob("*") if path.is_file()
    }


def run(view: View, code: str, **environment: str) -> str:
    """What a guarded process that works in the view prints."""
    report = view.place.parent / "outside.jsonl"
    run = subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(code), view.place, view.folder, report],
        cwd=view.place,
        env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("open('a.dat', 'w').write('new!')", [WrittenFile("a.dat", "changed", 4)]),
        ("open('a.dat', 'a').write('!')", [WrittenFile("a.dat", "changed", 4)]),
        ("open('a.dat', 'r+').write('N')", [WrittenFile("a.dat", "changed", 3)]),
        ("open(b'a.dat', 'ab').write(b'!')", [WrittenFile("a.dat", "changed", 4)]),
        ("open('a.dat', 'r+')", []),
        ("assert open('a.dat').read() == 'old'", []),
        ("os.truncate('a.dat', 1)", [WrittenFile("a.dat", "changed", 1)]),
        ("os.chmod('a.dat', 0o600)", []),
        ("os.remove('a.dat')", [WrittenFile("a.dat", "removed")]),
        ("os.rename('a.dat', 'z')", [WrittenFile("a.dat", "removed"), WrittenFile("z", "created")]),
        ("Path('t').write_text('new!'); os.replace('t', 'a.dat')", [WrittenFile("a.dat", "changed", 4)]),
        ("os.link('a.dat', 'z'); open('z', 'w').write('n')", None),
        ("open('data/c.dat', 'w').write('new!')", [WrittenFile("data/c.dat", "changed", 4)]),
        ("open('data/deep/d.dat', 'a').write('!')", [WrittenFile("data/deep/d.dat", "changed", 4)]),
        ("open('data/new', 'x').write('!')", [WrittenFile("data/new", "created", 1)]),
        ("os.makedirs('data/deep', exist_ok=True)", []),
        ("os.makedirs('data/m/n'); open('data/m/n/o', 'w')", [WrittenFile("data/m/n/o", "created")]),
        ("os.remove('data/c.dat')", [WrittenFile("data/c.dat", "removed")]),
        ("import shutil; shutil.rmtree('data')", [WrittenFile("data", "removed")]),
        ("open('users/e.dat', 'w').write('new!')", [WrittenFile("users/e.dat", "changed", 4)]),
        ("open('users/resume.pt', 'w').write('new!')", [WrittenFile("users/resume.pt", "created", 4)]),
        ("open(os.path.abspath('data/c.dat'), 'w')", [WrittenFile("data/c.dat", "changed")]),
        ("f = os.open('.', os.O_RDONLY); os.remove('a.dat', dir_fd=f)", [WrittenFile("a.dat", "removed")]),
        (
            "d = os.fork()\nif not d: open('b.dat', 'w').write('child'); os._exit(0)\nos.waitpid(d, 0)",
            [WrittenFile("b.dat", "changed", 5)],
        ),
        ("open('data/../made', 'w').write('x')", [WrittenFile("made", "created", 1)]),
        ("open('data/deep/../../a.dat', 'w')", [WrittenFile("a.dat", "changed")]),
        ("os.chdir('data/deep'); open('d.dat', 'w')", [WrittenFile("data/deep/d.dat", "changed")]),
        (
            "import subprocess; subprocess.run('echo x > new', shell=True, cwd='data')",
            [WrittenFile("data/new", "created", 2)],
        ),
        (
            "os.symlink('..', '../alias'); open('../alias/out/view/data/c.dat', 'w')",
            [WrittenFile("data/c.dat", "changed")],
        ),
        ("import sqlite3; sqlite3.connect('data/x.db').execute('create table t(a)')", None),
    ],
)
def test_nothing_goes_through_a_link(view: View, code: str, expected: list[WrittenFile] | None) -> None:
    before = originals(view)
    run(view, code)
    assert originals(view) == before
    assert view.changed_outside() == []
    if expected is not None:
        assert view.list_written() == expected
    assert view.list_written() or expected == []
    assert [path.name for path in view.place.parent.iterdir() if path.name.startswith("view.")] == []


def test_without_the_guard_the_original_is_changed(view: View) -> None:
    """What the tests above rely on."""
    (view.place / "a.dat").write_text("new!")
    assert originals(view)["a.dat"] == "new!"
    assert view.changed_outside() == [str(view.folder / "a.dat")]


@pytest.mark.processes
def test_libraries_that_open_files_in_c(view: View) -> None:
    if find_spec("torch") is None or find_spec("h5py") is None:
        pytest.skip("torch or h5py is not installed")
    before = originals(view)
    code = """
        import torch, h5py
        torch.save({"a": torch.ones(2)}, "a.dat")
        torch.save({"a": torch.ones(2)}, "data/model.pt")
        torch.jit.script(torch.nn.Linear(1, 1)).save("data/c.dat")
        torch.from_file("data/deep/d.dat", shared=True, size=9, dtype=torch.uint8).fill_(1)
        with h5py.File("b.dat", "w") as file:
            file["x"] = 1
        with torch.profiler.profile() as p:
            torch.ones(1) + 1
        p.export_chrome_trace("users/trace.json")
        print(torch.load("data/model.pt")["a"].tolist())
    """
    assert run(view, code).endswith("[1.0, 1.0]\n")
    assert originals(view) == before
    assert [row.path for row in view.list_written()] == [
        *("a.dat", "b.dat", "data/c.dat", "data/deep/d.dat", "data/model.pt", "users/trace.json")
    ]


def test_files_outside_are_remembered(view: View) -> None:
    target = view.folder / "result.txt"
    code = f"""
        import tempfile
        open({str(target)!r}, "w").write("x")
        open("inside.txt", "w")
        os.makedirs(os.path.expanduser("~/.cache/x"))
        open(os.path.expanduser("~/.cache/x/y"), "w")
        open(os.path.expanduser("~/kept"), "w")
        open(os.path.expanduser("~/gone"), "w"); os.remove(os.path.expanduser("~/gone"))
        tempfile.TemporaryFile().write(b"")
        open(os.devnull, "w").write("x")
        open({str(view.place.parent / "journal")!r}, "w")
        open({str(view.folder / "a.dat")!r}).read()
        os.remove({str(view.folder / "b.dat")!r})
        print(json.dumps(writes.list_outside_files()))
    """
    home = view.folder.parent / "home"
    home.mkdir()
    temporary = view.folder.parent / "tmp"
    temporary.mkdir()
    expected = [str(view.folder / "b.dat"), str(target)]
    said = json.loads(run(view, code, HOME=str(home), TMPDIR=str(temporary)))
    assert said == sorted([*expected, str(home / "kept")])
    assert read_report(view.place.parent / "outside.jsonl") == said
    assert read_report(view.place.parent / "no such file") == []


def test_the_users_folder_is_not_a_temporary_one(view: View) -> None:
    """Even where it lies below one."""
    other = view.folder / "made"
    beside = view.folder.parent / "beside"
    code = f"open({str(other)!r}, 'w'); open({str(beside)!r}, 'a'); print(json.dumps(writes.list_outside_files()))"
    assert json.loads(run(view, code, TMPDIR=str(view.folder.parent))) == [str(other)]
    assert json.loads(run(view, code, TMPDIR=str(view.folder))) == [str(beside), str(other)]


def test_a_link_that_another_rank_has_just_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    view, data = tmp_path / "view", tmp_path / "data"
    view.mkdir()
    data.write_text("before")
    (view / "log").symlink_to(data)
    read = os.readlink

    def late(path: str) -> str:
        (view / "log").unlink()
        (view / "log").write_text("copied")
        return read(path)

    monkeypatch.setattr(os, "readlink", late)
    links.replace_links(str(view), str(view / "log"))
    assert (view / "log").read_text() == "copied" and data.read_text() == "before"


def test_ranks_that_open_one_log_lose_no_line(view: View) -> None:
    code = """
        children = []
        for rank in range(8):
            child = os.fork()
            if not child:
                with open("data/c.dat", "a") as log:
                    log.write(f"{rank}\\n")
                os._exit(0)
            children.append(child)
        assert [os.waitpid(child, 0)[1] for child in children] == [0] * 8
    """
    run(view, code)
    log = (view.place / "data" / "c.dat").read_text()
    assert log.startswith("old") and sorted(log.removeprefix("old").split()) == [str(rank) for rank in range(8)]
    assert originals(view)["data/c.dat"] == "old"


def test_a_write_that_cannot_be_kept_apart_does_not_happen(view: View, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(links, "_copy", full)
    with pytest.raises(OSError, match="No space left"):
        links.replace_links(str(view.place), str(view.place / "a.dat"))
    assert (view.place / "a.dat").is_symlink()
    assert sorted(path.name for path in view.place.parent.iterdir()) == ["view"]


def test_what_is_not_in_the_view_is_left_alone(view: View, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(view.folder)
    links.replace_links(str(view.place), str(link))
    assert link.is_symlink()
    (view.place / "loop").symlink_to("loop")
    links.replace_links(str(view.place), str(view.place / "loop"))
    (view.place / "null").symlink_to(os.devnull)
    links.replace_links(str(view.place), str(view.place / "null"))
    assert os.readlink(view.place / "null") == os.devnull
