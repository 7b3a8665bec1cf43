"""judge.py as run.py sees it: give it a file, watch what it says, end it where it must be ended."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from verdicts import verdict_of
from watched import EndedError, end, group_resident, said

from torchport import vnpu

HERE = Path(__file__).parent
PACKAGES = HERE.parents[1] / "build/upstream/packages"
STARTING = 600  # seconds until the first line: imports, beside whatever else the machine does
ENDING = 60  # seconds that a process has to be gone after it was killed
PATIENCE = 3  # tests of a file that may take too long before it is given up
DEVICE_LOST = 75  # judge.py says so

Found = dict[str, tuple[str, float]]  # verdict and seconds of each test


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    seconds: int  # for one test
    memory: int  # GiB of a file's processes together


class Worker:
    """Runs the tests of one file at a time, each file in a process of its own."""

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, str],
        libraries: Mapping[str, str],
        limits: Limits,
        idle: bool,
        bare: bool = False,
        judge: Sequence[str | Path] = (),
    ) -> None:
        self.folder, self.environment, self.limits, self.idle = folder, environment, limits, idle
        # `bare`: whether files find torch and torch_npu loaded, and nothing else.
        self.command = [*(judge or (sys.executable, HERE / "judge.py")), *(["--bare"] if bare else [])]
        path = os.pathsep.join([str(PACKAGES), str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
        # OpenBLAS, of NumPy and SciPy, starts threads when it is loaded, which do not live in a fork.
        # Threads of one computation that share the cores with other programs wait for each other.
        own = {"PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        # Tests start `python` and `torchrun` by name.
        own["PATH"] = os.pathsep.join([str(Path(self.command[0]).parent), os.environ["PATH"]])
        # Extensions are linked with what the sources' stubs would be, whose headers are another repository's.
        own["LIBRARY_PATH"] = str(vnpu.library_directory())
        self.variables = {**os.environ, **environment, **libraries, **own}
        self.log = tempfile.NamedTemporaryFile(suffix=".log")  # noqa: SIM115 -- as long as the worker
        self.process: subprocess.Popen[bytes] | None = None
        self.running = 0  # the process of a file

    def judge(self, file: str, tests: list[str] | None = None) -> Found:
        """Verdicts of these tests of `file` (None = all)."""
        found: Found = {}
        left = tests
        while left is None or left:
            before = len(found)
            there = self._once(file, left, found)
            left = [test for test in (there if tests is None else tests) if test not in found]
            if len(found) == before:
                return found | dict.fromkeys(left, ("CRASH: was not reached", 0.0))
            if sum(verdict.startswith("TIMEOUT") for verdict, _ in found.values()) >= PATIENCE:
                return found | dict.fromkeys(left, (f"TIMEOUT: not tried, after {PATIENCE} others", 0.0))
        return found

    def kill(self) -> None:
        """From another thread: `judge` raises SystemExit then."""
        if self.process is not None:
            self.process.kill()
            end(self.running)

    def close(self) -> None:
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()
            self.process.wait()
            self.process = None

    def _once(self, file: str, tests: list[str] | None, found: Found) -> list[str]:
        """One process of the file; returns the tests that it has."""
        process = self._started()
        assert process.stdin is not None
        job = {
            "file": file,
            "folder": str(self.folder),
            "tests": tests,
            "environment": dict(self.environment),
            "log": self.log.name,
            "idle": self.idle,
        }
        process.stdin.write(json.dumps(job).encode() + b"\n")
        process.stdin.flush()
        pid, current, begun, there, done, code, ended = 0, "", 0, list[str](), False, 0, ""

        def seconds() -> float:
            return self.limits.seconds if current or done else STARTING

        says = self._says(process, seconds, lambda: group_resident(pid))
        try:
            while True:
                try:
                    line = next(says)
                except EndedError as error:
                    if not pid or ended:  # the process that forks has to go, too
                        raise
                    ended = str(error)
                    end(pid)
                    says = self._says(process, lambda: ENDING, lambda: 0)
                    continue
                if "process" in line:
                    pid = self.running = line["process"]
                elif "tests" in line:
                    there = line["tests"]
                elif "done" in line:
                    done = True
                elif "exit" in line:
                    code = line["exit"]
                    break
                elif "status" in line:
                    found[line["test"]] = (verdict_of(line["status"], line["reason"]), line["seconds"])
                    current = ""
                else:
                    current, begun = line["test"], self._length()
        except EndedError as error:
            ended = ended or str(error)
            self.process = None
            process.kill()
            process.wait()
        except StopIteration:
            raise SystemExit(f"judge.py has ended by itself at {file}") from None
        finally:
            end(pid)  # and what the file has started and left
            self.running = 0
        if ended or code not in (0, DEVICE_LOST):
            why = f"{ended}{self._of_processes(begun)}" if ended else f"CRASH: {self._crash(code)}"
            found[current or ("(exit)" if done else "(import)")] = (why, 0.0)
        return there

    def _says(
        self, process: subprocess.Popen[bytes], seconds: Callable[[], float], resident: Callable[[], int]
    ) -> Iterator[dict[str, Any]]:
        assert process.stdout is not None
        return said(process.stdout, seconds, resident, self.limits.memory << 20)

    def _started(self) -> subprocess.Popen[bytes]:
        if self.process is None:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=self.variables,
                start_new_session=True,
            )
        return self.process

    def _crash(self, code: int) -> str:
        log = Path(self.log.name).read_text(errors="replace")
        name = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        what = re.findall(r"what\(\): +([^\n]{1,200})", log)
        return f"{name}: {what[-1]}" if what else name

    def _length(self) -> int:
        return Path(self.log.name).stat().st_size

    def _of_processes(self, begun: int) -> str:
        """What was raised in most of the processes that a test has started, and now waits for: it shows nothing else."""
        log = Path(self.log.name).read_bytes()[begun:].decode(errors="replace")
        raised = re.findall(r"^(?:\w+\.)*\w+(?:Error|Exception)(?:: [^\n]{0,200})?$", log, re.MULTILINE)
        if not raised or not re.search(r"^Process \S+:$", log, re.MULTILINE):
            return ""
        return f"; its processes ended by {Counter(raised).most_common(1)[0][0]}"
