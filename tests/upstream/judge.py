"""Run the tests of one file on the virtual NPU and judge each; run.py starts this once, and it forks for each file.

Importing torch, torch_npu and what their tests stand on takes longer than most files. A fork of a process that has done
so is as a fresh one: it has one thread and has not touched the device (tests/vnpu/forked.py). Within a file all tests
share their process, as they do where they come from, until one fails in a way after which torch_npu drops all work;
run.py then asks for the rest in a new one, so that no test fails for the one before it.

On stdin one job a line, on stdout one JSON object a line: the process, the tests there are, each test as it starts and
its verdict, and the exit status.
"""

# ruff: noqa: E402, N802, N815 -- torch is imported after the virtual NPU is activated; unittest chose the names
from __future__ import annotations

import atexit
import contextlib
import faulthandler
import gc
import importlib
import json
import os
import re
import sys
import time
import types
import unittest
import unittest.mock
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from torchport import vnpu

vnpu.activate(force=True)

sys.path.insert(0, str(Path(__file__).parents[1] / "conformance"))
import spawned
from verdicts import chip_limit, kernel_failure, own_words, refused

# What most files import.
PREPARED = (
    "numpy",
    "torch.testing._internal.common_utils",
    "torch_npu.testing.testcase",
    "torch_npu.testing.common_utils",
)
# Each of these would run the tests at the end of the file.
STARTERS = (
    ("unittest", "main"),
    ("torch.testing._internal.common_utils", "run_tests"),
    ("torch_npu.testing.testcase", "run_tests"),
)
DEVICE_LOST = 75  # exit status: torch_npu drops all work after a kernel's failure
REASON = 300  # characters
# What torch's tests of several ranks raise, which are processes or threads, and in it what the first has raised.
OF_A_RANK = re.compile(
    r"(?:Process|Thread) \d+ exited with (?:error code \d+ and )?exception: Traceback .*?(\w+(?:Error|Exception): .*)"
)


def classify(error: BaseException, log: str) -> tuple[str, str]:
    """Status and reason of what a test raised."""
    text = " ".join(str(error).split())
    if limit := chip_limit(text):
        return "NOT_OFFERED", limit
    if said := refused(text):
        return said
    if words := kernel_failure(text, log) or own_words(text):
        return "FAIL", words[:REASON]
    rank = OF_A_RANK.search(text)
    text = rank[1] if rank else f"{type(error).__name__}: {text}"
    kept = re.sub(r"\[ERROR\].*", "", text)  # what follows has the time in it
    kept = re.sub(r"0x[0-9a-f]{6,}", "0x...", re.sub(r"/tmp/\S+", "/tmp/...", kept))
    return "FAIL", kept[:REASON].strip()


def name_of(test: unittest.TestCase) -> str:
    return f"{type(test).__name__}.{test._testMethodName}"


