"""What the arguments that a call writes held after it, where the call has no results that say so: the first later
sight of the same tensor, if nothing else can have written it in between."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchport.record.operators.reading import Call, Step, Tensor


class Aftermath:
    """Of one step; `later` is the step after it, for parameters that are next read there."""

    def __init__(self, step: Step, later: Step | None) -> None:
        self._seen = _sights(step)
        self._named = _first_by_name(later) if later is not None else {}

    def find_value_after(self, call: Call, written: Tensor) -> Tensor | None:
        """What `written`, an input of `call`, held after it; None where nobody saw it."""
        place = _place(written)
        rows = self._seen.get(place, [])
        found = min((row for row in rows if row.version > written.version), key=lambda one: one.version, default=None)
        if found is not None:
            return found
        named = self._named.get(written.name) if written.name else None
        return named if named is not None and _shape(named) == _shape(written) else None


def _place(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.storage, tensor.offset, *_shape(tensor)


def _shape(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.dtype, tensor.shape, tensor.stride


def _sights(step: Step) -> Mapping[tuple[Any, ...], list[Tensor]]:
    found: dict[tuple[Any, ...], list[Tensor]] = {}
    for tensor in step.tensors():
        found.setdefault(_place(tensor), []).append(tensor)
    return found


def _first_by_name(step: Step) -> dict[str, Tensor]:
    """Each named tensor as the step first saw it. Only what nobody has written since the step before: the lowest
    version of it."""
    found: dict[str, Tensor] = {}
    for tensor in step.tensors():
        known = found.get(tensor.name)
        if tensor.name and (known is None or tensor.version < known.version):
            found[tensor.name] = tensor
    return found
