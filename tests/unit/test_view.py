"""Each run has a folder of its own that looks like the user's, and nothing of the user's changes."""

import importlib.util
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from waiting import until

from torchport.errors import TorchportError
from torchport.port import mirror
from torchport.port.lock import lock_folder
from torchport.port.mirror import Budget
from torchport.port.view import View
from torchport.record.session import redirect_editable
from torchport.results.port import WrittenFile


def user_folder(root: Path) -> Path:
    folder = root / "my project"
    (folder / "data").mkdir(parents=True)
    (folder / "empty").mkdir()
    (folder / "train.py").write_text("import model\n")
    (folder / "go.sh").write_text("#!/bin/sh\n")
    (folder / "go.sh").chmod(0o755)
    (folder / "data" / "a.txt").write_text("1\n")
    (folder / "data" / "latest").symlink_to("a.txt")
    (folder / "ckpt.pt").write_bytes(b"old")
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "model.pyc").write_bytes(b"")
    return folder


def make(folder: Path, **options: object) -> View:
    out = folder / "torchport-out"
    (out / "run").mkdir(parents=True, exist_ok=True)
    return View.from_folder(folder, out / "run" / "view", out, **options)  # type: ignore[arg-type]


def snapshot(folder: Path) -> dict[str, object]:
    return {
        str(path.relative_to(folder)): (path.lstat().st_mode, path.read_bytes() if path.is_file() else None)
        for path in sorted(folder.rglob("*"))
        if "torchport-out" not in path.relative_to(folder).parts
    }


def test_a_view_looks_like_the_folder(tmp_path: Path) -> None:
    folder = user_folder(tmp_path)
    view = make(folder)
    expected = snapshot(folder)
    del expected["__pycache__"], expected["__pycache__/model.pyc"]
    assert snapshot(view.place) == expected
    assert (view.place / "go.sh").stat().st_mode & stat.S_IXUSR
    assert view.list_written() == []
    assert view.changed_outside() == []


def test_what_a_run_does_stays_in_its_view(tmp_path: Path) -> None:
    folder = user_folder(tmp_path)
    before = snapshot(folder)
    view = make(folder)
    (view.place / "ckpt.pt").write_bytes(b"new")
    (view.place / "runs" / "1").mkdir(parents=True)
    (view.place / "runs" / "1" / "log.txt").write_text("x")
    (view.place / "go.sh").unlink()
    (view.place / "data" / "latest").write_text("2\n")  # through the user's own link, to data/a.txt
    (view.place / "__pycache__").mkdir()
    (view.place / "__pycache__" / "a.pyc").write_bytes(b"")
    (view.place / "newest").symlink_to(view.place / "runs" / "1")
    assert view.list_written() == [
        WrittenFile("ckpt.pt", "changed", 3),
        WrittenFile("data/a.txt", "changed", 2),
        WrittenFile("go.sh", "removed"),
        WrittenFile("newest", "created"),
        WrittenFile("runs/1/log.txt", "created", 1),
    ]
    files = folder / "torchport-out" / "run" / "files"
    view.keep_written(files)
    assert not view.place.exists()
    assert {str(path.relative_to(files)) for path in files.rglob("*") if path.is_file()} == {
        *("ckpt.pt", "data/a.txt", "runs/1/log.txt")
    }
    assert (files / "newest" / "log.txt").read_text() == "x"
    assert snapshot(folder) == before


def test_two_runs_do_not_meet(tmp_path: Path) -> None:
    folder = user_folder(tmp_path)
    out = folder / "torchport-out"
    out.mkdir()
    views = [View.from_folder(folder, out / name, out) for name in ("reference", "npu")]
    (views[0].place / "resume.pt").write_bytes(b"")
    (views[0].place / "ckpt.pt").write_bytes(b"of the first")
    assert (views[1].place / "ckpt.pt").read_bytes() == b"old"
    assert views[1].list_written() == []


