"""A rank that dies, stops, raises, calls something else or nothing: every other rank is told, at once where the fault can
be seen and else after the time-out, with rank, collective, sequence number and what differed; and nothing is left behind.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from faulty_rank import COLLECTIVES, VICTIM
from hccl import PARAMETER, REMOTE, TIMEOUT

from torchport import vnpu

SIZE = 3
# HCCL_EXEC_TIMEOUT: of what can be seen at once nobody is told by the time-out, which is longer than a test may last. The
# other is what a rank waits for one that is silent; healthy ranks of a busy machine must not be later than that.
NEVER, SILENT = 100_000, 15
HERE = Path(__file__).parent

# fault: (the code that the watchdog gets, what the message of a collective says of the victim)
FAULTS = {
    "SIGKILL": (REMOTE, "rank 1 (process {victim}) died after 1 collectives: it was killed or crashed"),
    "SIGSTOP": (TIMEOUT, "rank 1 (process {victim}) is stopped (SIGSTOP)"),
    "exception": (REMOTE, "rank 1 (process {victim}) has left the communicator after 1 collectives"),
    "wrong": (PARAMETER, "what differs: "),
    "missing": (TIMEOUT, "rank 1 (process {victim}) is running and has finished 1 collectives"),
}
DIFFERENCES = dict.fromkeys(COLLECTIVES, "what differs: count, data type.") | {
    "HcclBarrier": "what differs: collective, count, data type, reduction."
}


def exec_timeout(fault: str) -> int:
    return SILENT if FAULTS[fault][0] == TIMEOUT else NEVER


class Job:
    """The ranks of a job as processes; none outlives the block."""

    def __init__(self, fault: str) -> None:
        limits = {"HCCL_EXEC_TIMEOUT": str(exec_timeout(fault)), "HCCL_CONNECT_TIMEOUT": str(NEVER)}
        environ = os.environ | vnpu.environment() | limits
        environ["PYTHONPATH"] = os.pathsep.join([str(HERE), str(HERE.parent), *sys.path])
        self.ranks = [
            subprocess.Popen(
                [sys.executable, str(HERE / "faulty_rank.py"), str(number), str(SIZE), fault],
                env=environ,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for number in range(SIZE)
        ]
        infos = " ".join(self.line(0).strip() for _ in COLLECTIVES)
        for rank in self.ranks:
            assert rank.stdin is not None
            rank.stdin.write(infos + "\n")
            rank.stdin.flush()

    def line(self, number: int) -> str:
        stdout = self.ranks[number].stdout
        assert stdout is not None
        return stdout.readline()

    def answer(self, number: int) -> Any:
        line = self.line(number)
        stderr = self.ranks[number].stderr
        assert stderr is not None
        assert line, f"rank {number} said nothing: {stderr.read()}"
        return json.loads(line)

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        for rank in self.ranks:
            rank.kill()
            rank.communicate()


def shared_memory() -> set[str]:
    return set(os.listdir("/dev/shm"))


@pytest.mark.parametrize("fault", FAULTS)
def test_every_other_rank_is_told_what_is_wrong(fault: str) -> None:
    code, text = FAULTS[fault]
    before = shared_memory()
    with Job(fault) as job:
        victim = job.ranks[VICTIM].pid
        for number in sorted(set(range(SIZE)) - {VICTIM}):
            told = job.answer(number)
            for name, answer in told.items():
                assert f"{name} #2 of communicator hccl_" in answer["error"], answer
                assert f"failed on rank {number} of {SIZE}: " in answer["error"]
                assert "rank 1" in answer["error"]
                assert text.format(victim=victim) in answer["error"]
                assert fault != "wrong" or DIFFERENCES[name] in answer["error"]
                # A rank that comes later than the time-out of another hears from that one.
                assert answer["code"] == (REMOTE if "has failed before" in answer["error"] else code)
                assert answer["watchdog"] in answer["error"]
            later = job.answer(number)
            assert [f"{name} #2" in message for name, message in zip(COLLECTIVES, later, strict=True)] == [True] * 6
            assert job.ranks[number].wait() == 0
        if fault in ("missing", "wrong"):
            job.ranks[VICTIM].communicate("go on\n")
            assert job.ranks[VICTIM].returncode == 0
        if fault == "exception":
            job.ranks[VICTIM].wait()  # it says that it leaves before it has ended
    assert shared_memory() == before
    expected = {"SIGKILL": -signal.SIGKILL, "SIGSTOP": -signal.SIGKILL, "exception": 1}
    assert job.ranks[VICTIM].returncode == expected.get(fault, 0)
