"""What a run needs of torch that older releases have elsewhere: a script on a GPU brings its own, from 2.1 on."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

OLDEST = (2, 1)


def get_torch_release(torch: Any) -> tuple[int, int]:
    """Major and minor number of the imported torch."""
    major, minor = str(torch.__version__).split(".")[:2]
    return int(major), int(minor)


def is_compiling(torch: Any) -> bool:
    """Whether dynamo or torch.jit traces what calls: what is looked at then becomes a part of the graph. Before torch
    2.2, which cannot say so of dynamo outside of it, False for dynamo: what asks breaks the graph then."""
    ask = getattr(torch.compiler, "is_compiling", None)
    return bool((ask is not None and ask()) or torch.jit.is_tracing())


def is_within_transform(torch: Any) -> bool:
    """Whether a transform of torch.func (`vmap`, `grad`) runs what calls: tensors are wrappers there, without data."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def is_capturing(torch: Any) -> bool:
    """Whether a graph of the device is being captured in the current stream: nothing can be read or waited for."""
    for name in ("npu", "cuda"):
        device = vars(torch).get(name)  # getattr for what torch lacks takes long
        if device is not None and hasattr(device, "is_current_stream_capturing") and device.is_initialized():
            return bool(device.is_current_stream_capturing())
    return False


def find_scheduler(torch: Any) -> Any:
    """The class of learning-rate schedules: without its underscore from torch 2.0 on."""
    schedules = torch.optim.lr_scheduler
    return getattr(schedules, "LRScheduler", None) or schedules._LRScheduler


def grad_scaler(torch: Any) -> Any:
    """The class of all gradient scalers; before torch 2.3 that of CUDA was the only one."""
    return getattr(torch.amp, "GradScaler", None) or torch.cuda.amp.GradScaler


RAISED = object()  # what a module gave that raised


def after_modules(torch: Any, hook: Callable[[Any, Any, Any, Any], None]) -> Any:
    """Call `hook(module, args, kwargs, outputs)` after each call of a module, also of one that raised (as a checkpoint
    ends what it repeats): its outputs are RAISED, or None in old releases, which pass no kwargs to hooks. Gives what
    removes it."""
    register = torch.nn.modules.module.register_module_forward_hook
    if "with_kwargs" in inspect.signature(register).parameters:

        def either(module: Any, args: Any, *rest: Any) -> None:
            # torch leaves the kwargs out where the call has raised.
            if len(rest) == 2:
                hook(module, args, *rest)
            else:
                hook(module, args, {}, RAISED)

        return register(either, with_kwargs=True, always_call=True)

    def without(module: Any, args: Any, outputs: Any) -> None:
        # Called by Module._call_impl(self, *args, **kwargs), which older releases keep the names to themselves in.
        hook(module, args, sys._getframe(1).f_locals.get("kwargs", {}), outputs)

    return register(without, always_call=True)