def flat(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from flat(test)
        else:
            yield test


class Verdicts(unittest.TestResult):
    """Says each verdict as it falls."""

    def __init__(self, say: Any, tests: list[str], log: Path, idle: bool) -> None:
        super().__init__()
        self.say, self.tests, self.log, self.idle = say, tests, log, idle
        self.worst: tuple[str, str] = ("PASS", "")
        self.since = 0.0

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        if "numpy" in sys.modules:  # of which most draw, and few set a seed
            sys.modules["numpy"].random.seed(0)
        self.worst, self.since = ("PASS", ""), time.monotonic()
        self.say(test=name_of(test))

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        status, reason = self.worst
        seconds = round(time.monotonic() - self.since, 2)
        self.say(test=name_of(test), status=status, reason=reason, seconds=seconds)
        if status not in ("PASS", "SKIP") and self._lost(status):
            sys.stdout.flush()
            os._exit(DEVICE_LOST)

    def addError(self, test: Any, err: Any) -> None:
        super().addError(test, err)
        status, reason = classify(err[1], self.log.read_text(errors="replace"))
        if isinstance(test, unittest.TestCase):
            self.worst = status, reason
        else:
            self._for_class(test, status, reason)

    addFailure = addError

    def addSkip(self, test: Any, reason: str) -> None:
        super().addSkip(test, reason)
        if isinstance(test, unittest.TestCase):
            self.worst = "SKIP", " ".join(reason.split())[:REASON]
        else:
            self._for_class(test, "SKIP", reason)

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        super().addSubTest(test, subtest, err)
        if err is not None and self.worst[0] == "PASS":
            self.addError(test, err)

    def addUnexpectedSuccess(self, test: Any) -> None:
        super().addUnexpectedSuccess(test)
        self.worst = "FAIL", "unexpected success"

    def _for_class(self, holder: Any, status: str, reason: str) -> None:
        """What was raised in setUpClass is every test's of the class; after them it is nobody's."""
        place = re.match(r"(setUp\w+) \((?:.*\.)?(\w+)\)", holder.id())
        for test in self.tests:
            if place and (place[1] == "setUpModule" or test.startswith(place[2] + ".")):
                self.say(test=test, status=status, reason=f"{place[1]}: {reason}", seconds=0)
        if not place:
            self.say(test=f"({holder.id()})", status=status, reason=reason, seconds=0)

    def _lost(self, status: str) -> bool:
        """Whether torch_npu may drop what follows: after an error of its queue it does so, without a word at first."""
        torch = sys.modules["torch"]
        if not torch.npu.is_initialized():
            return False
        try:
            torch.npu.synchronize()
            return not self.idle and (status == "GAP" or torch.ones(1, device="npu").add_(1).item() != 2)
        except Exception:
            return True


def load(path: Path) -> types.ModuleType:
    """The file as Python runs it, but for the tests; multiprocessing finds its functions in `__main__`."""
    sys.argv, sys.path[0] = [str(path)], str(path.parent)
    sys.path.append(os.getcwd())  # where the suite lies: files in its folders import what stands there
    for name, starter in STARTERS:
        # TypeError: from torch_npu.testing, where transfer_to_npu has replaced torch.cuda.
        with contextlib.suppress(ImportError, TypeError):
            setattr(importlib.import_module(name), starter, lambda *_args, **_options: None)
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    module.__file__ = str(path)
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), module.__dict__)
    return module


def run(
    answers: int, file: str, folder: str, tests: list[str] | None, environment: dict[str, str], log: str, idle: bool
) -> NoReturn:
    """In a fork, which it ends: run the tests of `file` that `tests` names (None = all)."""
    os.setsid()
    says = os.fdopen(answers, "w", buffering=1)
    with open(log, "w", encoding="utf-8") as stream, open(os.devnull) as nothing:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
        os.dup2(nothing.fileno(), 0)
    faulthandler.enable()
    os.environ.update(environment)
    os.chdir(folder)

    def say(**what: Any) -> None:
        says.write(json.dumps(what) + "\n")

    say(process=os.getpid())
    spawned.from_a_server()
    try:
        module = load(Path(folder) / file)
        found = list(flat(unittest.defaultTestLoader.loadTestsFromModule(module)))
    except (Exception, SystemExit) as error:
        skipped = isinstance(error, unittest.SkipTest)
        status, reason = ("SKIP", str(error)) if skipped else classify(error, "")
        say(test="(import)", status=status, reason=reason, seconds=0)
        say(tests=[])
        os._exit(0)
    names = [name_of(test) for test in found]
    say(tests=names)
    wanted = set(names if tests is None else tests)
    suite = unittest.TestSuite(test for test in found if name_of(test) in wanted)
    suite.run(Verdicts(say, [name for name in names if name in wanted], Path(log), idle))
    say(done=True)
    if not idle:
        atexit._run_exitfuncs()  # torch_npu's shutdown is one
    os._exit(0)  # freeing every object of torch takes longer than most files


def prepare(bare: bool) -> None:
    import torch
    import torch_npu

    # Imports ask how many NPUs there are. The real answer would start the machine, and a fork could not use it.
    devices = int(os.environ.get("VNPU_DEVICES") or 8)
    with unittest.mock.patch.object(torch_npu._C, "_npu_getDeviceCount", return_value=devices):
        for name in [] if bare else PREPARED:
            with contextlib.suppress(ImportError):  # it is said of each file that needs it
                importlib.import_module(name)
    assert not torch.npu.is_initialized()


def main() -> None:
    answers = os.dup(1)
    os.dup2(2, 1)  # what transfer_to_npu prints is no answer of ours
    prepare("--bare" in sys.argv)
    assert os.listdir("/proc/self/task") == [str(os.getpid())]  # threads do not live in a fork
    gc.freeze()
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            run(answers, **json.loads(line))
        ended = {"exit": os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}
        os.write(answers, f"{json.dumps(ended)}\n".encode())


if __name__ == "__main__":
    main()
