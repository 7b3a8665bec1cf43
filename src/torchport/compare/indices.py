"""Indices that an operator gives: which of equal numbers it meets first is its own choice, so each is judged by the
number that it leads to.

An index is right if the number at it is the recorded value of the same place, and if no place is named twice where
places are ordered. Operators that give indices alone are judged by the numbers at the CPU's indices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchport.compare.scores import Score, score_exact

# The argument with the dimension, by operator and overload: their results are values and indices along it.
_PAIRS = {
    "sort": 1,
    "sort.stable": 2,
    "topk": 2,
    "max.dim": 1,
    "min.dim": 1,
    "kthvalue": 2,
    "median.dim": 1,
    "nanmedian.dim": 1,
    "mode": 1,
    "cummax": 1,
    "cummin": 1,
}
# Indices alone: the argument with the dimension.
_ALONE = {"argmax": 1, "argmin": 1, "argsort": 1, "argsort.stable": 2}
# Values, and indices into the last dimensions of what is pooled, flat.
_POOLED = {
    "max_pool2d_with_indices": 2,
    "max_pool3d_with_indices": 3,
    "adaptive_max_pool2d": 2,
    "adaptive_max_pool3d": 3,
    "fractional_max_pool2d": 2,
}
_ORDERED = ("sort", "topk", "argsort")
OPERATORS = frozenset(name.partition(".")[0] for table in (_PAIRS, _ALONE, _POOLED) for name in table)


def score_indices(
    torch: Any, name: str, arguments: Sequence[Any], indices: Any, values: Any, computed: Any
) -> Score | None:
    """The score of the recorded `indices` of the operator `name` ("topk", "max.dim"): `values` are the recorded values
    beside them (None: it gives none), `computed` are the CPU's indices. None for an operator that is not known."""
    if indices.shape != computed.shape or indices.dtype != computed.dtype:
        return score_exact(torch, indices, computed)
    given, place = arguments[0], _PAIRS.get(name, _ALONE.get(name))
    if name in _POOLED:
        given = given.flatten(-_POOLED[name])
        shown, wanted = (one.flatten(-_POOLED[name]) for one in (indices, computed))
        values = None if values is None else values.flatten(-_POOLED[name])
        dimension = given.dim() - 1
    elif place is None:
        return None
    else:
        dimension = arguments[place] if place < len(arguments) else None
        if dimension is None:  # of all numbers: argmax(x)
            given, dimension = given.flatten(), 0
            shown, wanted = indices.reshape(-1), computed.reshape(-1)
        else:
            shown, wanted = (_with_dimension(one, given, dimension) for one in (indices, computed))
            values = None if values is None else _with_dimension(values, given, dimension)
    if given.dim() == 0:
        return score_exact(torch, indices, computed)
    if bool(((shown < 0) | (shown >= given.shape[dimension])).any()):
        return score_exact(torch, indices, computed)
    found = given.gather(dimension, shown)
    right = given.gather(dimension, wanted) if values is None else values
    apart = ~((found == right) | (found.isnan() & right.isnan()))
    if name.partition(".")[0] in _ORDERED:
        ordered = shown.sort(dimension).values
        twice = ordered.diff(dim=dimension) == 0
        apart = apart | torch.nn.functional.pad(twice.movedim(dimension, -1), (1, 0)).movedim(-1, dimension)
    # Score as of numbers that are moved, not computed.
    return score_exact(torch, apart, torch.zeros_like(apart))


def _with_dimension(one: Any, given: Any, dimension: int) -> Any:
    """Indices with the dimension that a reduction took out (keepdim=False)."""
    return one if one.dim() == given.dim() else one.unsqueeze(dimension)
