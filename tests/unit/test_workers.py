"""Many files at once: order, isolation, time limit, death of a worker."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from waiting import until

from torchport.convert import inspection, pool, workers
from torchport.convert.workers import Converted, convert_files
from torchport.findings import Finding, Safety
from torchport.rules import Style
from torchport.source.definitions import Definitions, collect_definitions


def make(folder: Path, count: int) -> list[tuple[Path, str]]:
    files = []
    for index in range(count):
        path = folder / f"f{index}.py"
        path.write_text(f"import torch\ntorch.cuda.set_device({index})\n")
        files.append((path, path.name))
    return files


def test_order_and_content(tmp_path: Path) -> None:
    files = make(tmp_path, 40)
    done = list(convert_files(files, Style.NPU, processes=3))
    assert [one.name for one in done] == [name for _, name in files]
    assert all(f"torch.npu.set_device({index})".encode() in one.output for index, one in enumerate(done))


def test_no_files() -> None:
    assert list(convert_files([], Style.NPU)) == []


def test_a_file_that_takes_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = make(tmp_path, 6)
    honest = workers.convert_file

    def slow(path: Path, name: str, style: Style, *more: Any) -> Converted:
        while name == "f2.py":
            pass
        return honest(path, name, style, *more)

    monkeypatch.setattr(workers, "convert_file", slow)
    monkeypatch.setattr(pool, "_PATIENCE", 10_000)  # the processor's time alone counts
    done = list(convert_files(files, Style.NPU, seconds=2.0, processes=2))
    assert [[finding.code for finding in one.findings if finding.code == "TP904"] for one in done] == [
        [],
        [],
        ["TP904"],
        [],
        [],
        [],
    ]
    assert [one.changed for one in done] == [True, True, False, True, True, True]


class _Dying:
    """A worker that the system ends for its CPU time while its answer is waited for: the pipe ends, and how the process
    ended is known once somebody has asked for it."""

    def __init__(self) -> None:
        self.index, self.seconds = 0, 2.0
        self.limit = 0.0
        self.pipe, other = multiprocessing.Pipe()
        other.close()
        self._asked = False

    def is_alive(self) -> bool:
        self._asked = True
        return False

    def is_late(self) -> bool:
        return self._asked

    def poll_answer(self) -> None: ...

    def become_idle(self) -> None: ...


def test_a_process_that_ends_while_it_is_asked_was_too_late(tmp_path: Path) -> None:
    done: dict[int, Finding] = {}
    pool.collect_outcomes(
        [_Dying()],  # type: ignore[list-item]
        [(tmp_path / "a.py", "a.py")],
        done,
        lambda path, name, finding: finding,
    )
    assert done[0].code == "TP904"


def test_a_file_that_never_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock of the test, which goes on when the file has been begun and at no other time."""
    files, begun = make(tmp_path, 3), tmp_path / "begun"
    honest = workers.convert_file

    def waiting(path: Path, name: str, style: Style, *more: Any) -> Converted:
        if name == "f1.py":
            begun.touch()
            until(lambda: False)
        return honest(path, name, style, *more)

    def monotonic() -> float:
        return 1e9 if begun.exists() else 0.0

    monkeypatch.setattr(workers, "convert_file", waiting)
    monkeypatch.setattr(pool, "time", SimpleNamespace(monotonic=monotonic, process_time=time.process_time))
    done = list(convert_files(files, Style.NPU, seconds=0.5, processes=1))
    assert [one.changed for one in done] == [True, False, True]
    assert [finding.code for finding in done[1].findings] == ["TP904"]


def test_ctrl_c(tmp_path: Path) -> None:
    text = "import torch\n" + "".join(f"def f{index}(x):\n    return x.cuda()\n" for index in range(4_000))
    for index in range(20):
        (tmp_path / f"f{index}.py").write_text(text)
    command = [sys.executable, "-m", "torchport", "convert", str(tmp_path), "--write"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    until(lambda: process.poll() is not None or children.read_text())
    workers_then = [int(pid) for pid in children.read_text().split()]
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate()
    assert (process.returncode, out, err) == (130, b"", b"torchport convert: interrupted\n")
    assert workers_then
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers_then)
    assert all((tmp_path / f"f{index}.py").read_text() == text for index in range(20))


def test_a_pipe_is_not_read(tmp_path: Path) -> None:
    files = make(tmp_path, 2)
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "device.py").symlink_to("/dev/zero")
    for name in ("pipe.py", "device.py"):
        (done, *_) = convert_files([(tmp_path / name, name), *files], Style.NPU)
        assert [finding.code for finding in done.findings] == ["TP900"]
        assert "not a regular file" in done.findings[0].message


