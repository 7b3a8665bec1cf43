"""Recorded calls as calls of torch on the CPU: in their own dtype, or wide, with float64 for every floating dtype."""

from __future__ import annotations

from typing import Any

import numpy

from torchport.record.operators import layout
from torchport.record.operators.mode import UNWRITTEN
from torchport.record.operators.reading import Call, Tensor

# They address memory by strides of their own: of an input without its gaps they would show other elements, and memory
# behind its end (autograd calls `_reshape_alias` for the gradient of a part of a larger one).
STRIDED = frozenset(("_reshape_alias", "_reshape_alias_copy", "as_strided", "as_strided_copy"))
MOST_SPREAD = 1 << 28  # elements
WIDE = {"complex": "complex128", "float": "float64"}


class UnknownCallError(Exception):
    """Why a call cannot be made again."""


class Rebuilt:
    """The arguments of one call, with `torch`'s own types.

    `args` has a value for each argument of the schema; equal tensors of the recording are one tensor, so that what is
    written is written for all who see it. With `single` numbers are rounded to float32. Nothing of the recording is
    changed by what is called with them.
    """

    def __init__(
        self, torch: Any, call: Call, wide: bool, noise: float = 0.0, fill: float = 0.0, *, single: bool = False
    ) -> None:
        self.torch = torch
        self.call = call
        self.wide = wide
        self._noise = noise
        self._fill = fill
        self._single = single
        self._made: dict[int, Any] = {}
        self._spread = call.name.partition("::")[2] in STRIDED
        self.args = [self._value(value) for value in call.arguments]

    def _value(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._value(one) for one in value]
        if isinstance(value, float) and self._single:
            return self.torch.tensor(value, dtype=self.torch.float32).item()
        if not isinstance(value, dict):
            return value
        (kind, what), *_ = value.items()
        if kind == "t":
            tensor = self.call.inputs[what]
            return None if tensor is None else self.rebuild_tensor(tensor)
        return self._word(kind, what)

    def _word(self, kind: str, what: Any) -> Any:
        if kind == "float":
            return float(what)
        if kind == "complex":
            return complex(*(self._value(part) for part in what))
        if kind == "dtype":
            return self._dtype(what)
        if kind == "device":
            return self.torch.device("cpu")
        if kind in ("layout", "memory_format"):
            return getattr(self.torch, what)
        if kind == "generator":
            return None
        raise UnknownCallError(f"an argument is a {what}, which is not recorded")

    def _dtype(self, name: str) -> Any:
        kind = layout.DTYPES.get(name)
        return getattr(self.torch, WIDE.get(kind.kind, name) if self.wide and kind else name)

    def rebuild_tensor(self, one: Tensor) -> Any:
        """The tensor as the call was given it."""
        made = self._made.get(one.index)
        if made is None:
            made = self._noisy(materialize_tensor(self.torch, one, self.wide, self._fill))
            if self._spread:
                self._require_own_elements(one)
                made = _spread_out(self.torch, one, made)
            self._made[one.index] = made
        return made

    def _require_own_elements(self, one: Tensor) -> None:
        """Raise UnknownCallError if the call reaches elements of the storage that its input does not have."""
        torch = self.torch
        own = _spread_out(torch, one, torch.ones(one.shape, dtype=torch.bool))
        _, sizes, strides, *rest = [*self.call.arguments, None]
        offset = one.offset if rest[0] is None else rest[0]
        reach = offset + sum((size - 1) * step for size, step in zip(sizes, strides, strict=True))
        beyond = reach >= own.untyped_storage().nbytes() and 0 not in sizes
        if beyond or not own.as_strided(sizes, strides, offset).all():
            raise UnknownCallError("it shows memory beside its input")

    def _noisy(self, tensor: Any) -> Any:
        """Each number off by up to `noise` of itself."""
        if not self._noise or not (tensor.is_floating_point() or tensor.is_complex()):
            return tensor
        generator = self.torch.Generator().manual_seed(tensor.numel())
        draw = self.torch.rand(tensor.shape, generator=generator, dtype=self.torch.float64) * 2 - 1
        return tensor * (1 + self._noise * draw)


def materialize_tensor(torch: Any, one: Tensor, wide: bool, fill: float = 0.0) -> Any:
    """A recorded tensor on the CPU, its axes in their own order in memory without gaps; full of `fill` where nobody had
    written it. Raises UnknownCallError where its content was not kept."""
    bits = one.bits()
    if bits is None:
        if one.elements == 0 or one.reason == UNWRITTEN:
            # What is in it is chance, also where it ran.
            kind = layout.DTYPES[one.dtype].kind
            name = WIDE.get(kind, one.dtype) if wide else one.dtype
            return torch.empty_strided(one.shape, one.stride, dtype=getattr(torch, name)).fill_(fill)
        raise UnknownCallError(f"the content of a tensor was not kept{f': {one.reason}' if one.reason else ''}")
    # A dimension with stride 0 was kept once.
    kept = bits[tuple(slice(0, 1) if step == 0 else slice(None) for step in bits.strides)]
    flat = numpy.array(kept, order="K", copy=True)
    made = torch.from_numpy(flat.view(_SIGNED.get(flat.dtype.str, flat.dtype.str)))
    made = made.view(getattr(torch, one.dtype)) if made.dtype != getattr(torch, one.dtype) else made
    kind = layout.DTYPES[one.dtype].kind
    if wide and kind in WIDE:
        made = made.to(getattr(torch, WIDE[kind]))
    return made.expand(one.shape)


def _spread_out(torch: Any, one: Tensor, made: Any) -> Any:
    """The tensor at its own place, with its own strides, in a storage of zeros."""
    size = 1 + one.offset + sum((n - 1) * step for n, step in zip(one.shape, one.stride, strict=True))
    if size > MOST_SPREAD:
        raise UnknownCallError("its input is spread over a large storage")
    view = torch.zeros(size, dtype=made.dtype).as_strided(one.shape, one.stride, one.offset)
    once = tuple(slice(0, 1) if step == 0 else slice(None) for step in one.stride)  # as an expanded tensor has them
    view[once].copy_(made[once])
    return view


# What torch has as well, to be viewed as the tensor's own dtype.
_SIGNED = {"<u2": "<i2", "<u4": "<i4", "<u8": "<i8"}
