"""pytest in forked processes: torch_npu is loaded once, which takes longer than most tests, and each child switches one
mutant on, for the programs that its tests start, too. A child that crashes or hangs takes nothing with it."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import resource
import select
import signal
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mutants import Mutant

from torchport import vnpu

vnpu.activate(force=True)
import torch_npu  # noqa: E402, F401

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests/vnpu/ops"
BESIDE = [TESTS.parent / "test_overflow.py"]  # the only other file whose subject is in csrc/opapi
LEFT_OUT = {"test_coverage.py"}  # asks about a run of the whole folder
LIBRARY_FILE = vnpu.library_directory() / "libopapi.so"
REACHED = LIBRARY_FILE.parent.parent / "reached.json"
LIBRARY = ctypes.CDLL(str(LIBRARY_FILE))
COUNT = ctypes.c_int.in_dll(LIBRARY, "vnpu_mutants").value
BASELINE = 400  # seconds of one test file
MEMORY = 8 << 30  # bytes of a process, without the device's memory: a wrong size may ask for anything


class Watch:
    """What the tests of one process did: time and mutants reached of each, and the first that failed. Answers on a pipe
    and ends the process where pytest would begin to tidy up, which takes longer than most tests."""

    def __init__(self, writing: int) -> None:
        self.writing = writing
        noted = ctypes.POINTER(ctypes.c_ubyte).in_dll(LIBRARY, "vnpu_mutants_reached")
        self.reached = ctypes.cast(noted, ctypes.POINTER(ctypes.c_ubyte * (COUNT + 1))).contents
        self.tests: dict[str, tuple[float, list[int]]] = {}
        self.failed = ""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        began = time.monotonic()
        result = yield
        reached = [number for number, bit in enumerate(bytes(self.reached)) if bit]
        self.tests[item.nodeid] = (time.monotonic() - began, reached)
        ctypes.memset(self.reached, 0, ctypes.sizeof(self.reached))
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self.answer(exitstatus)

    def answer(self, code: int) -> None:
        with os.fdopen(self.writing, "w") as stream:
            json.dump({"code": int(code), "failed": self.failed, "tests": self.tests}, stream)
        os._exit(0)


class Child:
    """A forked pytest. `answer()` is None where it ended without one."""

    def __init__(self, mutant: int, tests: list[str], seconds: float) -> None:
        self.mutant = mutant
        self.ends = time.monotonic() + seconds
        self.pipe, writing = os.pipe()
        sys.stdout.flush()
        self.process = os.fork()
        if self.process == 0:
            os.close(self.pipe)
            _run(mutant, tests, writing)
        os.close(writing)
        self.text = b""

    def wait(self, seconds: float) -> bool:
        """Whether it has ended, or has been ended at its time limit."""
        if select.select([self.pipe], [], [], seconds)[0]:
            piece = os.read(self.pipe, 1 << 20)
            self.text += piece
            if piece:
                return False
        elif time.monotonic() < self.ends:
            return False
        with contextlib.suppress(ProcessLookupError):  # it never came to be a group of its own
            os.killpg(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)
        os.close(self.pipe)
        for file in (_trace(self.process), _notes(self.process)):
            file.unlink(missing_ok=True)
        return True

    def answer(self) -> Any:
        try:
            return json.loads(self.text)
        except json.JSONDecodeError:
            return None


def _run(mutant: int, tests: list[str], writing: int) -> None:
    """The child: never returns."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    silence = os.open(os.environ.get("MUTATION_LOG", os.devnull), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    os.environ["VNPU_TRACE"] = str(_trace(os.getpid()))
    # The programs that tests start, and what forks, share the mutant and the notes.
    os.environ |= {"VNPU_MUTANT": str(mutant), "VNPU_MUTANTS_REACHED": str(_notes(os.getpid()))}
    ctypes.c_int.in_dll(LIBRARY, "vnpu_mutant").value = mutant
    if not LIBRARY.vnpu_mutants_note(str(_notes(os.getpid())).encode()):
        os._exit(1)
    watch = Watch(writing)
    try:
        options = ["-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", f"--rootdir={ROOT}"]
        watch.answer(pytest.main([*options, *(["-x"] if mutant else []), *tests], plugins=[watch]))
    finally:
        os._exit(1)


