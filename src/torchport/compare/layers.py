"""Gradients and updates of each layer over a whole run, of both sides, and how far they have drifted apart."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from torchport.compare.quantities import Compared
from torchport.compare.series import CHANGE, GRADIENT
from torchport.compare.yardstick import Pair
from torchport.results.comparison import LayerRow

MOST = 60  # layers, those that have drifted furthest
POINTS = 200  # of a curve


def list_layer_norms(both: Sequence[Compared]) -> list[LayerRow]:
    """For each layer and quantity the norms of both runs at `at` (steps), and `drift`: the largest relative difference,
    with the step where it is. The layers that have drifted furthest come first."""
    found = [row for one in both for row in _layers(one)]
    order: dict[str, float] = {}
    for row in found:
        order[row.layer] = max(order.get(row.layer, 0.0), row.drift)
    found.sort(key=lambda row: -order[row.layer])
    chosen = list(dict.fromkeys(row.layer for row in found))[:MOST]
    return [row for row in found if row.layer in chosen]


def _layers(one: Compared) -> Iterator[LayerRow]:
    groups: dict[tuple[str, str], list[Pair]] = {}
    for pair in one.select_pairs(GRADIENT, CHANGE):
        if not pair.key[1].endswith(", all"):
            layer = one.prefix + (pair.reference.name.rpartition(".")[0] or pair.reference.name)
            groups.setdefault((layer, pair.key[0]), []).append(pair)
    for (layer, kind), pairs in groups.items():
        sides = [_norms([side(pair) for pair in pairs]) for side in (_reference, _port)]
        at = sorted(sides[0].keys() & sides[1].keys())
        if not at:
            continue
        apart = [_apart(sides[0][step], sides[1][step]) for step in at]
        # What is not finite on one side only is as far apart as can be.
        worst = max(range(len(at)), key=apart.__getitem__)
        shown = _thinned(at, apart)
        yield LayerRow(
            layer,
            kind,
            len(pairs),
            drift=min(apart[worst], 1e9),
            step=at[worst],
            at=tuple(shown),
            reference=tuple(_plain(sides[0][step]) for step in shown),
            port=tuple(_plain(sides[1][step]) for step in shown),
        )


def _reference(pair: Pair) -> Any:
    return pair.reference


def _port(pair: Pair) -> Any:
    return pair.port


def _norms(parameters: Sequence[Any]) -> dict[int, float]:
    """By step, of all parameters of a layer together."""
    squares: dict[int, float] = {}
    for parameter in parameters:
        for step, value in zip(parameter.at, parameter.values, strict=True):
            squares[step] = squares.get(step, 0.0) + (0.0 if value is None else value * value)
    return {step: math.sqrt(value) if value >= 0 else value for step, value in squares.items()}


def _apart(one: float, other: float) -> float:
    if math.isfinite(one) and math.isfinite(other):
        largest = max(one, other)
        return abs(one - other) / largest if largest else 0.0
    return 0.0 if str(one) == str(other) else math.inf


def _thinned(at: Sequence[int], apart: Sequence[float]) -> list[int]:
    """At most POINTS steps: of each stretch the one where the sides are furthest apart."""
    width = math.ceil(len(at) / POINTS)
    return [
        at[max(range(first, min(first + width, len(at))), key=apart.__getitem__)] for first in range(0, len(at), width)
    ]


def _plain(value: float) -> float | None:
    return float(f"{value:.5g}") if math.isfinite(value) else None
