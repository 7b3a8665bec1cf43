"""Final metrics of two runs, each compared in its own unit, within what the comparison of their losses allows."""

from __future__ import annotations

import math

from torchport.compare.printed import Kind, Metric, printed_metrics
from torchport.results.comparison import MetricRow

# A share may differ by all of its points where the losses may differ by this (relative) or more, and by
# proportionally fewer below: a sample changes sides where its margin is smaller than the error of the outputs, and
# the number of such samples grows with that error. It is the bound of a float32 run as a whole (`tolerance`), which
# half a point was found to go with.
FULL = 1e-2
# A loss this many times smaller than the first one is compared with that, as the steps are.
FLOOR = 1e-3
# A share of so many decimals is a quotient as Python prints it, not a rounded one; float32 rounds it by 6e-8.
_QUOTIENT, _ROUNDING, _MOST_SAMPLES = 1e-7, 6e-8, 10_000


def compare_metrics(reference: str, port: str, points: float, relative: float | None) -> list[MetricRow]:
    """The metrics that both outputs have, by the last value of each, and whether they agree.

    `relative` is what the comparison of the steps allows the loss at the end (relative error); None where steps could
    not be compared there: losses are then not judged. A row's `unit` says how it was:

    - "percent", "fraction", "count": a share may differ by `points` (hundredths of the whole), proportionally fewer
      where `relative` is below `FULL`; but always by one sample, or one printed digit of at most a hundredth of the
      whole. What is printed without "%" is a percentage where it is above 1. A count of another `total` does not agree.
    - "loss": by `relative` of the value, and each side by half a unit of its last printed digit.
    - "perplexity": as its logarithm, which is the loss.

    A value that is not finite agrees with its equal only. `reference`, `port` and `allowed` are in the unit that is
    printed, for a count in percent of `total` and `port_total`.
    """
    theirs, ours = printed_metrics(reference), printed_metrics(port)
    return [_row(theirs[name], ours[name], points, relative) for name in theirs if name in ours]


def _row(theirs: list[Metric], ours: list[Metric], points: float, relative: float | None) -> MetricRow:
    reference, port = theirs[-1], ours[-1]
    values = reference.value, port.value
    unit = _unit(theirs, ours)
    if math.isfinite(sum(map(abs, values))):
        allowed = _allowed(unit, theirs, ours, points, relative)
        holds = allowed is None or abs(values[1] - values[0]) <= allowed * (1 + 1e-9)
    else:
        allowed, holds = 0.0, str(values[0]) == str(values[1])  # as text: nan too is its own equal
    return MetricRow(
        name=reference.name,
        unit=unit,
        reference=values[0],
        port=values[1],
        total=reference.total,
        port_total=port.total,
        percent=reference.percent,
        allowed=allowed,
        holds=holds and reference.total == port.total,
    )


def _unit(theirs: list[Metric], ours: list[Metric]) -> str:
    last = theirs[-1]
    if last.total is not None:
        return "count"
    if last.percent:
        return "percent"
    if last.kind is Kind.SHARE:
        return "percent" if any(abs(their.value) > 1 for their in (*theirs, *ours)) else "fraction"
    return str(last.kind)


def _allowed(
    unit: str, theirs: list[Metric], ours: list[Metric], points: float, relative: float | None
) -> float | None:
    reference, port = theirs[-1], ours[-1]
    rounded = (reference.digit + port.digit) / 2
    if unit in ("percent", "fraction", "count"):
        whole = 1.0 if unit == "fraction" else 100.0
        share = points / 100 * (1.0 if relative is None else min(1.0, relative / FULL))
        # Of two runs of one print statement, so of the same number of digits, but for quotients: 0.9 is one more often
        # than a share that was rounded so far.
        digit = min(reference.digit, port.digit)
        least = max(digit if unit == "count" else min(digit, whole / 100), whole * _sample((*theirs, *ours), whole))
        return max(whole * share, least)
    if relative is None:
        return None
    if unit == Kind.PERPLEXITY and reference.value > 0:
        first = math.log(theirs[0].value) if 0 < theirs[0].value < math.inf else 0.0
        loss = max(abs(math.log(reference.value)), FLOOR * abs(first))
        return reference.value * math.expm1(min(relative * loss, 700.0)) + rounded
    first = abs(theirs[0].value) if math.isfinite(theirs[0].value) else 0.0
    return relative * max(abs(reference.value), FLOOR * first) + rounded


def _sample(printed: tuple[Metric, ...], whole: float) -> float:
    """The share of one sample, where `printed` are quotients with all their digits: the largest of which all of them
    are multiples. 0 where they are rounded, or averages of batches."""
    if not any(0 < one.digit / whole <= _QUOTIENT for one in printed):
        return 0.0
    shares = {one.value / whole for one in printed if math.isfinite(one.value)}
    for samples in range(1, _MOST_SAMPLES + 1):
        if all(abs(share * samples - round(share * samples)) <= _ROUNDING * samples for share in shares):
            return 1 / samples
    return 0.0
