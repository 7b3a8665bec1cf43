"""How far the numbers of one name are apart in two logs."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence

from torchport.logs.pairing import Pair, Paired

# A value this many times smaller than the first one is compared with that, as `compare` does with losses.
FLOOR = 1e-3
# A difference drifts if the last third of the run has so many times that of the first, and more than `SMALL`.
DRIFTS, SMALL = 2.0, 1e-4
# One side is above the other if so much of the difference has one sign.
ONE_SIDED = 0.8


@dataclasses.dataclass(frozen=True, slots=True)
class Difference:
    """One name in both logs. Differences are relative to the first log's value, without those below the last printed
    digit of either; `mean_at_most` is the mean if each printed digit hides as much as it can.

    `drift` is "growing", "shrinking" or "level", `above` says which log's values are the larger ones: "A", "B" or "".
    `tail` is the mean of the last tenth, `finite` the number of pairs of two numbers.
    """

    name: str
    by: str
    pairs: int
    alone: tuple[int, int]
    finite: int
    mean: float
    mean_at_most: float
    mean_absolute: float
    largest: float
    where: Pair | None
    tail: float
    drift: str
    above: str
    first: Pair | None
    last: Pair | None


def measure(paired: Paired) -> Difference:
    """Compare the pairs of a name; NaN and infinities are left out."""
    pairs = [pair for pair in paired.pairs if is_finite(pair)]
    scale = _scale([pair.first.value for pair in pairs])
    errors = relative_errors(pairs)
    at_most = [
        (abs(pair.first.value - pair.second.value) + pair.digit) / max(abs(pair.first.value), scale) for pair in pairs
    ]
    place = max(range(len(errors)), key=errors.__getitem__) if errors else None
    return Difference(
        name=paired.name,
        by=paired.by,
        pairs=len(paired.pairs),
        alone=paired.alone,
        finite=len(pairs),
        mean=_mean(errors),
        mean_at_most=_mean(at_most),
        mean_absolute=_mean([_beyond_digits(pair) for pair in pairs]),
        largest=errors[place] if place is not None else 0.0,
        where=pairs[place] if place is not None else None,
        tail=_mean(errors[-max(1, len(errors) // 10) :]),
        drift=_drift(errors),
        above=_above(pairs),
        first=pairs[0] if pairs else None,
        last=paired.pairs[-1] if paired.pairs else None,
    )


def relative_errors(pairs: Sequence[Pair]) -> list[float]:
    """The relative difference of each pair of numbers, without what lies below their printed digits."""
    scale = _scale([pair.first.value for pair in pairs])
    return [_beyond_digits(pair) / max(abs(pair.first.value), scale) for pair in pairs]


def is_finite(pair: Pair) -> bool:
    """Whether both are numbers."""
    return math.isfinite(pair.first.value) and math.isfinite(pair.second.value)


def _beyond_digits(pair: Pair) -> float:
    apart = abs(pair.first.value - pair.second.value)
    return max(0.0, apart - pair.digit * (1 + 1e-9))


def _scale(values: Sequence[float]) -> float:
    """The least that differences are divided by. Values of both signs are compared with their mean size: each may be
    as near to zero as it likes."""
    if not values:
        return 1.0
    if min(values) < 0 < max(values):
        return _mean([abs(value) for value in values])
    return FLOOR * abs(next((value for value in values if value), 1.0))


def _mean(values: Sequence[float]) -> float:
    return statistics.fmean(values) if values else 0.0


def _drift(errors: Sequence[float]) -> str:
    third = len(errors) // 3
    if third < 3:
        return "level"
    start, end = _mean(errors[:third]), _mean(errors[-third:])
    if end > DRIFTS * start and end > SMALL:
        return "growing"
    return "shrinking" if start > DRIFTS * end and start > SMALL else "level"


def _above(pairs: Sequence[Pair]) -> str:
    total = sum(_beyond_digits(pair) for pair in pairs)
    signed = sum(math.copysign(_beyond_digits(pair), pair.second.value - pair.first.value) for pair in pairs)
    if len(pairs) < 3 or not total or abs(signed) < ONE_SIDED * total:
        return ""
    return "B" if signed > 0 else "A"
