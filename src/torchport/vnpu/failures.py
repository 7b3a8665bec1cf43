"""Failures on the virtual NPU that a program never sees: it ends without having waited for the operator."""

from __future__ import annotations

import ctypes
import os
import threading

_LIBRARY = "libvnpu.so"  # by its SONAME, as in `launches`


def fail_unless_seen() -> None:
    """End this process with 1 and a line on stderr, if it would end with 0 although an operator has failed whose
    failure the program has not seen.

    For a process that uses the virtual NPU; does nothing in others. What the program sees counts until its own code
    is over: before Python's `atexit` functions, in one of which torch_npu waits for its devices and only warns.
    """
    threading._register_atexit(_over)  # type: ignore[attr-defined]


def _over() -> None:
    try:
        library = ctypes.CDLL(_LIBRARY, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return  # not loaded
    try:
        library.vnpuFailUnlessSeen()
    except AttributeError:
        return  # a build from before this was asked for
