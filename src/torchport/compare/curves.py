"""Differences between two loss curves."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from itertools import pairwise

from torchport.compare.tolerance import Statistical


def relative_errors(reference: Sequence[float], port: Sequence[float], floor: float) -> list[float]:
    """|port - reference| relative to the reference, for the steps that both have; inf where either is not
    finite.

    Where the reference is smaller than `floor` times its first value, the error is relative to that.
    """
    least = floor * abs(reference[0]) if reference and math.isfinite(reference[0]) else 0.0
    errors = []
    for ours, theirs in zip(port, reference, strict=False):
        if math.isfinite(ours) and math.isfinite(theirs):
            scale = max(abs(theirs), least)
            errors.append(abs(ours - theirs) / scale if scale else (math.inf if ours != theirs else 0.0))
        else:
            errors.append(math.inf)
    return errors


def first_above(errors: Sequence[float], bound: float) -> int | None:
    """Index of the first error above `bound`."""
    return next((index for index, error in enumerate(errors) if error > bound), None)


def first_not_finite(losses: Sequence[float]) -> int | None:
    """Index of the first NaN or infinity."""
    return next((index for index, loss in enumerate(losses) if not math.isfinite(loss)), None)


@dataclasses.dataclass(frozen=True, slots=True)
class Window:
    """Mean losses over the steps [start, end), and the difference that chance explains."""

    start: int
    end: int
    reference: float
    port: float
    allowed: float

    @property
    def holds(self) -> bool:
        """Whether the difference is within what chance explains."""
        return abs(self.port - self.reference) <= self.allowed


def windows(reference: Sequence[float], port: Sequence[float], bounds: Statistical) -> list[Window]:
    """The common steps of two finite curves in windows of equal length; none where there are too few
    steps."""
    count = min(len(reference), len(port))
    number = min(bounds.windows, count // bounds.least)
    result = []
    for index in range(number):
        start, end = index * count // number, (index + 1) * count // number
        theirs, ours = reference[start:end], port[start:end]
        mean = sum(theirs) / len(theirs)
        error = math.sqrt((_noise(theirs) + _noise(ours)) / len(theirs))
        allowed = bounds.sigmas * error + bounds.relative * abs(mean)
        result.append(Window(start, end, mean, sum(ours) / len(ours), allowed))
    return result


def _noise(losses: Sequence[float]) -> float:
    """Variance of a step's loss around a trend: from differences of neighbours, which a slope hardly
    moves."""
    differences = [after - before for before, after in pairwise(losses)]
    return sum(value * value for value in differences) / (2 * len(differences)) if differences else 0.0
