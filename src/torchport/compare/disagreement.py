"""Ranks that hold the same and do otherwise, and the factor by which all gradients are others than on one device."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence

from torchport.compare.conditions import error_finding
from torchport.compare.reach import name_some
from torchport.compare.series import LEAST_SHARE
from torchport.compare.shards import Held, Number
from torchport.compare.whole import Whole
from torchport.findings import Finding
from torchport.record.recording import Recording

CODE, START = "TP369", "TP305"
APART = {"float16": 1e-2, "bfloat16": 3e-2}  # copies of a gradient, relative
APART_FLOAT32 = 1e-3
ONE_FACTOR = 1e-2  # relative: of several gradients
SHOWN = 4  # ranks
HINT = "Look at how gradients are reduced over the ranks, at what divides them and the loss, and at clipping."


def find_other_starts(
    theirs: Mapping[str, Held], ours: Sequence[Mapping[str, Held]], used: set[int]
) -> Iterator[Finding]:
    """Parameters that a rank has as a whole, with other numbers than one device and the other ranks."""
    for name, whole in theirs.items():
        odd = [
            held[name] for held in ours if name in held and held[name].size == whole.size and id(held[name]) not in used
        ]
        if odd and len(odd) < len(ours):
            yield error_finding(
                START,
                f"rank {odd[0].rank} starts from other weights: {name} has the norm {odd[0].norm:.6g}, on one device "
                f"{whole.norm:.6g}",
                "Broadcast the weights of rank 0, or make them from one seed, before the first step.",
            )
            return


def find_disagreement(pairs: Sequence[Whole], bound: float) -> Iterator[Finding]:
    """The first step in which ranks that hold the same part of a parameter have other gradients of it."""
    found: list[tuple[int, str, dict[int, Number]]] = []
    for pair in pairs:
        for part in pair.layout.parts:
            for place, step in enumerate(pair.steps):
                copies = {one.rank: one.gradients[place] for one in part}
                if _are_apart(copies.values(), bound, _least(pairs, place)):
                    found.append((step, pair.name, copies))
                    break
    if not found:
        return
    step, name, copies = min(found, key=lambda row: row[0])
    values = ", ".join(f"{value or 0:.6g} on rank {rank}" for rank, value in list(copies.items())[:SHOWN])
    others = sum(row[0] == step for row in found) - 1
    also = f", and of {others} more parameters" if others else ""
    yield error_finding(
        CODE,
        f"ranks that hold one parameter step with other gradients of it in step {step}: that of {name} is "
        f"{values}{also}",
        "Each rank has a part of the gradient: reduce it over the ranks that share the parameter, then clip.",
        step=step,
    )


def _are_apart(values: Collection[Number], bound: float, least: float) -> bool:
    known = [value for value in values if value is not None]
    if not known or max(known) <= least:
        return False
    return len(known) < len(values) or not max(known) - min(known) <= bound * max(known)


def _least(pairs: Sequence[Whole], place: int) -> float:
    """Gradients below it do not move the model."""
    values = [pair.theirs[place][0] or 0.0 for pair in pairs if place < len(pair.theirs)]
    total = math.hypot(*values)
    return LEAST_SHARE * total if math.isfinite(total) else 0.0


def explain_parting(pairs: Sequence[Whole], ranks: int, step: int | None) -> Iterator[Finding]:
    """The parameters with another gradient than on one device in that step, and the factor where it is one for all."""
    rows = []
    for pair in pairs:
        place = next((place for place, at in enumerate(pair.steps) if at == step), None)
        if place is None:
            continue
        theirs, ours = pair.theirs[place][0], pair.ours[place][0]
        if theirs and ours and math.isfinite(theirs) and math.isfinite(ours) and theirs > _least(pairs, place):
            rows.append((pair, ours / theirs))
    others = [(pair, factor) for pair, factor in rows if abs(factor - 1) > ONE_FACTOR]
    if not others:
        return
    factor = statistics.median(factor for _, factor in others)
    names = name_some([pair.name for pair, _ in others])
    which = "all" if len(others) == len(rows) else f"{len(others)} of {len(rows)}"
    if all(abs(one - factor) <= ONE_FACTOR * factor for _, one in others):
        text = (
            f"the gradients of {which} parameters are {factor:.3g} times what one device has in step {step} ({names})"
        )
        text += _name_factor(factor, ranks)
    else:
        text = f"the gradients of {which} parameters are others than on one device in step {step}: {names}"
    wholes = {pair.layout.is_whole for pair, _ in others}
    rest = {pair.layout.is_whole for pair, factor in rows if abs(factor - 1) <= ONE_FACTOR}
    if rest and len(wholes) == 1 and wholes != rest:
        text += ". They are all parameters that each rank has as a whole" * (True in wholes)
        text += ". They are all parameters that ranks have parts of" * (False in wholes)
    yield error_finding(CODE, text, HINT, step=step)


def _name_factor(factor: float, ranks: int) -> str:
    if math.isclose(factor, ranks, rel_tol=ONE_FACTOR):
        return ": the number of ranks, by which something is not divided (or what is summed is the same on all)"
    if math.isclose(factor, 1 / ranks, rel_tol=ONE_FACTOR):
        return ": one by the number of ranks, by which something is divided once too often (or nothing is summed)"
    return ""


def get_bound(recording: Recording) -> float:
    """How far copies of one gradient may differ (relative), in the loosest precision of the recording."""
    return (
        max((APART.get(event["dtype"], 0.0) for event in recording.of_kind("precision")), default=0.0) or APART_FLOAT32
    )
