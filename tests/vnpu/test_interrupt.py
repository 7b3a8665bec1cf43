"""Ctrl-C while the program waits for the device: Python's handler only notes it, so a second one ends the process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from torchport import vnpu

pytestmark = pytest.mark.device

# Where the tests are started in the background, SIGINT is ignored, and Python leaves it so.
START = """
import ctypes, signal, threading, time
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
"""


@contextmanager
def program(text: str) -> Iterator[subprocess.Popen[str]]:
    environ = os.environ | vnpu.environment() | {"HCCL_CONNECT_TIMEOUT": "120"}
    folder = Path(__file__).parent
    environ["PYTHONPATH"] = os.pathsep.join([str(folder), str(folder / "distributed"), *sys.path])
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-u", "-c", START + text], env=environ, stdout=pipe, stderr=pipe, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def until(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout is not None
    said = process.stdout.readline()
    if said.strip() != line:
        process.kill()
        raise AssertionError(f"{said!r}\n{process.stderr.read() if process.stderr else ''}")


def interrupt(process: subprocess.Popen[str]) -> None:
    time.sleep(0.5)  # the wait has become long
    process.send_signal(signal.SIGINT)


WAITS = {
    "stream": 'code("aclrtSynchronizeStream", queue)',
    "device": 'code("aclrtSynchronizeDevice")',
    "event": 'code("aclrtSynchronizeEvent", mark)',
    "time-out": 'code("aclrtSynchronizeStreamWithTimeout", queue, 100_000)',
    "end of a stream": 'code("aclrtDestroyStream", queue)',
    "end of memory": 'code("aclrtFree", word)',
    "report": """acl("aclrtSubscribeReport", ctypes.c_uint64(threading.get_ident()), queue)
code("aclrtProcessReport", 100_000)""",
    "missing rank": "hccl.rank_of(hccl.root_info(), 0, 2).__enter__()",
    # As torch_npu's main thread waits for its task queue, where no signal is looked for.
    "other thread": """threading.Thread(target=lambda: code("aclrtSynchronizeStream", queue)).start()
lock = ctypes.create_string_buffer(64)
for _ in range(2): ctypes.CDLL(None).pthread_mutex_lock(lock)""",
}


@pytest.mark.parametrize("wait", WAITS)
def test_the_second_ends_the_process(wait: str) -> None:
    if wait == "other thread" and "libtsan" in os.environ.get("LD_PRELOAD", ""):
        pytest.skip(
            "ThreadSanitizer keeps a signal back while its thread hangs in a function that it intercepts"
        )
    with program(f'print("waiting")\n{WAITS[wait]}\nprint("over")') as process:
        until(process, "waiting")
        interrupt(process)
        time.sleep(0.3)
        assert process.poll() is None
        interrupt(process)
        assert process.wait(20) == -signal.SIGINT
        assert process.stderr is not None
        assert "a second Ctrl-C ends it" in process.stderr.read()


def test_one_is_raised_when_the_wait_is_over_and_counts_for_that_wait_alone() -> None:
    text = """
for round in range(2):
    print("waiting")
    threading.Timer(1, come).start()
    try:
        code("aclrtSynchronizeStream", queue)
        time.sleep(5)
    except KeyboardInterrupt:
        print("interrupted")
    acl("aclrtMemset", word, 8, 0, 8)
    acl("aclrtValueWait", word, 1, 1, queue)
come()
for round in range(3):  # nothing waits for the device
    print("computing")
    try:
        time.sleep(20)
    except KeyboardInterrupt:
        print("interrupted")
"""
    with program(text) as process:
        for said in ("waiting", "waiting", "computing", "computing", "computing"):
            until(process, said)
            interrupt(process)
            until(process, "interrupted")
        assert process.wait(20) == 0


def test_a_program_without_a_handler_ends_at_the_first() -> None:
    text = 'signal.signal(signal.SIGINT, signal.SIG_DFL)\nprint("waiting")\ncode("aclrtSynchronizeStream", queue)'
    with program(text) as process:
        until(process, "waiting")
        interrupt(process)
        assert process.wait(20) == -signal.SIGINT


def test_a_program_that_ignores_it_goes_on() -> None:
    text = """
signal.signal(signal.SIGINT, signal.SIG_IGN)
print("waiting")
threading.Timer(2.5, come).start()
acl("aclrtSynchronizeStream", queue)
print("over")
"""
    with program(text) as process:
        until(process, "waiting")
        for _ in range(3):
            interrupt(process)
        until(process, "over")
        assert process.wait(20) == 0
