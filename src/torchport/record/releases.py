"""What a run needs of torch that older releases have elsewhere: a script on a GPU brings its own, from 2.1 on."""

from __future__ import annotations

from typing import Any

OLDEST = (2, 1)


def release(torch: Any) -> tuple[int, int]:
    """Major and minor number of the imported torch."""
    major, minor = str(torch.__version__).split(".")[:2]
    return int(major), int(minor)


def is_compiling(torch: Any) -> bool:
    """Whether dynamo traces what calls; before torch 2.2, which cannot say so outside of dynamo, False: what asks
    breaks the graph then."""
    ask = getattr(torch.compiler, "is_compiling", None)
    return ask is not None and bool(ask())


def grad_scaler(torch: Any) -> Any:
    """The class of all gradient scalers; before torch 2.3 that of CUDA was the only one."""
    return getattr(torch.amp, "GradScaler", None) or torch.cuda.amp.GradScaler
