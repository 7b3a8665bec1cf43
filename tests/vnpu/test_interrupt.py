"""Ctrl-C while the program waits for the device: Python's handler only notes it, so a second one ends the process.

The programs say which thread waits, and /proc when its wait has become long, from which on signals are counted.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from waiting import until
from waits import locks, waits

from torchport import vnpu

pytestmark = pytest.mark.device

# Where the tests are started in the background, SIGINT is ignored, and Python leaves it so.
START = """
import ctypes, signal, sys, threading
import hccl
from ascendcl import acl, answer, code, malloc
signal.signal(signal.SIGINT, signal.default_int_handler)
acl("aclrtSetDevice", 0)
queue, mark, word = answer("aclrtCreateStream"), answer("aclrtCreateEvent"), malloc(8)
acl("aclrtValueWait", word, 1, 1, queue)  # for ever, as a collective whose peer is late
acl("aclrtRecordEvent", mark, queue)

def come():
    acl("aclrtSetDevice", 0)
    acl("aclrtValueWrite", word, 1, 0, 0)

def when_told():
    for _ in sys.stdin:
        come()

def begins(doing):
    print(doing, threading.get_native_id())
"""
HINT = "a second Ctrl-C ends it"


class Program:
    """A process that waits for the device."""

    def __init__(self, text: str, errors: Path) -> None:
        environ = os.environ | vnpu.environment() | {"HCCL_CONNECT_TIMEOUT": "1000000"}
        folder = Path(__file__).parent
        environ["PYTHONPATH"] = os.pathsep.join([str(folder), str(folder / "distributed"), *sys.path])
        self.errors = errors
        with errors.open("w") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-u", "-c", START + text],
                env=environ,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )

    def says(self, line: str) -> int:
        """Reads the line and the number of the thread behind it, 0 if there is none."""
        assert self.process.stdout is not None
        said, _, thread = self.process.stdout.readline().strip().partition(" ")
        assert said == line, f"{said!r}\n{self.errors.read_text()}"
        return int(thread or 0)

    def sleeps(self, thread: int) -> None:
        """Until this thread waits for the device and has done so for long; the main thread waits for a mutex then."""
        main = self.process.pid
        until(lambda: self.lives() and waits(thread, main))
        if thread != main:
            until(lambda: self.lives() and locks(main, main))

    def lives(self) -> bool:
        assert self.process.poll() is None, self.errors.read_text()
        return True

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def tell(self) -> None:
        """Have the wait end."""
        print(file=self.process.stdin, flush=True)

    def hints(self, count: int) -> None:
        """Until the program has said so many times what a second Ctrl-C does."""
        until(lambda: self.lives() and self.errors.read_text().count(HINT) >= count)


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Callable[[str], Program]]:
    started = []

    def start(text: str) -> Program:
        started.append(Program(text, tmp_path / "stderr"))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.communicate()


Start = Callable[[str], Program]
WAITS = {
    "stream": 'code("aclrtSynchronizeStream", queue)',
    "device": 'code("aclrtSynchronizeDevice")',
    "event": 'code("aclrtSynchronizeEvent", mark)',
    "time-out": 'code("aclrtSynchronizeStreamWithTimeout", queue, 1_000_000_000)',
    "end of a stream": 'code("aclrtDestroyStream", queue)',
    "end of memory": 'code("aclrtFree", word)',
    "report": """acl("aclrtSubscribeReport", ctypes.c_uint64(threading.get_ident()), queue)
code("aclrtProcessReport", 1_000_000_000)""",
    "missing rank": "hccl.rank_of(hccl.root_info(), 0, 2).__enter__()",
    # As torch_npu's main thread waits for its task queue, where no signal is looked for.
    "other thread": """threading.Thread(target=lambda: (begins("waiting"), code("aclrtSynchronizeStream", queue))).start()
lock = ctypes.create_string_buffer(64)
for _ in range(2): ctypes.CDLL(None).pthread_mutex_lock(lock)""",
}


@pytest.mark.parametrize("wait", WAITS)
def test_the_second_ends_the_process(wait: str, program: Start) -> None:
    if wait == "other thread" and "libtsan" in os.environ.get("LD_PRELOAD", ""):
        pytest.skip("ThreadSanitizer keeps a signal back while its thread hangs in a function that it intercepts")
    begins = "" if wait == "other thread" else 'begins("waiting")\n'
    started = program(f'{begins}{WAITS[wait]}\nprint("over")')
    started.sleeps(started.says("waiting"))
    started.interrupt()
    started.hints(1)
    started.interrupt()
    assert started.process.wait() == -signal.SIGINT
    assert started.errors.read_text().count(HINT) == 1
    assert started.process.stdout is not None and started.process.stdout.read() == ""


def test_one_is_raised_when_the_wait_is_over_and_counts_for_that_wait_alone(program: Start) -> None:
    text = """
threading.Thread(target=when_told, daemon=True).start()
for round in range(2):
    try:
        begins("waiting")
        code("aclrtSynchronizeStream", queue)
        while True: signal.pause()
    except KeyboardInterrupt:
        print("interrupted")
    acl("aclrtMemset", word, 8, 0, 8)
    acl("aclrtValueWait", word, 1, 1, queue)
come()
for round in range(3):  # nothing waits for the device
    try:
        begins("computing")
        while True: signal.pause()
    except KeyboardInterrupt:
        print("interrupted")
"""
    started = program(text)
    for waiting in (1, 2):
        started.sleeps(started.says("waiting"))
        started.interrupt()
        started.hints(waiting)
        started.tell()
        started.says("interrupted")
    for _ in range(3):
        started.says("computing")
        started.interrupt()
        started.says("interrupted")
    assert started.process.wait() == 0
    assert started.errors.read_text().count(HINT) == 2


def test_a_program_without_a_handler_ends_at_the_first(program: Start) -> None:
    text = 'signal.signal(signal.SIGINT, signal.SIG_DFL)\nbegins("waiting")\ncode("aclrtSynchronizeStream", queue)'
    started = program(text)
    started.sleeps(started.says("waiting"))
    started.interrupt()
    assert started.process.wait() == -signal.SIGINT
    assert HINT not in started.errors.read_text()


def test_a_program_that_ignores_it_goes_on(program: Start) -> None:
    text = """
signal.signal(signal.SIGINT, signal.SIG_IGN)
threading.Thread(target=when_told, daemon=True).start()
begins("waiting")
acl("aclrtSynchronizeStream", queue)
print("over")
"""
    started = program(text)
    thread = started.says("waiting")
    for _ in range(3):
        started.sleeps(thread)
        started.interrupt()
    started.tell()
    started.says("over")
    assert started.process.wait() == 0
