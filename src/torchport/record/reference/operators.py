"""Operators of aten for kernels in Python."""

from __future__ import annotations

from typing import Any


def find_overload(torch: Any, name: str) -> Any:
    """The operator "name" or "name.overload" of aten; None where this torch has none."""
    operator, _, form = name.partition(".")
    return getattr(getattr(torch.ops.aten, operator, None), form or "default", None)


def tensor_places(operator: Any) -> tuple[int, ...]:
    """The positions of the arguments that are tensors."""
    return tuple(
        place
        for place, argument in enumerate(operator._schema.arguments)
        if str(argument.type) in ("Tensor", "Optional[Tensor]")
    )


def with_tensors(torch: Any, places: tuple[int, ...], args: tuple[Any, ...]) -> tuple[Any, ...]:
    """`args` with a tensor for each number at one of `places`.

    A number that a script has given in place of a tensor comes to a kernel in Python as a number again. It has the
    dtype of the first tensor, as numbers do not widen.
    """
    if not any(place < len(args) and isinstance(args[place], (int, float, complex)) for place in places):
        return args
    dtype = next((arg.dtype for arg in args if isinstance(arg, torch.Tensor)), None)
    return tuple(
        torch.scalar_tensor(one, dtype=dtype) if place in places and isinstance(one, (int, float, complex)) else one
        for place, one in enumerate(args)
    )