def test_converted_files_stand_in_the_places_of_the_originals(tmp_path: Path) -> None:
    folder = user_folder(tmp_path)
    outside = tmp_path / "library"
    (outside / "deep").mkdir(parents=True)
    (outside / "deep" / "x.py").write_text("theirs")
    (folder / "library").symlink_to(outside)
    (folder / ".hidden").mkdir()
    (folder / ".hidden" / "y.py").write_text("mine")
    converted = tmp_path / "converted.py"
    converted.write_text("ported")
    names = ("go.sh", "train.py", "new/sub/z.py", "library/deep/x.py", ".hidden/y.py")
    view = make(folder, replace={Path(name): converted for name in names})
    assert all((view.place / name).read_text() == "ported" for name in names)
    assert (view.place / "go.sh").stat().st_mode & stat.S_IXUSR
    assert (outside / "deep" / "x.py").read_text() == "theirs"
    assert (folder / ".hidden" / "y.py").read_text() == "mine"
    assert view.list_written() == []
    with pytest.raises(TorchportError, match="not in the folder"):
        View.from_folder(folder, tmp_path / "v", tmp_path, {Path("../x.py"): converted})


def test_links_lead_where_they_led(tmp_path: Path) -> None:
    folder = user_folder(tmp_path)
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "d").write_text("shared")
    (folder / "up").symlink_to("../shared")
    (folder / "data" / "root").symlink_to(folder)
    (folder / "data" / "sibling").symlink_to("../go.sh")
    (folder / "broken").symlink_to("nowhere")
    (folder / "loop").symlink_to("loop")
    view = make(folder)
    assert (view.place / "up" / "d").read_text() == "shared"
    assert (view.place / "data" / "root").resolve() == view.place
    assert (view.place / "data" / "sibling").resolve() == view.place / "go.sh"
    assert os.readlink(view.place / "broken") == "nowhere"
    assert os.readlink(view.place / "loop") == "loop"
    assert view.list_written() == []


def test_odd_things_in_a_folder(tmp_path: Path) -> None:
    folder = user_folder(tmp_path)
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(folder / "socket"))
        name = os.fsencode(folder) + b"/caf\xe9 \n.txt"
        Path(os.fsdecode(name)).write_text("bytes")
        (folder / "secret").write_text("x")
        (folder / "secret").chmod(0)
        (folder / "closed").mkdir(mode=0o500)
        view = make(folder)
    assert {"pipe", "socket"}.isdisjoint(os.listdir(view.place))
    assert Path(os.fsdecode(os.fsencode(view.place) + b"/caf\xe9 \n.txt")).read_text() == "bytes"
    assert os.path.lexists(view.place / "secret")
    (view.place / "closed" / "new").write_text("")  # a read-only folder of the user's is not so in the view
    assert view.list_written() == [WrittenFile("closed/new", "created")]
    (view.place / "closed").chmod(0o500)
    view.keep_written(tmp_path / "files")
    assert not view.place.exists()


def test_the_output_folder_is_left_out_wherever_it_is(tmp_path: Path) -> None:
    folder = user_folder(tmp_path)
    out = folder / ".hidden" / "deep" / "out"
    out.mkdir(parents=True)
    (folder / ".hidden" / "deep" / "kept").write_text("")
    (out / "large").write_text("")
    alias = tmp_path / "alias"
    alias.symlink_to(folder)
    view = View.from_folder(alias, alias / ".hidden" / "deep" / "out" / "view", out)
    assert (view.place / ".hidden" / "deep" / "kept").exists()
    assert not (view.place / ".hidden" / "deep" / "out").exists()


def test_the_output_of_other_ports_is_left_out(tmp_path: Path) -> None:
    folder = user_folder(tmp_path)
    other = folder / "torchport-out" / "other"
    (other / "convert").mkdir(parents=True)
    (folder / "torchport-out" / "notes.txt").write_text("")
    (folder / "data" / "convert").mkdir()  # of the user's
    with lock_folder(other):
        pass
    out = folder / "torchport-out" / "train"
    out.mkdir()
    view = View.from_folder(folder, out / "view", out)
    assert os.listdir(view.place / "torchport-out") == ["notes.txt"]
    assert (view.place / "data" / "convert").is_dir()


def test_paths_to_the_view_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = user_folder(tmp_path)
    view = make(folder)
    monkeypatch.chdir(folder)
    assert view.map_into_view(folder / "train.py") == view.place / "train.py"
    assert view.map_into_view(Path("data/a.txt")) == view.place / "data" / "a.txt"
    assert view.map_into_view(folder / "data" / "to come.pt") == view.place / "data" / "to come.pt"
    assert view.map_into_view(folder) == view.place
    assert view.map_into_view(Path("/etc/passwd")) == Path("/etc/passwd")
    assert view.map_into_view(folder / "torchport-out" / "run") == folder / "torchport-out" / "run"
    assert view.restore_paths(f'File "{view.place}/train.py", line 3') == f'File "{folder}/train.py", line 3'
    assert view.restore_paths(f"in {view.place}.") == f"in {folder}."
    assert view.restore_paths(f"{view.place}2/x {view.place}-b") == f"{view.place}2/x {view.place}-b"


