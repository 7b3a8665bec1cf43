"""torch's threads for backward passes on devices, at the end of a process."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path

_NAME = "pt_autograd_"  # of a device's thread, in torch/csrc/autograd/engine.cpp (torch 2.13)
_WORKS = ("R", "D")  # states in proc(5): running or ready to run, waiting for a disk
_MOST = 2.0  # seconds; such a thread needs less than a millisecond, if it gets a core
_PAUSE = 0.001  # seconds


def await_backward_at_exit() -> None:
    """Let torch's backward threads finish before Python ends.

    A backward pass is over for the program before its device's thread has dropped the pass's GraphTask, which holds a
    Python object (torch 2.13: `_stash_obj_in_tls("context", ...)` in torch/autograd/graph.py). If Python ends
    first, CPython 3.11 ends the thread where it asks for the GIL, inside of a destructor, and the process is aborted:
    "terminate called without an active exception", in one of about 60 scripts that end with a backward pass on two
    cores.
    """
    threading._register_atexit(await_backward)  # type: ignore[attr-defined]  # before Python begins to end


def await_backward() -> None:
    """Return when no backward thread of torch works any more; after 2 seconds in any case."""
    end = time.monotonic() + _MOST
    quiet = 0
    # Twice: a thread that waited for the GIL gets it while this one sleeps.
    while quiet < 2 and time.monotonic() < end:
        time.sleep(_PAUSE)
        quiet = 0 if _is_one_at_work() else quiet + 1


def _is_one_at_work() -> bool:
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it has ended
            name, _, rest = (thread / "stat").read_text().partition("(")[2].rpartition(") ")
            if name.startswith(_NAME) and rest.startswith(_WORKS):
                return True
    return False
