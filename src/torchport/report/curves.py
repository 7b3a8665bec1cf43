"""The curves of a comparison, one for each place that records a step, and where the two runs part."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

STEPWISE = "step by step"


@dataclasses.dataclass(frozen=True, slots=True)
class Curve:
    """What both runs recorded at one place in the script, such as the loss at `train.py:20`.

    `errors` are the relative differences of the steps that both have, `windows` the means that a statistical
    comparison looks at.
    """

    name: str
    what: str
    reference: tuple[float, ...]
    port: tuple[float, ...]
    errors: tuple[float, ...]
    windows: tuple[Mapping[str, Any], ...]
    allowed: tuple[
        float, ...
    ] = ()  # by step, where rounding was measured; infinite where a step says nothing

    @property
    def title(self) -> str:
        """ "loss at train.py:20"."""
        return f"{self.what} at {self.name}" if self.name else self.what


@dataclasses.dataclass(frozen=True, slots=True)
class Difference:
    """A step in which the runs differ by more than is allowed."""

    curve: str
    step: int
    reference: float
    port: float
    error: float
    allowed: float


def read_curves(comparison: Mapping[str, Any] | None) -> list[Curve]:
    """The curves of a comparison's data that hold at least one value; none where there is no comparison."""
    curves = [
        Curve(
            str(row.get("name") or ""),
            str(row.get("what") or "loss"),
            _floats(row.get("reference")),
            _floats(row.get("port")),
            _floats(row.get("errors")),
            tuple(row.get("windows") or ()),
            _floats(row.get("allowed")),
        )
        for row in (comparison or {}).get("curves") or ()
    ]
    return [curve for curve in curves if curve.reference or curve.port]


def is_stepwise(comparison: Mapping[str, Any]) -> bool:
    """Whether single steps were judged, not means over many."""
    return str(comparison.get("method") or STEPWISE).startswith(STEPWISE) and not comparison.get("chance")


def allowed_at(comparison: Mapping[str, Any], step: int, curve: Curve | None = None) -> float:
    """The relative difference that is allowed in a step; infinite where none is stated."""
    if curve is not None and step < len(curve.allowed):
        return curve.allowed[step]
    bounds = comparison.get("tolerance") or {}
    name = "first" if step < int(bounds.get("first_steps") or 0) else "run"
    bound = bounds.get(name)
    return math.inf if bound is None else float(bound)


def differences(comparison: Mapping[str, Any], most: int) -> list[Difference]:
    """The first `most` steps of each curve that differ by more than is allowed, earliest step first."""
    if not is_stepwise(comparison):
        return []
    found = []
    for curve in read_curves(comparison):
        rows = zip(curve.reference, curve.port, curve.errors, strict=False)
        over = (
            Difference(curve.title, step, theirs, ours, error, allowed_at(comparison, step, curve))
            for step, (theirs, ours, error) in enumerate(rows)
            if not error <= allowed_at(comparison, step, curve)
        )
        found += [row for row, _ in zip(over, range(most), strict=False)]
    return sorted(found, key=lambda row: row.step)


def bad_windows(curve: Curve) -> list[Mapping[str, Any]]:
    """The stretches of a statistical comparison whose means differ by more than chance explains."""
    return [span for span in curve.windows if not span.get("holds", True)]


def finite(values: Iterable[float]) -> list[float]:
    """The values without NaN and infinity."""
    return [value for value in values if math.isfinite(value)]


def _floats(values: Sequence[Any] | None) -> tuple[float, ...]:
    # JSON has no word for NaN: it is stored as a text, and a step without a value as null.
    return tuple(math.nan if value is None else float(value) for value in values or ())