def test_a_budget_links_what_is_large_and_copies_code(tmp_path: Path) -> None:
    folder = user_folder(tmp_path)
    (folder / "big.dat").write_bytes(b"x" * 5000)
    budget = Budget(small=1000, clones=False)
    view = make(folder, budget=budget)
    assert (view.place / "big.dat").is_symlink()
    assert not (view.place / "train.py").is_symlink() and not (view.place / "ckpt.pt").is_symlink()
    assert view.list_written() == []


def test_an_overfull_folder_is_linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror, "CROWDED", 20)
    folder = user_folder(tmp_path)
    (folder / "images").mkdir()
    for number in range(21):
        (folder / "images" / f"{number}.png").write_text("")
        (folder / f"{number}.png").write_text("")
    view = make(folder)
    assert (view.place / "images").is_symlink()
    assert (view.place / "3.png").is_symlink()  # the folder itself cannot be
    assert not (view.place / "train.py").is_symlink()


def test_originals_changed_through_links_are_named(tmp_path: Path) -> None:
    folder = user_folder(tmp_path)
    (folder / "pictures").mkdir()
    for name in ("one.png", "two.png"):
        (folder / "pictures" / name).write_text("")
    (folder / "big.dat").write_bytes(b"x" * 100)
    view = make(folder, budget=Budget(small=10, clones=False, entries=6))
    assert (view.place / "pictures").is_symlink()
    assert view.changed_outside() == []
    probe = tmp_path / "probe"
    probe.write_text("")
    made = probe.stat().st_mtime_ns
    until(lambda: probe.write_text("x") and probe.stat().st_mtime_ns > made)  # the file system's clock has ticked
    (view.place / "big.dat").write_bytes(b"y" * 100)  # no guard here
    (view.place / "pictures" / "two.png").write_text("z")
    assert view.changed_outside() == [str(folder / "big.dat"), str(folder / "pictures" / "two.png")]
    (folder / "big.dat").unlink()
    for name in ("one.png", "two.png"):
        (folder / "pictures" / name).unlink()
    assert view.changed_outside() == [str(folder / "big.dat"), str(folder / "pictures")]
    (folder / "pictures").rmdir()
    assert view.changed_outside() == [str(folder / "big.dat"), str(folder / "pictures")]


def test_where_a_run_starts_is_never_a_link(tmp_path: Path) -> None:
    folder = user_folder(tmp_path)
    (folder / ".work" / "deep").mkdir(parents=True)
    (folder / ".work" / "deep" / "x.dat").write_text("1")
    (folder / ".work" / "deep" / "run").write_text("2")
    real = [Path(".work/deep"), Path(".work/deep/run"), Path("data/latest"), Path("not there")]
    view = make(folder, real=real, budget=Budget(entries=0, files=0, clones=False))
    assert (view.place / ".work" / "deep").resolve() == view.place / ".work" / "deep"
    assert not (view.place / ".work" / "deep" / "run").is_symlink()
    assert (view.place / ".work" / "deep" / "x.dat").is_symlink()
    assert not (view.place / "data" / "latest").is_symlink()
    assert view.list_written() == []


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device", "x")])
def test_nothing_is_left_of_a_view_that_was_not_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    folder = user_folder(tmp_path)
    before = snapshot(folder)
    real = mirror.copy_file
    made = []

    def stop(source: str, target: str, clone_only: bool = False) -> tuple[int, ...] | None:
        made.append(target)
        if len(made) == 3:
            raise error
        return real(source, target, clone_only)

    monkeypatch.setattr(mirror, "copy_file", stop)
    with pytest.raises((KeyboardInterrupt, TorchportError)):
        make(folder)
    assert os.listdir(folder / "torchport-out" / "run") == []
    assert snapshot(folder) == before


def test_something_in_the_way_is_not_overwritten(tmp_path: Path) -> None:
    folder = user_folder(tmp_path)
    (tmp_path / "view").mkdir()
    (tmp_path / "view" / "mine").write_text("")
    with pytest.raises(TorchportError, match="already"):
        View.from_folder(folder, tmp_path / "view", tmp_path / "out")
    assert (tmp_path / "view" / "mine").exists()


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=x", "-c", "user.email=x@y", "-c", "safe.directory=*")
    run = subprocess.run(["git", *identity, "-C", str(folder), *words], capture_output=True, text=True, check=True)
    return run.stdout.strip()


