"""Faults inside of operators: what a kernel might do wrong, put below the recorder, which sees nothing of it.

Each is a name, a program, the operator (any of its names: CPU and NPU call others), which of its calls in a step (from 0),
the module whose forward call or gradient it is (what a report has to name), and what becomes of the results.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


@dataclasses.dataclass(frozen=True)
class Fault:
    name: str
    program: str
    operators: tuple[str, ...]
    call: int
    change: Callable[..., Any]
    """Of function, arguments and what it gave: what is given in its place. In-place operators are changed in place."""
    kind: str = "precision"


def _replaced(place: int, value: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Another value for the result of that number."""

    def change(func: Any, args: Any, kwargs: Any, given: Any) -> Any:
        if not isinstance(given, tuple):
            return value(given, args)
        return tuple(value(one, args) if at == place else one for at, one in enumerate(given))

    return change


def _again(*, dtype: torch.dtype | None = None, **arguments: Any) -> Callable[..., Any]:
    """Computed in another dtype, or with other arguments (`a1` is the second)."""

    def change(func: Any, args: Any, kwargs: Any, given: Any) -> Any:
        args = list(args)
        for name, value in arguments.items():
            args[int(name[1:])] = value
        if dtype is None:
            return func(*args, **kwargs)
        # The CPU computes them, so that a device without the dtype has the same fault.
        narrow = [_narrow(one, dtype) for one in args]
        made = func(*narrow, **kwargs)
        if isinstance(made, tuple):
            return tuple(one.to(old) for one, old in zip(made, given, strict=True))
        return made.to(given)

    return change


def _narrow(one: Any, dtype: torch.dtype) -> Any:
    return one.to("cpu", dtype) if isinstance(one, torch.Tensor) and one.is_floating_point() else one


def _quick_gelu(given: Any, args: Any) -> Any:
    return args[0] * torch.sigmoid(1.702 * args[0])


def _quick_gelu_gradient(given: Any, args: Any) -> Any:
    s = torch.sigmoid(1.702 * args[1])
    return args[0] * (s + 1.702 * args[1] * s * (1 - s))


def _one(value: float) -> Callable[[Any, Any], Any]:
    def change(given: Any, args: Any) -> Any:
        given = given.clone()
        given.view(-1)[3] = value
        return given

    return change


class Stale:
    """What the call before gave."""

    def __init__(self) -> None:
        self.last: Any = None

    def __call__(self, func: Any, args: Any, kwargs: Any, given: Any) -> Any:
        made = given.clone()
        made[:1] = made[1:2]
        return made


def _in_place(value: Callable[[Any], None]) -> Callable[..., Any]:
    def change(func: Any, args: Any, kwargs: Any, given: Any) -> Any:
        first = args[0]
        for one in first if isinstance(first, list) else [first]:
            value(one)
        return given

    return change


def _unscaled(func: Any, args: Any, kwargs: Any, given: Any) -> Any:
    """The CPU divides the mask by 0.9 in place."""
    return (given[0] * 0.9, given[1]) if isinstance(given, tuple) else given.mul_(0.9)


INSIDE = (
    Fault("gelu by a sigmoid", "text", ("gelu",), 0, _replaced(0, _quick_gelu), "approximation"),
    Fault("layer norm in bfloat16", "text", ("native_layer_norm",), 2, _again(dtype=torch.bfloat16), "precision"),
    Fault("layer norm with eps 1e-3", "text", ("native_layer_norm",), 1, _again(a4=1e-3), "eps"),
    Fault("addmm in float16", "text", ("addmm",), 1, _again(dtype=torch.float16), "precision"),
    Fault(
        "gradient of gelu by a sigmoid", "text", ("gelu_backward",), 1, _replaced(0, _quick_gelu_gradient), "gradient"
    ),
    Fault("softmax along the rows", "text", ("_softmax",), 0, _again(a1=-2), "axis"),
    Fault("mask that hides nothing", "text", ("masked_fill",), 1, lambda f, a, k, g: a[0].clone(), "mask"),
    Fault(
        "embedding gradient without repeats",
        "text",
        ("embedding_dense_backward",),
        0,
        _replaced(0, lambda g, a: g.clamp(-0.01, 0.01)),
        "reduction",
    ),
    Fault(
        "layer norm gradient of the weight x 1.001",
        "text",
        ("native_layer_norm_backward",),
        0,
        _replaced(1, lambda g, a: g * 1.001),
        "gradient",
    ),
    Fault(
        "softmax gradient without its sum",
        "text",
        ("_softmax_backward_data",),
        0,
        lambda f, a, k, g: a[0] * a[1],
        "gradient",
    ),
    Fault(
        "one NaN from a layer norm", "text", ("native_layer_norm",), 0, _replaced(0, _one(float("nan"))), "saturation"
    ),
    Fault("mm of a gradient in bfloat16", "text", ("mm",), 2, _again(dtype=torch.bfloat16), "precision"),
    Fault("dropout without its scale", "text", ("native_dropout", "div_"), 0, _unscaled, "reduction"),
    Fault(
        "update x 1.01",
        "text",
        ("addcdiv_", "_foreach_addcdiv_"),
        0,
        _in_place(lambda one: one.mul_(1.01)),
        "optimizer",
    ),
    Fault(
        "moment x 1.001", "text", ("lerp_", "_foreach_lerp_"), 0, _in_place(lambda one: one.mul_(1.001)), "optimizer"
    ),
    Fault(
        "convolution of a shifted picture",
        "image",
        ("convolution",),
        0,
        lambda f, a, k, g: f(a[0].roll(1, -1), *a[1:], **k),
        "pad",
    ),
    Fault(
        "batch norm + 0.001", "image", ("native_batch_norm",), 0, _replaced(0, lambda g, a: g + 0.001), "approximation"
    ),
    Fault(
        "max pool gradient x 0.999",
        "image",
        ("max_pool2d_with_indices_backward",),
        0,
        _replaced(0, lambda g, a: g * 0.999),
        "gradient",
    ),
    Fault(
        "convolution weight gradient x 1.0001",
        "image",
        ("convolution_backward",),
        1,
        _replaced(1, lambda g, a: g * 1.0001),
        "gradient",
    ),
    Fault("mean over one too few", "image", ("mean",), 0, _replaced(0, lambda g, a: g * 64 / 63), "reduction"),
    Fault("silu saturated at 0.5", "image", ("silu",), 0, _replaced(0, lambda g, a: g.clamp(max=0.5)), "saturation"),
    Fault("one picture of relu is the next one's", "image", ("relu",), 0, Stale(), "stale buffer"),
    Fault("silu gradient of the picture before", "image", ("silu_backward",), 0, Stale(), "stale buffer"),
)


class Faulty(TorchDispatchMode):
    """Has the fault in the calls of step `step`; `hit` says whether it came by, and what was called."""

    def __init__(self, fault: Fault, step: int = 1) -> None:
        super().__init__()
        self._fault = fault
        self._step = step
        self._seen = 0
        self.now = 0
        self.hit = ""

    def next_step(self) -> None:
        """Another step begins."""
        self.now += 1
        self._seen = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = func(*args, **kwargs)
        name = func._schema.name
        if self.now != self._step or name.partition("::")[2] not in self._fault.operators:
            return given
        self._seen += 1
        if self._seen - 1 != self._fault.call:
            return given
        self.hit = name
        return self._fault.change(func, args, kwargs, given)
