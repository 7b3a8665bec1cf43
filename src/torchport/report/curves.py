"""The curves of a comparison that can be shown, one for each place that records a step."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from torchport.results.comparison import Comparison, Curve, Window


def curves_of(comparison: Comparison | None) -> list[Curve]:
    """The curves that hold at least one value; none if there is no comparison."""
    return [curve for curve in comparison.curves if curve.reference or curve.port] if comparison else []


def floats_of(values: Sequence[float | None]) -> list[float]:
    """The values, NaN for a step without one."""
    return [math.nan if value is None else value for value in values]


def bad_windows(curve: Curve) -> list[Window]:
    """The stretches of a statistical comparison whose means differ by more than chance explains."""
    return [span for span in curve.windows if not span.holds]


def select_finite(values: Iterable[float | None]) -> list[float]:
    """The values without NaN and infinity."""
    return [value for value in values if value is not None and math.isfinite(value)]