@pytest.mark.parametrize("worktree", [False, True])
def test_git_answers_in_a_view_and_writes_only_there(tmp_path: Path, worktree: bool) -> None:
    folder = user_folder(tmp_path)
    git(folder, "init", "-q")
    git(folder, "add", "train.py", "go.sh")
    git(folder, "commit", "-qm", "first")
    if worktree:
        git(folder, "worktree", "add", "-q", str(tmp_path / "tree"))
        folder = tmp_path / "tree"
        assert (folder / ".git").is_file()
    head = git(folder, "rev-parse", "HEAD")
    view = make(folder)
    assert git(view.place, "rev-parse", "HEAD") == head
    assert git(view.place, "rev-parse", "--show-toplevel") == str(view.place)
    assert git(view.place, "diff", "--name-only") == ""
    (view.place / "train.py").write_text("changed")
    git(view.place, "commit", "-qam", "second")
    assert git(view.place, "rev-parse", "HEAD~1") == head == git(folder, "rev-parse", "HEAD")
    assert git(folder, "count-objects").startswith("4 objects")
    assert view.list_written() == [WrittenFile("train.py", "changed", 7)]


names = st.text("ab é.", min_size=1, max_size=3).filter(lambda name: name.strip(".") and name != ".")
trees = st.recursive(
    st.binary(max_size=4), lambda inner: st.dictionaries(names, inner, max_size=4), max_leaves=12
).filter(lambda tree: isinstance(tree, dict))


def plant(place: Path, tree: object) -> None:
    if isinstance(tree, dict):
        place.mkdir(parents=True)
        for name, inner in tree.items():
            plant(place / name, inner)
    else:
        assert isinstance(tree, bytes)
        place.write_bytes(tree)


def contents(place: Path) -> object:
    return {entry.name: contents(entry) for entry in place.iterdir()} if place.is_dir() else place.read_bytes()


@given(trees, st.integers(0, 12), st.integers(0, 6), st.integers(0, 8))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_any_tree_with_any_budget(
    tmp_path_factory: pytest.TempPathFactory, tree: object, entries: int, files: int, small: int
) -> None:
    root = tmp_path_factory.mktemp("tree")
    plant(root / "folder", tree)
    view = View.from_folder(
        root / "folder", root / "view", root / "out", budget=Budget(entries, files, small, clones=False)
    )
    assert contents(view.place) == tree  # read through links too
    assert view.list_written() == []
    view.keep_written(root / "files")
    assert contents(root / "folder") == tree
    assert os.listdir(root / "files") == []


def test_an_installed_package_is_found_in_what_stands_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`port -m open_clip_train.main`: the port imported the original from site-packages."""
    site, place = tmp_path / "lib/site-packages", tmp_path / "view-2/lib/site-packages/pkg"
    for folder, says in ((site / "pkg", "original"), (place, "converted")):
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(f"says = {says!r}\n")
    for folder in (site, place.parent):
        (folder / "other_pkg.py").write_text("")  # in a view, a link
    monkeypatch.setattr(sys, "path", [*sys.path, str(site)])
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    redirect_editable({str(site / "pkg"): str(place)})
    for name, origin in (("pkg", place / "__init__.py"), ("other_pkg", site / "other_pkg.py")):
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.origin == str(origin)


@pytest.mark.parametrize("gone", ["empty", "data/latest", "data/a.txt"])
def test_what_goes_away_while_the_view_is_made_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    """Another process works in the folder: a compiler with files of its own, a test with temporary ones."""
    folder = user_folder(tmp_path)
    make_folder, make_entry = mirror.Mirror._make_folder, mirror.Mirror._make_entry

    def lose_folder(this: mirror.Mirror, relative: str) -> list[str]:
        if relative == gone:
            (folder / gone).rmdir()
        return make_folder(this, relative)

    def lose_entry(this: mirror.Mirror, relative: str, entry: os.DirEntry[str], crowded: bool) -> bool:
        if relative == gone and not entry.is_dir(follow_symlinks=False):
            (folder / gone).unlink()
        return make_entry(this, relative, entry, crowded)

    monkeypatch.setattr(mirror.Mirror, "_make_folder", lose_folder)
    monkeypatch.setattr(mirror.Mirror, "_make_entry", lose_entry)
    view = make(folder)
    assert not os.path.lexists(view.place / gone)
    assert (view.place / "train.py").read_text() == "import model\n"
