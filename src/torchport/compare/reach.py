"""How far a comparison reaches: which steps were compared one by one, which by means, and what was not checked."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from itertools import groupby

from torchport.compare.conditions import open_finding
from torchport.compare.curves import Curve
from torchport.compare.quantities import Compared
from torchport.compare.series import CHANGE, GRADIENT, LOSS, OUTPUT
from torchport.compare.yardstick import RARE
from torchport.findings import Finding
from torchport.results.comparison import Steps

LEAST_SHARE = 0.8  # of the steps, for a word on the port
LAST = 10  # and one of the last tenth
STRONGEST = 0.05  # means that notice no less than this share of the loss do not count as a comparison of their steps
# A gradient that one unit in the last place changes by this share of itself is made of rounding alone, such as that of
# a bias before a BatchNorm.
ROUNDING_ALONE = 0.3
NAMED = 3


@dataclasses.dataclass(frozen=True, slots=True)
class Reach:
    """Of `steps` steps, numbered from 0, those that were compared one by one, and by how far means would notice a
    change of the loss in others (its share)."""

    steps: int
    single: frozenset[int]
    means: dict[int, float]

    @property
    def compared(self) -> set[int]:
        """The steps that a word on the port may rest on."""
        return set(self.single) | {step for step, share in self.means.items() if share <= STRONGEST}

    @property
    def suffices(self) -> bool:
        """Whether enough of the steps were compared, up to the end."""
        compared = self.compared
        last = range(self.steps - max(self.steps // LAST, 1), self.steps)
        return len(compared) >= LEAST_SHARE * self.steps and any(step in compared for step in last)

    def describe(self, kind: str) -> str:
        """ "70 optimizer steps: 40 compared one by one, 30 by means that would notice 3 % of the loss"."""
        if len(self.single) == self.steps:
            return f"{count_steps(self.steps, kind)} compared one by one"
        words = [f"{len(self.single)} compared one by one"]
        if self.means:
            words.append(
                f"{len(self.means)} by means that would notice {100 * max(self.means.values()):.2g} % of the loss"
            )
        if left := self.steps - len(self.single) - len(self.means):
            words.append(f"{left} not compared")
        return f"{count_steps(self.steps, kind)}: {', '.join(words)}"


def measure_reach(
    steps: int, both: Sequence[Compared], apart: Sequence[Compared], curves: Sequence[Curve], *, chance: bool
) -> Reach:
    """The reach of the comparisons of all processes; `curves` are the losses of `both`, `apart` has the steps that
    began from the original's state, and with `chance` no step is compared by itself."""
    single = frozenset() if chance else _compared_singly(steps, both) | _compared_singly(steps, apart)
    means: dict[int, float] = {}
    for curve in curves:
        for span in curve.windows:
            share = span.allowed / abs(span.reference) if span.reference else math.inf
            for at in curve.pair.reference.at[span.start : span.end]:
                if at not in single and at < steps:  # the script may differentiate after its last step
                    means[at] = max(means.get(at, 0.0), share)
    return Reach(steps, single, means)


def report_short_reach(reach: Reach, steps: Steps) -> Iterator[Finding]:
    """That too few of the steps could be compared for a word."""
    if reach.steps and not reach.suffices:
        yield open_finding(
            "TP364",
            f"too few of the steps could be compared: {reach.describe(steps.kind)}",
            "Give the script arguments with which rounding grows less (float32, a larger batch, a smaller learning "
            "rate), or end both runs earlier with --steps.",
        )


def list_unchecked(reach: Reach, both: Sequence[Compared]) -> Iterator[str]:
    """Name, in a few words each, the steps and gradients that were not checked."""
    means = sorted(step for step in reach.means if step not in reach.single)
    if means:
        yield f"steps {format_ranges(means)} one by one (their means were compared)"
    left = [step for step in range(reach.steps) if step not in reach.single and step not in reach.means]
    if left:
        yield f"steps {format_ranges(left)}"
    rare = [(one.prefix + pair.reference.name, pair) for one in both for pair in one.pairs if pair.rare]
    if rare:
        steps = sorted({pair.reference.at[place] for _, pair in rare for place in pair.rare})
        names = list(dict.fromkeys(name for name, _ in rare))
        yield (
            f"faults below {100 * RARE:g} % that are in steps {format_ranges(steps)} alone ({name_some(names)}: they "
            "differ there as they do where rounding moves a value across a threshold, such as that of a ReLU)"
        )
    rounded = [
        one.prefix + pair.reference.name
        for one in both
        for pair in one.select_pairs(GRADIENT)
        if pair.noise and ROUNDING_ALONE < pair.noise[0] < math.inf
    ]
    if rounded:
        yield f"the gradients of {name_some(rounded)} (they are rounding alone)"


def name_some(names: Sequence[str]) -> str:
    """ "conv1.weight, fc.bias and 3 more"."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{', '.join(names[:NAMED])}{more}"


def format_ranges(numbers: Sequence[int]) -> str:
    """ "20 to 39, 45"."""
    runs = [[number for _, number in row] for _, row in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])]
    return ", ".join(f"{row[0]} to {row[-1]}" if len(row) > 1 else str(row[0]) for row in runs)


def count_steps(number: int, kind: str) -> str:
    """ "20 optimizer steps"."""
    return f"{number} {kind}{'' if number == 1 else 'es' if kind.endswith('s') else 's'}"


def _compared_singly(steps: int, both: Sequence[Compared]) -> frozenset[int]:
    found: frozenset[int] | None = None
    for one in both:
        bounds: dict[int, bool] = {}
        made_by_hand = one.select_pairs(GRADIENT, CHANGE)  # without a backward pass
        for pair in one.select_pairs(LOSS) or made_by_hand or one.select_pairs(OUTPUT):
            for at, bound in zip(pair.reference.at, pair.allowed, strict=False):
                bounds[at] = bounds.get(at, True) and math.isfinite(bound)
        # A step without a loss of its own follows from the one before it.
        known, mine = False, set()
        for step in range(steps):
            known = bounds.get(step, known)
            if known:
                mine.add(step)
        found = frozenset(mine) if found is None else found & mine
    return found or frozenset()