def _trace(process: int) -> Path:
    return REACHED.parent / f"trace-{process}"


def _notes(process: int) -> Path:
    """Which mutants were reached, a byte for each."""
    return REACHED.parent / f"notes-{process}"


def _each(work: list[tuple[int, list[str], float]], jobs: int) -> Iterator[tuple[int, Child]]:
    """(position in work, child) of every piece of work, as they end."""
    waiting = deque(enumerate(work))
    running: list[tuple[int, Child]] = []
    while waiting or running:
        while waiting and len(running) < jobs:
            position, (mutant, tests, seconds) = waiting.popleft()
            running.append((position, Child(mutant, tests, seconds)))
        for position, child in list(running):
            if child.wait(0.2 / len(running)):
                running.remove((position, child))
                yield position, child


def reaching(mutants: dict[int, Mutant], jobs: int) -> tuple[dict[int, list[str]], dict[str, float]]:
    """Which tests reach each mutant, and how long each test takes, with no mutant switched on. What is known of a test
    file from an earlier run with the same library is kept while neither it nor what it imports changes.

    Raises RuntimeError where the tests do not pass.
    """
    known = json.loads(REACHED.read_text(encoding="utf-8")) if REACHED.exists() else {}
    imported = b"".join(path.read_bytes() for path in sorted(TESTS.parent.rglob("*.py")) if "test_" not in path.name)
    build = str(LIBRARY_FILE.stat().st_mtime_ns).encode()
    files = {
        hashlib.sha256(build + imported + path.read_bytes()).hexdigest(): path
        for path in [*sorted(TESTS.rglob("test_*.py")), *BESIDE]
        if path.name not in LEFT_OUT
    }
    known = {digest: tests for digest, tests in known.items() if digest in files}
    todo = [digest for digest in files if digest not in known]
    for position, child in _each([(0, [str(files[digest])], BASELINE) for digest in todo], jobs):
        answer = child.answer()
        if answer is None or answer["code"] != 0:
            why = answer["failed"] if answer else "it crashed or took too long"
            raise RuntimeError(f"{files[todo[position]].name} does not pass without a mutant: {why}")
        known[todo[position]] = answer["tests"]
        REACHED.write_text(json.dumps(known), encoding="utf-8")
    seconds: dict[str, float] = {}
    tests: dict[int, list[str]] = {number: [] for number in mutants}
    for row in known.values():
        for test, (took, reached) in row.items():
            seconds[test] = took
            for number in reached:
                tests.setdefault(number, []).append(test)
    print(f"{len(seconds)} tests pass, in {sum(seconds.values()):.0f} s", file=sys.stderr)
    return tests, seconds


def judge(mutants: dict[int, Mutant], jobs: int) -> Iterator[tuple[int, str]]:
    """Each mutant's verdict as it is found: "killed", "crash" or "time", "survived" or "not reached"."""
    tests, seconds = reaching(mutants, jobs)
    work = []
    for number in mutants:
        if not tests[number]:
            yield number, "not reached"
            continue
        tests[number].sort(key=seconds.__getitem__)  # a quick one may be enough
        work.append((number, tests[number], 60 + 5 * sum(seconds[test] for test in tests[number])))
    for _, child in _each(work, jobs):
        answer = child.answer()
        if answer is None:
            yield child.mutant, "time" if time.monotonic() >= child.ends else "crash"
        elif answer["code"] in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED):
            yield child.mutant, "survived" if answer["code"] == pytest.ExitCode.OK else "killed"
        else:
            raise RuntimeError(f"pytest answers {answer['code']} instead of running the tests of mutant {child.mutant}")
