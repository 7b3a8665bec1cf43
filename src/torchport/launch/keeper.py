"""Run a command so that nothing of it is left when it ends, is stopped, or we are, by SIGKILL too.

Between us and the command stands a keeper, a fork of this process. Orphans of the command become the keeper's children
(PR_SET_CHILD_SUBREAPER, Linux 3.4), also those that left its process group, so the keeper sees all of them; and it
notices the end of a pipe when we are gone. It ends them all before it ends itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import os
import select
import signal
import subprocess
import termios
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from torchport.errors import TorchportError

POLL_SECONDS = 0.1
GRACE_SECONDS = 2.0  # between the request to end and the order
STACK_SECONDS = 0.5  # for SIGUSR1 to be answered with the stacks of all threads
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_STARTING = threading.Lock()
_OURS: set[int] = set()  # our ends of the pipes of all keepers: no keeper may hold another's open
MOST_READS = 1000  # of a command from its terminal, which end at once; a terminal holds 4,095 bytes that are not read
STOP = b"s"  # what we tell the keeper; the end of the pipe means that we are gone


@dataclasses.dataclass(frozen=True, slots=True)
class Ended:
    """`status` is the exit code, or minus the signal's number; `stopped` is why we ended it, "" where we did not."""

    status: int
    seconds: float
    stopped: str


def run_with_keeper(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    stdout: Path,
    stderr: Path,
    watch: Callable[[float], str],
) -> Ended:
    """Run `command` in `folder` in a session of its own, its output in files, until it ends. Its input is at its end: a
    terminal of our own size if ours is one (scripts ask it for its width), else the null device.

    `watch(seconds)` is called about ten times a second; what it returns, unless it is "", is why the command is to be
    stopped: its Python processes get SIGUSR1 (the recorder writes stacks then), then all of it is ended. However this
    function is left, by an exception too, no process that the command started is. Several threads may do so at once.
    Raises TorchportError where the command cannot be started.
    """
    start = time.monotonic()
    with _STARTING:  # a keeper forked between the pipes and the fork of another would keep that one's pipes open
        told, tell = os.pipe()
        answer, answered = os.pipe()
        _OURS.update((tell, answer))
        parent = os.getpid()
        keeper = os.fork()
        if keeper == 0:
            for descriptor in _OURS:
                os.close(descriptor)
            _keep(command, environment, folder, stdout, stderr, told, answered, parent)
        os.close(told)
        os.close(answered)
    stopped = ""
    try:
        while not select.select([answer], [], [], POLL_SECONDS)[0]:
            if not stopped and (stopped := watch(time.monotonic() - start)):
                os.write(tell, STOP)
        text = b"".join(iter(lambda: os.read(answer, 4096), b"")).decode()
    finally:
        with _STARTING:
            _OURS.difference_update((tell, answer))
            os.close(tell)  # the keeper ends what is left
            os.close(answer)
        os.waitpid(keeper, 0)
    kind, _, detail = text.partition(" ")
    if kind != "status":
        raise TorchportError(f"{command[0]} could not be started: {detail or 'its keeper was killed'}")
    return Ended(int(detail), time.monotonic() - start, stopped)


def _keep(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    stdout: Path,
    stderr: Path,
    told: int,
    answered: int,
    parent: int,
) -> NoReturn:
    """The keeper: never returns to what it was forked from."""
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # ours to receive; it follows us by the pipe
        os.setsid()
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
        _answer(answered, _kept(command, environment, folder, stdout, stderr, told, parent))
    except OSError as error:
        _answer(answered, f"error {error.strerror}: {error.filename}")
    except BaseException:
        _answer(answered, f"error {traceback.format_exc()}")
    finally:
        os._exit(0)


def _answer(answered: int, text: str) -> None:
    with contextlib.suppress(BrokenPipeError):  # nobody is there to hear it
        os.write(answered, text.encode("utf-8", "backslashreplace"))


def _kept(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    stdout: Path,
    stderr: Path,
    told: int,
    parent: int,
) -> str:
    with empty_input() as source:
        with open(stdout, "wb") as out, open(stderr, "wb") as err:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdin=source,
                stdout=out,
                stderr=err,
                start_new_session=True,
                preexec_fn=_as_before,
            )
        grace = GRACE_SECONDS
        while process.poll() is None:
            if select.select([told], [], [], POLL_SECONDS)[0]:
                if os.read(told, 1) == STOP:
                    for descendant in list_descendants():
                        if _is_python(descendant):
                            _signal(descendant, signal.SIGUSR1)
                    time.sleep(STACK_SECONDS)
                elif os.getppid() != parent:
                    grace = 0.0  # who waits for us was killed, and may be started again
                break
            _reap(process.pid)
        _end_all(process, grace)
    return f"status {process.returncode}"


@contextlib.contextmanager
def empty_input() -> Iterator[int]:
    """A descriptor to read from that is at its end: a terminal of our own's size, or the null device without one."""
    if not os.isatty(0):
        yield subprocess.DEVNULL
        return
    ours, theirs = os.openpty()
    try:
        termios.tcsetwinsize(theirs, termios.tcgetwinsize(0))
        os.write(ours, MOST_READS * b"\x04")  # VEOF: ends one read each
        yield theirs
    finally:
        os.close(ours)
        os.close(theirs)


def _as_before() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def _end_all(process: subprocess.Popen[bytes], grace: float) -> None:
    deadline = time.monotonic() + grace
    for descendant in list_descendants() if grace else ():
        _signal(descendant, signal.SIGTERM)
    while (left := list_descendants()) and time.monotonic() < deadline:
        process.poll()
        _reap(process.pid)
        time.sleep(0.02)
    while left:
        for one in left:
            _signal(one, signal.SIGKILL)
        process.poll()
        _reap(process.pid)
        time.sleep(0.02)
        left = list_descendants()
    process.wait()


def _reap(besides: int) -> None:
    """Take the statuses of orphans that ended; that of the command belongs to its Popen."""
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None or ended.si_pid == besides:
            return
        os.waitpid(ended.si_pid, 0)


def list_descendants() -> list[int]:
    """The living processes below this one; zombies do not count. Reads /proc, as Linux has no call for it."""
    parents: dict[int, int] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError):  # it ended meanwhile
                fields = Path(entry.path, "stat").read_bytes().rpartition(b")")[2].split()
                if fields[0] not in (b"Z", b"X"):
                    parents[int(entry.name)] = int(fields[1])
    found: list[int] = []
    waiting = [os.getpid()]
    while waiting:
        above = waiting.pop()
        below = [one for one, parent in parents.items() if parent == above]
        found += below
        waiting += below
    return found


def _is_python(process: int) -> bool:
    with contextlib.suppress(OSError):
        return "python" in os.path.basename(os.readlink(f"/proc/{process}/exe"))
    return False


def _signal(process: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, number)


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
