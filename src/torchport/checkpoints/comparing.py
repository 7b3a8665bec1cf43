"""How two checkpoints differ: names, shapes, dtypes, and values."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from torchport.checkpoints.contents import Stored
from torchport.checkpoints.names import find_nearest_name
from torchport.checkpoints.tensors import Unreadable, relative_difference
from torchport.errors import TorchportError


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One name that is not the same in both: `what` says how, `difference` is relative to the norm of the values."""

    name: str
    what: str
    difference: float | None = None


def list_differences(
    one: Mapping[str, Stored], other: Mapping[str, Stored], progress: Callable[[str], None] = lambda text: None
) -> list[Row]:
    """What is not equal, values bit by bit. Raises TorchportError for a tensor whose bytes are damaged."""
    rows = []
    for name in one.keys() - other.keys():
        near = find_nearest_name(name, other.keys() - one.keys())
        rows.append(Row(name, "only in the first" + (f"; the second has {near}" if near else "")))
    rows += [Row(name, "only in the second") for name in other.keys() - one.keys()]
    shared = [name for name in one if name in other]
    for number, name in enumerate(shared):
        progress(f"tensor {number + 1} of {len(shared)}")
        a, b = one[name], other[name]
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            rows.append(Row(name, f"{a} and {b}"))
            continue
        try:
            apart = relative_difference(a.to_tensor(), b.to_tensor())
        except Unreadable as error:
            raise TorchportError(f"tensor {name} cannot be read: {error}") from error
        if apart is None or apart > 0:
            rows.append(Row(name, "other values", apart))
        elif apart != apart:
            rows.append(Row(name, "other values, not a number", None))
    return sorted(rows, key=lambda row: row.name)
