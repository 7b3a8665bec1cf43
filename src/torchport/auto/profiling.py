"""torch.profiler and nvtx. The profiler stays torch's own: `key_averages()` and its columns are what a script uses.

`ProfilerActivity.CUDA` becomes that of the NPU where CANN's profiling library is found; else host times are all that
there is, and the log says so.
"""

from __future__ import annotations

import ctypes
import itertools
import operator
from typing import Any

from torchport.auto.log import Log
from torchport.patches import Patches, disguise

# What torch_npu opens by name, when a profile of the NPU starts and when mstx is first used.
DEVICE_TIMES, MARKS = "libmspti.so", "libmsprofiler.so"
NO_DEVICE_TIMES = f"there are no device times without {DEVICE_TIMES} of CANN; host times are measured"


def patch_profilers(torch: Any, patches: Patches, log: Log) -> None:
    """Patch the profilers and torch.cuda.nvtx."""
    activity = torch.profiler.ProfilerActivity
    measures_device = _loadable(DEVICE_TIMES) and hasattr(activity, "NPU")

    def kineto(original: Any) -> Any:
        def init(this: Any, *, activities: Any = None, **kwargs: Any) -> None:
            if activities is None:
                activities = [activity.CPU] if not measures_device else None
            elif activity.CUDA in activities:
                if measures_device:
                    log.count_redirected_call(
                        "torch.profiler.ProfilerActivity.CUDA", "torch.profiler.ProfilerActivity.NPU"
                    )
                    activities = {activity.NPU if each == activity.CUDA else each for each in activities}
                else:
                    log.count_unsupported_call("torch.profiler.ProfilerActivity.CUDA", NO_DEVICE_TIMES)
                    activities = {each for each in activities if each != activity.CUDA} or {activity.CPU}
            original(this, activities=activities, **kwargs)

        return init

    def autograd(original: Any) -> Any:
        def init(this: Any, enabled: bool = True, *, use_cuda: bool = False, **kwargs: Any) -> None:
            if use_cuda or kwargs.get("use_device") == "cuda":
                kwargs["use_device"] = "npu" if measures_device else None
                if measures_device:
                    log.count_redirected_call("torch.autograd.profiler.profile(use_cuda=True)", 'use_device="npu"')
                else:
                    log.count_unsupported_call("torch.autograd.profiler.profile(use_cuda=True)", NO_DEVICE_TIMES)
            original(this, enabled, **kwargs)

        return init

    patches.wrap(torch.profiler._KinetoProfile, "__init__", kineto)
    patches.wrap(torch.autograd.profiler.profile, "__init__", autograd)
    _restore_columns(torch.autograd.profiler_util, patches)
    _patch_nvtx(torch, patches, log)


def _restore_columns(module: Any, patches: Patches) -> None:
    """The attributes of an event that were named after CUDA until torch 2.6."""
    for cls in (module.FunctionEvent, module.FunctionEventAvg):
        for attribute in ("device_time", "device_time_total", "self_device_time_total"):
            patches.set(cls, attribute.replace("device", "cuda"), property(operator.attrgetter(attribute)))


def _patch_nvtx(torch: Any, patches: Patches, log: Log) -> None:
    """Ranges and marks go to mstx, where a profiler of CANN can listen. Without its library torch_npu would print an
    error to stdout at each of them; then they do nothing, as without a listening profiler on a GPU.
    """
    nvtx, mstx, listens = torch.cuda.nvtx, torch.npu.mstx, _loadable(MARKS)
    open_ranges: list[Any] = []
    numbers = itertools.count(1)

    def tell(name: str, *args: Any) -> Any:
        log.count_redirected_call(f"torch.cuda.nvtx.{name}", f"torch.npu.mstx.{name}")
        return getattr(mstx, name)(*args) if listens else None

    def range_push(msg: str) -> int:
        tell("range_push", msg)
        open_ranges.append(msg)
        return len(open_ranges) - 1

    def range_pop() -> int:
        tell("range_pop")
        if open_ranges:
            open_ranges.pop()
        return len(open_ranges)

    def range_start(msg: str) -> int:
        return tell("range_start", msg) or next(numbers)

    def range_end(range_id: int) -> None:
        tell("range_end", range_id)

    def mark(msg: str) -> None:
        tell("mark", msg)

    for function in (range_push, range_pop, range_start, range_end, mark):
        patches.set(nvtx, function.__name__, disguise(function, getattr(nvtx, function.__name__)))


def _loadable(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True
