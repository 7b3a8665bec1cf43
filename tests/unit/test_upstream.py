"""How tests/upstream judges the tests of others: the verdicts of a file of ours, and what is kept of a run."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest

sys.path.extend(str(Path(__file__).parents[1] / folder) for folder in ("upstream", "conformance"))

import idle
import status
import verdicts
import watched
import workers
from results import Results, write_junit


def test_what_the_virtual_npu_says_is_told_from_what_a_test_says() -> None:
    gap = "The virtual NPU does not have the legacy operator Pad. This is a gap"
    assert verdicts.refused(gap) == ("GAP", "Pad")
    assert verdicts.refused("The virtual NPU does not implement aclnnX yet.") == ("GAP", "aclnnX")
    assert verdicts.refused("Tensors are not close") is None
    words = "[PID: 17] 2026 parameter self is null. [virtual NPU, aclnnAdd]"
    assert verdicts.own_words(words) == "parameter self is null. [virtual NPU, aclnnAdd]"
    assert verdicts.kernel_failure("error 507015", "aclnnX failed on stream 3: index 9\n") == (
        "aclnnX failed on stream 3: index 9"
    )
    assert verdicts.kernel_failure("not that code", "aclnnX failed on stream 3: index 9\n") == ""


def test_leaving_pass_and_coming_to_crash_is_worse(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        ("a", "PASS", "FAIL: differs"),
        ("b", "FAIL: differs", "CRASH: SIGSEGV"),
        ("c", "FAIL: differs", "PASS"),
        ("d", "FAIL: differs", "FAIL: differs elsewhere"),
        ("e", "CRASH: SIGSEGV", "CRASH: SIGABRT"),
    ]
    assert verdicts.changes(rows) == 2
    assert [line[:3] for line in capsys.readouterr().out.splitlines()] == ["! a", "! b", "  c"]


def piped(text: bytes) -> io.FileIO:
    """What a process has written that has ended."""
    read, written = os.pipe()
    os.write(written, text)
    os.close(written)
    return io.FileIO(read)


def test_lines_that_come_together_are_all_read() -> None:
    lines = b'{"test": "a"}\n{"test": "b"}\n{"exit": 0}\n'
    said = [*watched.said(piped(lines), lambda: 9, lambda: 0, 1)]
    assert said == [{"test": "a"}, {"test": "b"}, {"exit": 0}]


def test_a_process_that_says_nothing_or_grows_is_given_up() -> None:
    read, written = os.pipe()
    with io.FileIO(read) as silent, io.FileIO(written, "w"):
        with pytest.raises(watched.EndedError, match="TIMEOUT: more than 0 s"):
            list(watched.said(silent, lambda: 0, lambda: 0, 1))
        with pytest.raises(watched.EndedError, match="CRASH: more than 1 GiB"):
            list(watched.said(silent, lambda: 9, lambda: 2 << 20, 1 << 20))
    assert watched.resident(os.getpid()) > 1 << 10
    assert watched.resident(1 << 30) == 0


def test_what_a_hung_tests_processes_died_of(tmp_path: Path) -> None:
    worker = workers.Worker(tmp_path, {}, {}, workers.Limits(1, 1), idle=False)
    log = Path(worker.log.name)
    log.write_text("Process Process-1:\nKeyError: before\n")
    begun = worker._length()
    assert worker._of_processes(begun) == ""
    with log.open("a") as stream:
        stream.write("ValueError: of the test itself\n")
        assert worker._of_processes(begun) == ""
        stream.write("Process Process-2:\nTraceback (most recent call last):\n")
        stream.write("KeyError: now\ntorch.Error: one\nKeyError: now\n")
    assert worker._of_processes(begun) == "; its processes ended by KeyError: now"


def test_a_list_names_what_does_not_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "FOLDER", tmp_path)
    found = {"a/test_a.py": {"T.two": "FAIL: differs", "T.one": "PASS", "T.three": "PASS"}}
    status.write("suite", found)
    assert status.read("suite") == {"a/test_a.py": {"PASS": 2, "T.two": "FAIL: differs"}}
    # Stored again as it was read, beside another file.
    status.write("suite", {**status.read("suite"), "a/test_b.py": {"T.one": "SKIP: no reason"}})
    known = status.read("suite")
    assert known == {
        "a/test_a.py": {"PASS": 2, "T.two": "FAIL: differs"},
        "a/test_b.py": {"PASS": 0, "T.one": "SKIP: no reason"},
    }
    now = {"a/test_a.py": {"T.one": "VACUOUS", "T.two": "PASS"}, "a/test_c.py": {"T.one": "PASS", "T.two": "GAP: Pad"}}
    assert [*status.compared(known, now)] == [
        ("a/test_a.py T.one", "PASS", "VACUOUS"),
        ("a/test_a.py T.two", "FAIL: differs", "PASS"),
        ("a/test_c.py T.two", "NEW", "GAP: Pad"),
    ]


def test_what_was_found_is_there_after_a_run_was_broken_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("results.FOLDER", tmp_path)
    first = Results("suite", keep=False)
    first.add("test_a.py", {"T.one": ("PASS", 1.5), "T.two": ("CRASH: SIGSEGV", 0.0)})
    again = Results("suite", keep=True)
    assert "test_a.py" in again and "test_b.py" not in again
    assert again.verdicts("test_a.py") == {"T.one": "PASS", "T.two": "CRASH: SIGSEGV"}
    write_junit(tmp_path / "junit.xml", {"test_a.py": again.rows("test_a.py")})
    text = (tmp_path / "junit.xml").read_text(encoding="utf-8")
    assert 'name="T.one"' in text and '<failure type="CRASH" message="SIGSEGV"' in text
    assert "test_a.py" not in Results("suite", keep=False)


@pytest.mark.parametrize("name", idle.EDITS)
def test_the_place_where_operators_come_to_run_is_found(name: str) -> None:
    place, _ = idle.EDITS[name]
    assert (idle.ROOT / name).read_text(encoding="utf-8").count(place) == 1
