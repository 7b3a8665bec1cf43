"""Whether a thread sleeps until the device lets it go on: what a test has to know before it does what ends the wait."""

from __future__ import annotations

import os
import platform
import struct
import threading
import time
from pathlib import Path

from waiting import until

FUTEX = {"x86_64": 202, "aarch64": 98}[platform.machine()]  # the system call's number
WAIT, WAIT_BITSET = 0, 9
PRIVATE, REALTIME = 0x80, 0x100
LONG = 10  # seconds to its deadline: a wait looks again after 0.1 s until it counts as long, see csrc/device/doorbell.cpp


def waits(thread: int, process: int | str = "self") -> bool:
    """Whether that thread is in a wait of csrc/device/doorbell.h that has become long, or waits for a mutex.

    Python's own locks sleep on the realtime clock, or for the GIL not as long.
    """
    folder = Path(f"/proc/{process}/task/{thread}")
    number, *arguments = (folder / "syscall").read_text().split()
    if number != str(FUTEX):
        return False
    operation, deadline = (int(arguments[place], 16) for place in (1, 3))
    if operation & REALTIME:
        return False
    if operation & ~PRIVATE == WAIT and deadline == 0:
        return True
    if operation & ~PRIVATE != WAIT_BITSET or deadline == 0:
        return False
    try:
        with (folder / "mem").open("rb", buffering=0) as memory:
            memory.seek(deadline)
            seconds, _ = struct.unpack("qq", memory.read(16))
    except OSError:  # it waits no more
        return False
    return bool(seconds - time.monotonic() > LONG)


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
