"""How many operators the virtual NPU has run in this process: the evidence that a program has used it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

# The SONAME of the virtual NPU's machine: a library that is loaded is found by it, one that is not stays out.
_LIBRARY = "libvnpu.so"
_FUNCTION = "vnpuLaunches"
_BY_DEVICE = "vnpuDeviceLaunches"
MOST_DEVICES = 64  # VNPU_DEVICES
_count: Callable[[], int] | None = None  # once the library is loaded
_count_of: Callable[[int], int] | None = None


def launches() -> int | None:
    """The operators that the NPU's streams have run since this process began; None where nobody counts them.

    Counted is each operator of the current and of the legacy API that has run to its end, again in each replay of a
    graph. Copies and casts to private formats are not, nor are collectives. A process that was forked goes on with
    the count of the one it comes from.

    The count lags behind the program: torch_npu hands operators to a thread of its own (TASK_QUEUE_ENABLE=1) and
    streams are asynchronous. Call `torch.npu.synchronize()` first for the count of all that was asked for; without
    it, an operator of one training step may be counted in the next.

    None on hardware with CANN, and where no virtual NPU is loaded (torch_npu was not imported, or not yet). Loads
    nothing.
    """
    count = _find_count()
    return None if count is None else int(count())


def launches_by_device() -> dict[int, int] | None:
    """The same for each device that this process has opened, by its number here; None if nothing counts them.

    In dry mode nothing does: the devices compute nothing. Loads nothing and opens no device.
    """
    global _count_of
    if _count_of is None:
        if os.environ.get("VNPU_MODE") == "dry":
            return None
        _count_of = _find_function(_BY_DEVICE, ctypes.c_int64, ctypes.c_int)
    count_of = _count_of
    if count_of is None:
        return None
    counts = ((device, int(count_of(device))) for device in range(MOST_DEVICES))
    return {device: count for device, count in counts if count >= 0}


def _find_count() -> Callable[[], int] | None:
    global _count  # asked twice a step, and looking it up takes 0.1 ms
    if _count is None:
        _count = _find_function(_FUNCTION, ctypes.c_uint64)
    return _count


def _find_function(name: str, result: Any, *arguments: Any) -> Callable[..., int] | None:
    try:
        library = ctypes.CDLL(_LIBRARY, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return None  # not loaded
    try:
        function = library[name]
    except AttributeError:
        return None  # a build from before there was a count
    function.restype = result
    function.argtypes = arguments
    return function
