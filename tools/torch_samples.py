"""Torch's own samples of its functions, modules and optimizers, as calls that can be made on any device.

They come with torch (`torch.testing._internal`, whose import needs `expecttest`).
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterator
from typing import Any

DTYPES = ("float32", "float16", "bfloat16", "float64", "int64", "int32", "bool", "complex64")
SAMPLES = 2  # of each function and dtype
Calls = Callable[[str], Iterator[Callable[[], Any]]]  # of a device


def cases() -> list[tuple[str, str, Calls]]:
    """(name, dtype, calls on a device) of every sample; a call gives what `backward` can start from, or None."""
    import torch
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.testing._internal.common_modules import module_db
    from torch.testing._internal.common_optimizers import optim_db

    found: list[tuple[str, str, Calls]] = []
    for dtype in DTYPES:
        for info in op_db:
            found += [(name, dtype, _function(info, getattr(torch, dtype))) for name in names_of(info)[:1]]
        for info in module_db if dtype in ("float32", "float16", "bfloat16", "float64") else ():
            found.append((f"torch.{info.name}", dtype, _module(info, getattr(torch, dtype))))
        for info in optim_db if dtype == "float32" else ():
            cls = info.optim_cls
            for way in ("", *info.supported_impls):
                if way != "differentiable":
                    name = f"torch.optim.{cls.__name__}" + (f"({way}=True)" if way else "")
                    found.append((name, dtype, _optimizer(info, way)))
    return found


def names_of(info: Any) -> list[str]:
    """The public names of a function; empty where it has none."""

    candidates = [f"torch.{name}" for name in (info.name, *(alias.name for alias in info.aliases))]
    if info.method_variant is not None and info.name.isidentifier():
        candidates.append(f"torch.Tensor.{info.name}")
    known = []
    for name in candidates:
        with contextlib.suppress(AttributeError, ImportError):
            if not any(word.startswith("_") for word in name.split(".")) and callable(resolve(name)):
                known.append(name)
    return known


def _function(info: Any, dtype: Any) -> Calls:
    import torch

    def calls(device: str) -> Iterator[Callable[[], Any]]:
        backward = info.supports_autograd and dtype in info.dtypes and dtype.is_floating_point
        samples = info.sample_inputs("cpu", dtype, requires_grad=backward)
        for _, sample in zip(range(SAMPLES), samples, strict=False):
            moved = sample.transform(lambda x: _moved(x, device))
            yield functools.partial(info, moved.input, *moved.args, **moved.kwargs)

    def _moved(value: Any, device: str) -> Any:
        if isinstance(value, torch.device):
            return torch.device(device)
        if not isinstance(value, torch.Tensor):
            return value
        return value.detach().to(device).requires_grad_(value.requires_grad)

    return calls


def _module(info: Any, dtype: Any) -> Calls:
    import torch

    def calls(device: str) -> Iterator[Callable[[], Any]]:
        inputs = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=True)
        for _, one in zip(range(SAMPLES), inputs, strict=False):
            made, given = one.constructor_input, one.forward_input
            if given is None:
                continue
            module = info.module_cls(*made.args, **made.kwargs).to(device, dtype)
            args, kwargs = torch.utils._pytree.tree_map_only(
                torch.Tensor,
                lambda x: x.detach().to(device).requires_grad_(x.requires_grad),
                (given.args, given.kwargs),
            )
            yield functools.partial(module, *args, **kwargs)

    return calls


def _optimizer(info: Any, way: str) -> Calls:
    import torch

    def calls(device: str) -> Iterator[Callable[[], Any]]:
        layer = torch.nn.Linear(3, 3).to(device)
        for parameter in layer.parameters():
            parameter.grad = torch.ones_like(parameter)
        options = {way: True} if way else {}
        optimizer = info.optim_cls([*layer.parameters()][: 1 if "Muon" in str(info.optim_cls) else 2], **options)
        yield lambda: optimizer.step(lambda: torch.ones(()))

    return calls


def resolve(name: str) -> Any:
    """The object with a dotted name; modules on the way are imported. Raises AttributeError or ImportError."""
    words = name.split(".")
    value = importlib.import_module(words[0])
    for index, word in enumerate(words[1:], 2):
        if not hasattr(value, word):
            importlib.import_module(".".join(words[:index]))
        value = getattr(value, word)
    return value
