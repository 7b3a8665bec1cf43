"""The end of a process that has stopped a device (`torch_npu.npu.stop_device`) and never started it again."""

from __future__ import annotations

import ctypes
import os
import sys
import threading

from torchport.vnpu.launches import MOST_DEVICES

_LIBRARY = "libvnpu.so"  # by its SONAME, as in `launches`


def restart_at_exit() -> None:
    """Start stopped devices again when the program's own code is over, before torch_npu shuts down.

    Behind a stopped device torch_npu (2.13) clears a table every millisecond, on a thread that goes on while the
    process ends, and the table is destroyed before the thread is joined: "corrupted double-linked list", in about one
    process of three. On a device that was started again the thread waits.
    """
    threading._register_atexit(_restart)  # type: ignore[attr-defined]  # before all functions of `atexit`


def _restart() -> None:
    torch_npu = sys.modules.get("torch_npu")
    if torch_npu is None:
        return
    library = ctypes.CDLL(_LIBRARY, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    try:
        aborts = library.vnpuAborts
    except AttributeError:
        return  # a build from before a device could be stopped
    aborts.restype = ctypes.c_uint64
    for device in range(MOST_DEVICES):
        if aborts(device) > 0:
            torch_npu._C._npu_restart_device(device)