def test_a_worker_that_dies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = make(tmp_path, 6)
    honest = workers.convert_file

    def deadly(path: Path, name: str, style: Style, *more: Any) -> Converted:
        if name == "f3.py":
            os.kill(os.getpid(), signal.SIGKILL)
        return honest(path, name, style, *more)

    monkeypatch.setattr(workers, "convert_file", deadly)
    done = list(convert_files(files, Style.NPU, processes=2))
    assert [one.changed for one in done] == [True, True, True, False, True, True]
    assert [finding.code for finding in done[3].findings] == ["TP903"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("import torch\nx = " + " + ".join(["y"] * 5_000) + "\ntorch.cuda.init()\n", None),
        ("import torch\nx = " + " + ".join(["y"] * 200_000) + "\ntorch.cuda.init()\n", "TP901"),
        ("# cuda\nx = " + "[" * 5_000 + "]" * 5_000 + "\n", "TP901"),
        ("# cuda\n" + "x = 1\n" * 2_000_000, "TP904"),
        ("# cuda\n" + "".join(f"{' ' * depth}if x:\n" for depth in range(150)), "TP901"),
        ("# cuda\nx = " + "-" * 100_000 + "1\n", "TP901"),
        ("# cuda\nx = " + "f(" * 3_000 + ")" * 3_000 + "\n", "TP901"),
    ],
    ids=["deep", "too deep", "brackets", "large", "indents", "minus", "calls"],
)
def test_hostile_files(tmp_path: Path, text: str, code: str | None) -> None:
    path = tmp_path / "hostile.py"
    path.write_text(text)
    (done,) = convert_files([(path, "hostile.py")], Style.NPU)
    codes = {finding.code for finding in done.findings}
    assert (code in codes) if code else done.changed
    assert "TP903" not in codes and (code == "TP904" or "TP904" not in codes)


def test_classes_of_other_files_are_known(tmp_path: Path) -> None:
    texts = {
        "results.py": "class Base:\n    def cuda(self):\n        return self\nclass Results(Base):\n    pass\n",
        "near.py": "from results import Results\ndef f(r: Results):\n    return r.cuda()\n",
        "far.py": "def f(x):\n    return x.cuda()\n",
        "sure.py": "import torch\nx = torch.ones(1).cuda()\n",
    }
    files = [(tmp_path / name, name) for name in texts]
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    done = {one.name: one for one in convert_files(files, Style.NPU)}
    assert collect_definitions([texts["results.py"].encode()]).find_classes_with("cuda") == {"Base", "Results"}
    assert not done["results.py"].changed
    assert not done["near.py"].changed
    assert [finding.safety for finding in done["near.py"].findings] == [Safety.REPORT]
    assert [finding.safety for finding in done["far.py"].findings] == [Safety.REVIEW]
    assert b".npu()" in done["sure.py"].output


def test_a_flag_is_no_method() -> None:
    text = (
        b"class A:\n    def __init__(self, args):\n        self.cuda = args.cuda\n        self.is_cuda = True\n"
        b"class B:\n    def __init__(self):\n        self.cuda = lambda: self\n"
    )
    found = collect_definitions([text])
    assert (found.find_classes_with("cuda"), found.find_classes_with("is_cuda")) == ({"B"}, {"A"})


def test_a_file_that_was_looked_at_is_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device of `config.py` is proven in `train.py`: both are looked at before they are converted."""
    (tmp_path / "config.py").write_text("where = 'cuda'\n")
    (tmp_path / "train.py").write_text("import torch\nfrom config import where\nx = torch.ones(1, device=where)\n")
    files = [(tmp_path / name, name) for name in ("config.py", "train.py")]
    log = tmp_path / "parsed"
    honest = inspection.Module.__init__

    def note(self: Any, path: str, data: bytes, *more: Any) -> None:
        with log.open("a") as out:
            out.write(f"{path} {data!r}\n")
        honest(self, path, data, *more)

    monkeypatch.setattr(inspection.Module, "__init__", note)
    done = list(convert_files(files, Style.NPU, processes=1))
    assert done[0].output == b"where = 'npu'\n"
    parsed = log.read_text().splitlines()
    assert len(parsed) == len(set(parsed)) and any("'cuda'" in line for line in parsed)


def test_a_file_that_changed_since_it_was_looked_at_is_parsed_again() -> None:
    project = Definitions()
    first = inspection.parse_module("a.py", b"x = 1\n", project)
    inspection.keep_module("a.py")
    inspection.parse_module("b.py", b"y = 1\n", project)
    assert inspection.parse_module("a.py", b"x = 1\n", project) is first
    inspection.keep_module("a.py")
    inspection.parse_module("b.py", b"y = 1\n", project)
    again = inspection.parse_module("a.py", b"x = 2\n", project)
    assert again is not first and again.text.data == b"x = 2\n"


def test_each_worker_gets_its_own_files_and_helps_the_others() -> None:
    one, two = object(), object()
    waiting = pool._Waiting([one, two, None, one, two])  # type: ignore[list-item]
    assert [waiting.take_file(who) for who in (two, two, two, two, two)] == [1, 2, 4, 3, 0]  # type: ignore[arg-type]
    assert waiting.take_file(one) is None  # type: ignore[arg-type]
