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

Place = tuple[str, int, int]  # site, step and call of an evaluation
Evaluated = Mapping[Place, Mapping[str, Any]]
# An output is more arithmetic than a loss, and other data: so many times what is allowed to the loss of that step.
TIMES = 10.0
HALF = 0.1  # at most, in half precision, if rounding was measured; else it is not compared
_MODE = "Look for eval() and train() calls that are chosen by the device, lost or in another place."
_OUTPUT = "Look at the data of the evaluation, at dropout and batch norm, and at which weights (averages) are used."


def compare_evaluations(
    theirs: Process, ours: Process, noise: Process | None, losses: Sequence[Pair], tolerance: Tolerance
) -> Iterator[Finding]:
    """The first call in another mode, or else the first that gives other outputs.

    Modes are exact. Outputs may differ as far as `losses` may at that step, or so many times as far as the outputs of
    `noise` do up to there, a run of the original with rounding noise: a weight that rounding alone moves (a bias before
    a BatchNorm) is not seen in the losses. After a step where the loss says nothing by itself, outputs are not
    compared.
    """
    before, after = _by_place(theirs), _by_place(ours)
    moved = _measure_noise(before, noise)
    limit = tolerance.run or (HALF if noise is not None else math.inf)
    for place in _find_other_modes(before, after):
        yield error_finding(
            "TP363",
            f"at {place[0]} after step {place[1]} {_mode(after[place])} in the port, {_mode(before[place])} in the "
            "original",
            _MODE,
            step=place[1],
        )
        return
    for place in sorted(before.keys() & after.keys(), key=_order):
        measured = [error for at, error in moved.items() if at[0] == place[0] and at[1] <= place[1]]
        bound = max([_bound(place[1], losses, limit), *(tolerance.spread * error for error in measured)])
        error = _error(before[place]["norms"], after[place]["norms"])
        if not error <= bound:
            yield error_finding(
                "TP363",
                f"what {place[0]} gives without gradients differs after step {place[1]}: {error:.1e} relative where "
                f"{bound:.1e} is allowed",
                _OUTPUT,
                step=place[1],
            )
            return


def list_other_modes(theirs: Process, ours: Process) -> list[Place]:
    """The evaluations (site, step, call) with another number of modules in training mode, in order."""
    return _find_other_modes(_by_place(theirs), _by_place(ours))


def _find_other_modes(before: Evaluated, after: Evaluated) -> list[Place]:
    other = [
        place
        for place in before.keys() & after.keys()
        if any(before[place][field] != after[place][field] for field in ("training", "modules"))
    ]
    return sorted(other, key=_order)


def _order(place: Place) -> tuple[int, int]:
    return place[1], place[2]


def _measure_noise(before: Evaluated, noise: Process | None) -> dict[Place, float]:
    """How far noise moves the outputs of each place, up to the first fault that is not taken back."""
    if noise is None:
        return {}
    end = min((int(event["step"]) for event in noise.of_kind("fault") if event["what"] == "input"), default=math.inf)
    again = _by_place(noise)
    errors = {
        place: _error(before[place]["norms"], again[place]["norms"])
        for place in before.keys() & again.keys()
        if place[1] < end
    }
    return {place: error for place, error in errors.items() if math.isfinite(error)}


def _by_place(process: Process) -> dict[Place, Mapping[str, Any]]:
    return {(event["site"], event["step"], event["call"]): event for event in process.of_kind("evaluation")}


def _mode(event: Mapping[str, Any]) -> str:
    return f"{event['training']} of {event['modules']} modules are in training mode"


def _bound(step: int, losses: Sequence[Pair], limit: float) -> float:
    """The bound after so many steps, at most `limit`; infinite if the losses up to there say nothing by themselves."""
    allowed = [
        bound
        for pair in losses
        if pair.key[0] == LOSS
        for at, bound in zip(pair.reference.at, pair.allowed, strict=False)
        if at <= step
    ]
    if not allowed or math.isinf(limit):
        return math.inf
    return min(TIMES * max(allowed), limit) if math.isfinite(max(allowed)) else math.inf


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
