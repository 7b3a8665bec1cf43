"""Calls of modules without gradients while a script trains: evaluations, compared as in an evaluation-only script."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torchport.compare.conditions import error_finding
from torchport.compare.series import LEAST_SHARE, LOSS
from torchport.compare.tolerance import Tolerance
from torchport.compare.yardstick import Pair
from torchport.findings import Finding
from torchport.record.recording import Process

# An output is more arithmetic than a loss, and other data: so many times what is allowed to the loss of that step.
TIMES = 10.0
_MODE = "Look for eval() and train() calls that are chosen by the device, lost or in another place."
_OUTPUT = "Look at the data of the evaluation, at dropout and batch norm, and at which weights (averages) are used."


def compare_evaluations(
    theirs: Process, ours: Process, losses: Sequence[Pair], tolerance: Tolerance
) -> Iterator[Finding]:
    """The first call in another mode, or else the first that gives other outputs.

    Modes are exact. Outputs may differ as far as `losses` may at that step; after a step where the loss says nothing by
    itself, outputs are not compared.
    """
    before, after = _by_place(theirs), _by_place(ours)
    both = sorted(before.keys() & after.keys(), key=lambda place: (place[1], place[2]))
    for place in both:
        one, other = before[place], after[place]
        if (one["training"], one["modules"]) != (other["training"], other["modules"]):
            yield error_finding(
                "TP360",
                f"at {place[0]} after step {place[1]} {_mode(other)} in the port, {_mode(one)} in the original",
                _MODE,
                step=place[1],
            )
            return
    for place in both:
        bound = _bound(place[1], losses, tolerance)
        error = _error(before[place]["norms"], after[place]["norms"])
        if not error <= bound:
            yield error_finding(
                "TP360",
                f"what {place[0]} gives without gradients differs after step {place[1]}: {error:.1e} relative where "
                f"{bound:.1e} is allowed",
                _OUTPUT,
                step=place[1],
            )
            return


def _by_place(process: Process) -> dict[tuple[str, int, int], Mapping[str, Any]]:
    return {(event["site"], event["step"], event["call"]): event for event in process.of_kind("evaluation")}


def _mode(event: Mapping[str, Any]) -> str:
    return f"{event['training']} of {event['modules']} modules are in training mode"


def _bound(step: int, losses: Sequence[Pair], tolerance: Tolerance) -> float:
    """The bound after so many steps; infinite if the losses up to there say nothing by themselves."""
    allowed = [
        bound
        for pair in losses
        if pair.key[0] == LOSS
        for at, bound in zip(pair.reference.at, pair.allowed, strict=False)
        if at <= step
    ]
    if not allowed or tolerance.run is None:
        return math.inf
    return min(TIMES * max(allowed), tolerance.run) if math.isfinite(max(allowed)) else math.inf


def _error(reference: Sequence[Any], port: Sequence[Any]) -> float:
    """The largest relative difference of a norm; infinite for another number of outputs."""
    if len(reference) != len(port):
        return math.inf
    numbers = [(float(one), float(other)) for one, other in zip(reference, port, strict=True) if one is not None]
    least = LEAST_SHARE * math.hypot(*(one for one, _ in numbers if math.isfinite(one)))
    errors = [0.0]
    for one, other in numbers:
        if math.isfinite(one) and math.isfinite(other):
            scale = max(abs(one), least)
            errors.append(abs(other - one) / scale if scale else (0.0 if one == other else math.inf))
        elif str(one) != str(other):
            errors.append(math.inf)
    return max(errors)
