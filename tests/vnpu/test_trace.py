"""VNPU_TRACE: one line per call and per task, on disk before the process can lose it."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest
from ascendcl import python

pytestmark = pytest.mark.device
CALL = re.compile(r"(\d+\.\d{6}) (\d+) call (\w+)\((.*)\) -> (ok|error \d+)")
CRASHED = (-signal.SIGSEGV, -signal.SIGABRT, 66)  # a sanitizer reports it and ends so
RUN = re.compile(r"(\d+\.\d{6}) (\d+) run (\w+) stream=(\d+) device=(\d+) -> (.+)")


def test_calls_and_tasks(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    result = python(
        """
import ascendcl
from ascendcl import acl, code, stream
acl("aclrtSetDevice", 0)
with ascendcl.device_memory(64) as address, stream() as queue:
    acl("aclrtMemsetAsync", address, 64, 1, 64, queue)
    code("aclrtMemsetAsync", address, 64, 1, 65, queue)
""",
        VNPU_TRACE=str(path),
    )
    assert result.returncode == 0, result.stderr
    lines = path.read_text().splitlines()
    calls = [match for match in map(CALL.fullmatch, lines) if match]
    runs = [match for match in map(RUN.fullmatch, lines) if match]
    assert len(calls) + len(runs) == len(lines)
    assert [match[3] for match in calls] == [
        "aclrtSetDevice",
        "aclrtMalloc",
        "aclrtCreateStream",
        "aclrtMemsetAsync",
        "aclrtMemsetAsync",
        "aclrtDestroyStream",
        "aclrtFree",
    ]
    assert re.fullmatch(r"\*0x[0-9a-f]+, 64, 0", calls[1][4])
    assert [match[5] for match in calls[3:5]] == ["ok", "error 107000"]
    assert [(match[3], match[5], match[6]) for match in runs] == [("MemsetAsync", "0", "ok")]
    assert runs[0][2] != calls[0][2]  # another thread


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), signal.SIGKILL)", "ctypes.string_at(0)", "os._exit(3)"])
def test_nothing_is_lost_in_a_crash(tmp_path: Path, end: str) -> None:
    path = tmp_path / "trace"
    python(
        f"import ctypes, os, signal, ascendcl; ascendcl.acl('aclrtSetDevice', 1); ascendcl.malloc(99); {end}",
        VNPU_TRACE=str(path),
    )
    lines = path.read_text().splitlines()
    assert "call aclrtSetDevice(" in lines[0]
    assert "call aclrtMalloc(" in lines[1]
    crash = [re.sub(r"^\S+ \d+ ", "", line) for line in lines[2:]]
    assert crash == ([f"crash in no call -> signal {signal.SIGSEGV:d}"] if "string_at" in end else [])


def test_the_call_that_crashes_is_named(tmp_path: Path) -> None:
    """It has no line of its own: a call writes that when it is over."""
    path = tmp_path / "trace"
    result = python(
        """
import ascendcl
ascendcl.acl("aclrtSetDevice", 0)
ascendcl.acl("aclrtMemcpy", ascendcl.malloc(64), 64, 8, 64, ascendcl.HOST_TO_DEVICE)  # 8: nothing is there
""",
        VNPU_TRACE=str(path),
    )
    assert result.returncode in CRASHED, "the program ends as it would without a trace"
    assert path.read_text().splitlines()[-1].endswith(f" crash in aclrtMemcpy -> signal {signal.SIGSEGV:d}")


def test_a_task_that_crashes_is_named_by_its_stream(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    result = python(
        """
import ascendcl, ctypes
ascendcl.acl("aclrtSetDevice", 0)
with ascendcl.stream() as queue:
    strlen = ctypes.cast(ctypes.CDLL(None).strlen, ctypes.c_void_p)
    ascendcl.acl("aclrtLaunchHostFunc", queue, strlen, 8)  # 8: nothing is there
""",
        VNPU_TRACE=str(path),
    )
    assert result.returncode in CRASHED
    ends = f" crash in a task of stream=0 -> signal {signal.SIGSEGV:d}"
    # The thread that launched it may still write a line of its own.
    assert any(line.endswith(ends) for line in path.read_text().splitlines())


def test_a_text_of_several_lines_takes_one(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    python(
        "import ascendcl, ctypes\n"
        "ascendcl.acl('aclrtSetDevice', 0)\n"
        "ascendcl.code('aclopCompileAndExecute', ctypes.c_char_p(b'two\\nlines'), *[0] * 11)",
        VNPU_TRACE=str(path),
    )
    lines = path.read_text().splitlines()
    assert len(lines) == 2
    assert CALL.fullmatch(lines[1])
    assert r'"two\nlines"' in lines[1]


def test_traces_of_two_processes_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    for _ in range(2):
        python("import ascendcl; ascendcl.acl('aclrtSetDevice', 0)", VNPU_TRACE=str(path))
    assert path.read_text().count("aclrtSetDevice") == 2


def test_a_path_that_cannot_be_written(tmp_path: Path) -> None:
    result = python(
        "import ascendcl; print(ascendcl.code('aclInit', 0), ascendcl.message())",
        VNPU_TRACE=str(tmp_path / "no" / "such" / "folder"),
    )
    assert result.stdout.startswith("107000 ")
    assert "cannot be opened for writing" in result.stdout


def test_a_full_disk_does_not_disturb_the_program() -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("this machine has no /dev/full to stand for a full disk")
    result = python(
        "import ascendcl; ascendcl.acl('aclrtSetDevice', 0); print(ascendcl.malloc(64) != 0)", VNPU_TRACE="/dev/full"
    )
    assert (result.returncode, result.stdout) == (0, "True\n")
