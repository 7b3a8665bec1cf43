"""Stand-in for NVIDIA's `nvtx` package: its ranges and marks go to mstx, the NPU profiler's own.

Colours, categories, payloads and domains are taken and dropped, except for the domain's name. Without a
profiler that listens, mstx does nothing, as nvtx does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import TracebackType
from typing import Any

from torch_npu.npu import mstx

__version__ = "0.2.0"  # of the API that this module has

_DEFAULT = "default"


def mark(message: str | None = None, color: Any = None, domain: str | None = None, **ignored: Any) -> None:
    """An event of no length."""
    mstx.mark(message or " ", domain=domain or _DEFAULT)


def push_range(message: str | None = None, color: Any = None, domain: str | None = None, **ignored: Any) -> None:
    """Begin a range that the thread's next `pop_range` of that domain ends."""
    mstx.range_push(message or " ", domain=domain or _DEFAULT)


def pop_range(domain: str | None = None) -> None:
    """End the thread's innermost range of that domain."""
    mstx.range_pop(domain or _DEFAULT)


def start_range(
    message: str | None = None, color: Any = None, domain: str | None = None, **ignored: Any
) -> tuple[int, str]:
    """Begin a range that may end in another thread; what it returns is for `end_range`."""
    return mstx.range_start(message or " ", domain=domain or _DEFAULT), domain or _DEFAULT


def end_range(range_id: tuple[int, str]) -> None:
    """End the range that `start_range` began."""
    mstx.range_end(*range_id)


class annotate:  # noqa: N801  nvtx's own name
    """`with annotate("text"):` and `@annotate("text")`; a decorated function's name is the default text."""

    def __init__(
        self, message: str | None = None, color: Any = None, domain: str | None = None, **ignored: Any
    ) -> None:
        self.message = message
        self.domain = domain

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        message = self.message or function.__name__

        @functools.wraps(function)
        def annotated(*args: Any, **kwargs: Any) -> Any:
            with annotate(message, domain=self.domain):
                return function(*args, **kwargs)

        return annotated

    def __enter__(self) -> annotate:
        push_range(self.message, domain=self.domain)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pop_range(self.domain)
