"""Which operator takes a loss away from its reference: some are computed by the CPU, in halves, until it follows."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

LEAST = 1e-7  # relative: two float32 losses are not nearer than that
PARTS = 10.0  # times what is left with all operators on the CPU: less is no difference to look for
# A loss this many times smaller than the first is compared with that.
FLOOR = 1e-3

FOUND, FOLLOWS, OTHER, SEVERAL = "found", "follows", "no operator", "several"
WORDS = {
    FOUND: "{name} alone explains it",
    FOLLOWS: "the loss follows the reference: there is nothing to look for",
    OTHER: "the loss parts from the reference with every operator computed by the CPU as well: no operator explains it",
    SEVERAL: "no single operator explains it: {count} together do",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Try:
    """One run: how many of the candidates the CPU computed (their names, where they are few), how far the loss was from
    the reference's, and whether that is near enough."""

    count: int
    names: Sequence[str]
    distance: float
    follows: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """What the runs say: `outcome` is one of WORDS, `names` the operators that explain the difference, `bound` what
    counts as near."""

    outcome: str
    names: Sequence[str]
    tries: Sequence[Try]
    bound: float

    @property
    def sentence(self) -> str:
        """For people."""
        return WORDS[self.outcome].format(name=next(iter(self.names), ""), count=len(self.names))


def measure_loss_distance(reference: Mapping[str, Sequence[float]], run: Mapping[str, Sequence[float]]) -> float:
    """The largest relative difference of the losses at the places that both have; infinite for a loss that is no number
    on one side only, or where a place of the reference, or one of its steps, is missing."""
    worst = 0.0
    for place, theirs in reference.items():
        ours = run.get(place, ())
        if len(ours) < len(theirs):
            return math.inf
        first = next((abs(value) for value in theirs if math.isfinite(value)), 0.0)
        for a, b in zip(theirs, ours, strict=False):
            if math.isfinite(a) and math.isfinite(b):
                worst = max(worst, abs(a - b) / max(abs(a), FLOOR * first, 1e-30))
            elif str(a) != str(b):
                return math.inf
    return worst


def halve_candidates(names: Sequence[str], away: float, run: Callable[[Sequence[str]], float]) -> Found:
    """Halve `names` until one is left. `away` is how far the loss is with none of them on the CPU, `run` gives how far
    it is with some.

    What counts as near lies in the middle, as a ratio, between `away` and what is left with all of them. One operator
    is taken to be to blame until a run with it alone says otherwise. Calls `run` about log2(len(names)) + 2 times.
    """
    tries: list[Try] = []

    def attempt(some: Sequence[str], bound: float) -> bool:
        found = run(some)
        tries.append(Try(len(some), list(some[:8]), found, found <= bound))
        return tries[-1].follows

    if away <= LEAST:
        return Found(FOLLOWS, [], tries, LEAST)
    attempt(names, math.inf)
    rest = max(tries[0].distance, LEAST)
    if away <= PARTS * rest:
        near = away <= PARTS * LEAST
        tries[0] = dataclasses.replace(tries[0], follows=near)
        return Found(FOLLOWS if near else OTHER, [], tries, PARTS * LEAST)
    bound = math.sqrt(min(away, 1e6) * rest)
    left, sure = list(names), list(names)
    while len(left) > 1:
        half = left[: len(left) // 2]
        if attempt(half, bound):
            left = sure = half
        else:
            left = left[len(half) :]
    if sure == left or attempt(left, bound):
        return Found(FOUND, left, tries, bound)
    return Found(SEVERAL, sure, tries, bound)
