"""The step that is timed: of the steps with the usual batch the last."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class Chosen:
    """`index` of the step, from 0, the samples that it was given, and the samples of each step."""

    index: int
    samples: float
    each: tuple[float, ...]


def choose_step(note: dict[str, Any]) -> Chosen:
    """Choose by the notes of one process (`session`).

    The batch that most steps have is the usual one, the larger of two that as many have: the last batch of an epoch is
    often a short one, and a step of it would be taken for a fast one. The first step, which also makes the optimizer's
    state, is timed only if no other has the usual batch.
    """
    each = _count_samples((note["memory"] or {}).get("calls") or [], len(note["marks"]))
    counts = Counter(each)
    usual = max(counts, key=lambda samples: (counts[samples], samples), default=0.0)
    index = max((place for place, samples in enumerate(each) if samples == usual), default=len(note["marks"]) - 1)
    return Chosen(index, usual, each)


def _count_samples(called: list[list[list[int]]], steps: int) -> tuple[float, ...]:
    """The samples of each step, by the first dimension of what a module is called with.

    `called` has a row for each step: calls and samples of each outermost module until its end. If a script calls
    several modules (a loss, two networks against each other), the one counts that is given the fewest samples in all
    and is called at least as often as there are steps.
    """
    if not called or len(called) < steps:
        return (0.0,) * steps
    last = called[-1]
    often = [place for place, (calls, _) in enumerate(last) if calls >= steps]
    if not often:
        return (0.0,) * steps
    module = min(often, key=lambda place: last[place][1])
    until = [row[module][1] if module < len(row) else 0 for row in called]
    return tuple(float(end - begin) for begin, end in zip([0, *until], until, strict=False))
