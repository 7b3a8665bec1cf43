"""Differences between two loss curves."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from itertools import pairwise

from torchport.compare.tolerance import Statistical
from torchport.compare.yardstick import Pair
from torchport.results import comparison
from torchport.results.comparison import Window

# How much a difference grows in one step at most. Noise of 1e-7 in the weights of pytorch/examples' mnist grows on the
# CPU by 94 in one step; between the CPU and the NPU its differences, 1e-7 at first, grow by up to 430.
FASTEST = 1e3


def grows_from_rounding(errors: Sequence[float], step: int, rounding: float) -> bool:
    """Whether the error at `step`, which is too large, may be what training has made of rounding.

    So it is where the loss before and after the first update agree within `rounding`, the difference was there before
    `step`, and it grew by no more than `FASTEST` in that one step. Other updates or other data would show in the
    second loss, and what sets in later would come out of nothing. Two recordings cannot tell rounding from a very
    small fault: neither can be said.
    """
    before = max(errors[:step], default=0.0)
    return step >= 2 and max(errors[:2]) <= rounding and before > 0 and errors[step] <= FASTEST * before


def first_not_finite(losses: Sequence[float]) -> int | None:
    """Index of the first NaN or infinity."""
    return next((index for index, loss in enumerate(losses) if not math.isfinite(loss)), None)


@dataclasses.dataclass(frozen=True, slots=True)
class Curve:
    """The losses (or outputs) of one place in both runs: `comparable` is how many steps there are before one is not
    finite, `windows` their means."""

    name: str
    what: str
    pair: Pair
    reference: list[float]
    port: list[float]
    comparable: int
    windows: list[Window]

    @classmethod
    def from_pair(cls, name: str, what: str, pair: Pair, bounds: Statistical) -> Curve:
        """Compare the two series of `pair`."""
        reference, port = pair.reference.numbers, pair.port.numbers
        ends = (first_not_finite(reference), first_not_finite(port))
        steps = min([len(pair.errors), *(end for end in ends if end is not None)])
        spans = compare_windows(reference[:steps], port[:steps], bounds)
        return cls(name, what, pair, reference, port, steps, spans)

    @property
    def errors(self) -> list[float]:
        """The errors of the steps that both have."""
        return self.pair.errors

    @property
    def allowed(self) -> list[float]:
        """Their bounds."""
        return self.pair.allowed

    @property
    def noise(self) -> list[float] | None:
        """How far, up to each step, the control run is from the original; None without one."""
        return self.pair.noise

    def find_step(self, place: int) -> int:
        """The step in which the value at `place` was recorded: a later stage begins at none of 0, and a step may have
        several losses."""
        return max(self.pair.reference.at, self.pair.port.at, key=len)[place]

    def row(self) -> comparison.Curve:
        """The curve for reports."""
        return comparison.Curve(
            self.name,
            self.what,
            tuple(self.reference),
            tuple(self.port),
            tuple(self.errors),
            None if self.noise is None else tuple(self.noise),
            tuple(self.allowed),
            tuple(self.windows),
        )


def compare_windows(reference: Sequence[float], port: Sequence[float], bounds: Statistical) -> list[Window]:
    """The common steps of two finite curves in windows of equal length; none where there are too few
    steps."""
    count = min(len(reference), len(port))
    number = min(bounds.windows, count // bounds.least)
    whole = _noise(reference[:count])
    result = []
    for index in range(number):
        start, end = index * count // number, (index + 1) * count // number
        theirs, ours = reference[start:end], port[start:end]
        mean = sum(theirs) / len(theirs)
        # Twice the reference's: what the port scatters must not widen its own bound.
        error = math.sqrt(2 * max(_noise(theirs), whole) / len(theirs))
        allowed = bounds.sigmas * error + bounds.relative * abs(mean)
        other = sum(ours) / len(ours)
        result.append(Window(start, end, mean, other, allowed, holds=abs(other - mean) <= allowed))
    return result


def _noise(losses: Sequence[float]) -> float:
    """Variance of a step's loss around a trend: from differences of neighbours, which a slope hardly
    moves."""
    differences = [after - before for before, after in pairwise(losses)]
    return sum(value * value for value in differences) / (2 * len(differences)) if differences else 0.0
