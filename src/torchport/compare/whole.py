"""A parameter of one device and what several ranks make of it, step by step."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from torchport.compare.shards import Layout, Number
from torchport.record.quantities import SAMPLE


@dataclasses.dataclass(frozen=True, slots=True)
class Whole:
    """One parameter in both runs, by steps of its optimizer: gradient and change on one device, and of all ranks."""

    name: str
    layout: Layout
    steps: Sequence[int]
    theirs: Sequence[tuple[Number, Number]]  # gradient, change
    ours: Sequence[tuple[Number, Number]]

    @property
    def follows_changes(self) -> bool:
        """Whether changes are compared: a sample of a part is none of the whole, unless it has all numbers."""
        return self.layout.is_whole or self.layout.whole.size <= SAMPLE


def put_together(name: str, layout: Layout) -> Whole:
    """The parameter in each step that all have; of copies that differ the one that is furthest off."""
    held = [one for part in layout.parts for one in part]
    count = min(len(one.gradients) for one in (layout.whole, *held))
    whole = layout.whole
    theirs: list[tuple[Number, Number]] = []
    ours: list[tuple[Number, Number]] = []
    for step in range(count):
        gradients = [_choose(whole.gradients[step], [one.gradients[step] for one in part]) for part in layout.parts]
        changes = [_choose(whole.changes[step], [one.changes[step] for one in part]) for part in layout.parts]
        theirs.append((whole.gradients[step], whole.changes[step]))
        ours.append((_add_up(gradients), _add_up(changes)))
    pair = Whole(name, layout, whole.steps[:count], theirs, ours)
    if pair.follows_changes:
        return pair
    return dataclasses.replace(pair, theirs=_drop_changes(theirs), ours=_drop_changes(ours))


def _drop_changes(values: Sequence[tuple[Number, Number]]) -> list[tuple[Number, Number]]:
    return [(gradient, None) for gradient, _ in values]


def _choose(theirs: Number, copies: Sequence[Number]) -> Number:
    """Of what several ranks have of one part the one that is furthest from what one device has."""
    known = [copy for copy in copies if copy is not None]
    if len(known) < len(copies) or theirs is None:
        return known[0] if known and theirs is None else None
    return max(known, key=lambda value: abs(value - theirs) if math.isfinite(value) else math.inf)


def _add_up(parts: Sequence[Number]) -> Number:
    known = [part for part in parts if part is not None]
    return math.hypot(*known) if known else None
