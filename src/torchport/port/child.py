"""Run a program so that nothing of it is left when it ends, is stopped, or we are."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

POLL_SECONDS = 0.1
GRACE_SECONDS = 2.0  # between the request to end and the order
STACK_SECONDS = 0.5  # for SIGUSR1 to be answered with the stacks of all threads


@dataclasses.dataclass(frozen=True, slots=True)
class Ended:
    """`status` is the exit code, or minus the signal's number; `timed_out` where we stopped it."""

    status: int
    seconds: float
    timed_out: bool


def run(
    command: Sequence[str],
    environment: Mapping[str, str],
    stdout: Path,
    stderr: Path,
    timeout: float | None,
    watch: Callable[[float], None],
) -> Ended:
    """Run `command` in a process group of its own, its output in files, without input, until it ends.

    `watch(seconds)` is called about ten times a second. After `timeout` seconds the program gets SIGUSR1 (the
    recorder writes stacks then) and is ended. However this function is left, by an exception too, no process
    of the group is.
    """
    start = time.monotonic()
    with open(stdout, "wb") as out, open(stderr, "wb") as err:
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
        )
        timed_out = False
        try:
            # The leader stays unreaped until its group is gone, so that the group's number cannot be anybody
            # else's.
            while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                seconds = time.monotonic() - start
                watch(seconds)
                if timeout is not None and seconds > timeout:
                    timed_out = True
                    os.kill(process.pid, signal.SIGUSR1)
                    time.sleep(STACK_SECONDS)
                    break
                time.sleep(POLL_SECONDS)
        finally:
            _end_group(process)
    return Ended(process.returncode, time.monotonic() - start, timed_out)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + GRACE_SECONDS
    os.killpg(process.pid, signal.SIGTERM)
    while _group_lives(process.pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _group_lives(group: int) -> bool:
    """Whether a process of the group still runs; zombies do not count. Reads /proc, as Linux has no call for
    it."""
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError):  # it ended meanwhile
                fields = Path(entry.path, "stat").read_text().rpartition(")")[2].split()
                if int(fields[2]) == group and fields[0] not in "ZX":
                    return True
    return False


@contextlib.contextmanager
def signals_unwind() -> Iterator[None]:
    """Make SIGTERM and SIGHUP leave the block as an exception, so that clean-up runs; exit code 128 +
    signal."""

    def leave(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    previous = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
