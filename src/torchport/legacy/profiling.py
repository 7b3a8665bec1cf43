"""torch.npu.profile and its kin, on torch_npu.profiler; autograd's profiler with use_npu."""

from __future__ import annotations

import ctypes
import warnings
from types import TracebackType
from typing import Any

import torch
from torch.autograd import profiler_util

from torchport.patches import Patches

__all__ = [
    "iteration_end",
    "iteration_start",
    "prof_finalize",
    "prof_init",
    "prof_start",
    "prof_stop",
    "profile",
    "profileConfig",
]

# What torch_npu.profiler opens to get the device's own times; without it there are host times alone.
DEVICE_PROFILER = "libmsprofiler.so"
# CANN's numbers (ACL_AICORE_*) of what the AI cores' counters count.
METRICS = ("ArithmeticUtilization", "PipeUtilization", "Memory", "MemoryL0", "ResourceConflictRatio")


class profileConfig:  # noqa: N801  the old name
    """Which data CANN collects. `aiCoreMetricsType` is an index of METRICS; TORCH_CALL_STACK adds Python's stack."""

    def __init__(
        self,
        ACL_PROF_ACL_API: bool = True,  # noqa: N803
        ACL_PROF_TASK_TIME: bool = True,  # noqa: N803
        ACL_PROF_AICORE_METRICS: bool = True,  # noqa: N803
        ACL_PROF_AICPU: bool = True,  # noqa: N803
        ACL_PROF_L2CACHE: bool = False,  # noqa: N803
        ACL_PROF_HCCL_TRACE: bool = True,  # noqa: N803
        ACL_PROF_TRAINING_TRACE: bool = False,  # noqa: N803
        TORCH_CALL_STACK: bool = False,  # noqa: N803
        aiCoreMetricsType: int = 1,  # noqa: N803
    ) -> None:
        if not 0 <= aiCoreMetricsType < len(METRICS):
            raise ValueError(f"aiCoreMetricsType is 0 to {len(METRICS) - 1}, not {aiCoreMetricsType}")
        self.call_stack = TORCH_CALL_STACK
        self.l2_cache = ACL_PROF_L2CACHE
        self.detailed = ACL_PROF_AICORE_METRICS or ACL_PROF_AICPU or ACL_PROF_HCCL_TRACE
        self.metrics = METRICS[aiCoreMetricsType] if ACL_PROF_AICORE_METRICS else None


class profile:  # noqa: N801  the old name
    """`with torch.npu.profile(path, config):` collects the block's operators into files below `path`.

    The files are those of torch_npu.profiler (trace_view.json, operator_details.csv ...), which `torchport profile`
    and MindStudio Insight read. Where the device cannot measure itself, they hold host times, with a warning.
    """

    def __init__(
        self, profiler_result_path: str = "./", use_e2e_profiler: Any = False, config: profileConfig | None = None
    ) -> None:
        if isinstance(use_e2e_profiler, profileConfig):  # the guide's order: (path, config)
            use_e2e_profiler, config = False, use_e2e_profiler
        self._profiler = _make(str(profiler_result_path), config or profileConfig())

    def __enter__(self) -> profile:
        self._profiler.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        torch.npu.synchronize()
        self._profiler.stop()


class _Running:
    """What prof_init to prof_finalize work on, one for a process as in CANN."""

    path: str | None = None
    profiler: Any = None
    iteration: Any = None  # the range of the step that is running
    count = 0


def prof_init(path: str) -> None:
    """Choose the folder for profiles."""
    if _Running.path is not None:
        raise RuntimeError("torch.npu.prof_init was called before; call prof_finalize first.")
    _Running.path = str(path)


def prof_start(config: profileConfig | None = None) -> None:
    """Begin collecting; after `prof_init`."""
    if _Running.path is None or _Running.profiler is not None:
        raise RuntimeError("torch.npu.prof_start comes after prof_init, and once until prof_stop.")
    _Running.profiler = _make(_Running.path, config or profileConfig())
    _Running.profiler.start()


