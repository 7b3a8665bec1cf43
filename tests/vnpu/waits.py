"""Whether a thread sleeps until the device lets it go on: what a test has to know before it does what ends the wait."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import threading
import time
from pathlib import Path

from waiting import until

FUTEX = {"x86_64": 202, "aarch64": 98}[platform.machine()]  # the system call's number
WAIT, WAIT_BITSET = 0, 9
PRIVATE = 0x80
LONG = (
    10  # seconds to its deadline: a wait looks again after 0.1 s until it counts as long, see csrc/device/doorbell.cpp
)


def _libc(process: int | str) -> int:
    """The address of libc in that process."""
    for line in Path(f"/proc/{process}/maps").read_text().splitlines():
        if "/libc.so" in line or "/libc-" in line:
            return int(line.partition("-")[0], 16)
    raise ProcessLookupError(f"process {process} has ended")


# csrc/device/doorbell.cpp sleeps in libc's syscall(), what waits for a mutex or for Python's GIL elsewhere in libc.
_SYSCALL = ctypes.cast(ctypes.CDLL(None).syscall, ctypes.c_void_p).value or 0
_PLACE = _SYSCALL - _libc("self")
_SIZE = 64


def _sleeps(thread: int, process: int | str) -> tuple[int, int, int] | None:
    """The operation, the address of the deadline and the place in libc of a thread that sleeps on a futex."""
    number, *words = Path(f"/proc/{process}/task/{thread}/syscall").read_text().split()
    if number != str(FUTEX):
        return None
    return int(words[1], 16) & ~PRIVATE, int(words[3], 16), int(words[-1], 16) - _libc(process)


def waits(thread: int, process: int | str = "self") -> bool:
    """Whether that thread is in a wait for the device that has become long."""
    found = _sleeps(thread, process)
    if found is None:
        return False
    operation, deadline, place = found
    if not 0 <= place - _PLACE < _SIZE or operation not in (WAIT, WAIT_BITSET):
        return False
    if deadline == 0:
        return operation == WAIT
    try:
        with open(f"/proc/{process}/task/{thread}/mem", "rb", buffering=0) as memory:
            memory.seek(deadline)
            seconds, _ = struct.unpack("qq", memory.read(16))
    except OSError:  # it waits no more
        return False
    return bool(seconds - time.monotonic() > LONG)


def locks(thread: int, process: int | str) -> bool:
    """Whether that thread waits for a mutex."""
    found = _sleeps(thread, process)
    return found is not None and found[:2] == (WAIT, 0) and not 0 <= found[2] - _PLACE < _SIZE


def falls_asleep(thread: threading.Thread) -> bool:
    """Waits until the thread waits for the device, True, or has ended instead, False."""
    # Python 3.11 does not bring the main thread's number up to date in a fork.
    number = os.getpid() if thread is threading.main_thread() else thread.native_id
    assert number is not None

    def asleep() -> bool:
        try:
            return waits(number)
        except (FileNotFoundError, ProcessLookupError):
            return False

    until(lambda: not thread.is_alive() or asleep())
    return thread.is_alive()