def iteration_start() -> None:
    """Mark the beginning of a training step."""
    if _Running.profiler is None or _Running.iteration is not None:
        raise RuntimeError("torch.npu.iteration_start comes after prof_start, or after iteration_end.")
    _Running.iteration = torch.profiler.record_function(f"iteration#{_Running.count}")
    _Running.iteration.__enter__()


def iteration_end() -> None:
    """Mark the end of a training step: the profile has it as a range `iteration#<n>`, counted from 0."""
    if _Running.iteration is None:
        raise RuntimeError("torch.npu.iteration_end comes after iteration_start.")
    _Running.iteration.__exit__(None, None, None)
    _Running.iteration = None
    _Running.count += 1
    _Running.profiler.step()


def prof_stop() -> None:
    """End collecting and write the files."""
    if _Running.profiler is None:
        raise RuntimeError("torch.npu.prof_stop comes after prof_start.")
    torch.npu.synchronize()
    profiler, _Running.profiler, _Running.iteration, _Running.count = _Running.profiler, None, None, 0
    profiler.stop()


def prof_finalize() -> None:
    """The end of what `prof_init` began; collects no more."""
    if _Running.path is None:
        raise RuntimeError("torch.npu.prof_finalize comes after prof_init.")
    if _Running.profiler is not None:
        prof_stop()
    _Running.path = None


def _make(path: str, config: profileConfig) -> Any:
    import torch_npu.profiler as npu_profiler

    activities = [npu_profiler.ProfilerActivity.CPU]
    experimental = None
    if _loadable(DEVICE_PROFILER):
        activities.append(npu_profiler.ProfilerActivity.NPU)
        experimental = npu_profiler._ExperimentalConfig(
            profiler_level=getattr(npu_profiler.ProfilerLevel, "Level1" if config.detailed else "Level0"),
            aic_metrics=getattr(npu_profiler.AiCMetrics, config.metrics) if config.metrics else None,
            l2_cache=config.l2_cache,
        )
    else:
        warnings.warn(f"There is no {DEVICE_PROFILER} here: the profile in {path} has host times alone.", stacklevel=4)
    return npu_profiler.profile(
        activities=activities,
        on_trace_ready=npu_profiler.tensorboard_trace_handler(path),
        with_stack=config.call_stack,
        experimental_config=experimental,
    )


def _loadable(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def patch_autograd(patches: Patches) -> None:
    """Let torch.autograd.profiler.profile take use_npu and use_npu_simple again."""
    cls = torch.autograd.profiler.profile

    def init(original: Any) -> Any:
        def construct(
            this: Any, enabled: bool = True, *, use_npu: bool = False, use_npu_simple: bool = False, **kwargs: Any
        ) -> None:
            if use_npu:
                kwargs["use_device"] = "npu"
            original(this, enabled, **kwargs)
            this.leaves_only = use_npu_simple

        return construct

    def leave(original: Any) -> Any:
        def exit_(this: Any, *args: Any) -> Any:
            result = original(this, *args)
            if getattr(this, "leaves_only", False) and this.enabled:
                _keep_leaves(this)
            return result

        return exit_

    patches.wrap(cls, "__init__", init)
    patches.wrap(cls, "__exit__", leave)


def _keep_leaves(profiled: Any) -> None:
    """Forget the operators that called other operators: the table and the trace have those at the bottom."""
    events = profiled.function_events
    leaves = profiler_util.EventList(
        [event for event in events if not event.cpu_children],
        use_device=profiled.use_device,
        profile_memory=profiled.profile_memory,
        with_flops=profiled.with_flops,
    )
    leaves._tree_built = True  # there is none left to build
    profiled._function_events = leaves
    profiled.export_chrome_trace = leaves.export_chrome_trace  # the class's own writes what Kineto has kept
