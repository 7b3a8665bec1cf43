"""The comparison of a port's runs, and the further runs that it turns out to need."""

from __future__ import annotations

import functools
from pathlib import Path

from torchport.compare import compare
from torchport.findings import Result
from torchport.port import controls, suspects
from torchport.port.plan import CONTROL, Plan
from torchport.port.progress import Progress
from torchport.record import roundoff
from torchport.record.recording import Recording

AMPLIFIED, UNNOTICED = "TP349", "TP356"
FORCED, NOISE = "forced", "noise"  # below compare/, what was run again


OPERATORS = "operators"


def judged(plan: Plan, folder: Path, reference: Recording, port: Recording, progress: Progress) -> Result:
    """As `_judged`, and which operator is wrong first where the runs part (`suspects`)."""
    result = _judged(plan, folder, reference, port, progress)
    return result if not plan.operators else suspects.named(plan, folder / OPERATORS, result, progress)


def _judged(plan: Plan, folder: Path, reference: Recording, port: Recording, progress: Progress) -> Result:
    """Compare `port` with `reference` by the control run of `plan`; in `folder` is what is run again.

    A training that rounding takes another way within the control run, or in which it drowns small faults, is run step
    by step from the reference's states; one of which a later step may be amplified rounding is measured for longer.
    """
    control = _fitting_control(plan, folder, port, progress)
    judge = functools.partial(compare, reference, port, on_npu=True, control=control, given=plan.tolerance)
    result = judge()
    measured = result.data["yardstick"]
    codes = {finding.code for finding in result.findings}
    drowned = measured and (measured["chaotic"] is not None or UNNOTICED in codes)
    if drowned and reference.of_kind("step") and plan.tolerance is None and not result.data["chance"]:
        progress.note("rounding grows fast in this training: each step is run from the original's state")
        place = folder / FORCED
        place.mkdir()
        forced = controls.forced(plan, place, progress, _formats(plan, port))
        if forced is not None:
            return judge(forced=forced)
    elif AMPLIFIED in codes:
        progress.note("training amplifies rounding here: the original runs once more, with noise")
        noise = folder / NOISE
        noise.mkdir()
        return judge(longer=controls.noisy(plan, noise, progress, _formats(plan, port)))
    return result


def _fitting_control(plan: Plan, folder: Path, port: Recording, progress: Progress) -> Recording | None:
    """The control run; another one where the port's device rounds otherwise than that one took for granted."""
    declared = _formats(plan, port)
    if declared == plan.kept(CONTROL).data["formats"]:
        return controls.recorded(plan.kept_in(CONTROL))
    progress.note("the port's device was told to round otherwise: the control run is made again")
    again = folder / CONTROL
    again.mkdir()
    controls.control(plan, again, progress, declared)
    return controls.recorded(again)


def _formats(plan: Plan, port: Recording) -> dict[str, str]:
    """Those in which the port's device said that it computes; what was taken for granted where it said nothing."""
    known: dict[str, str] = plan.kept(CONTROL).data["formats"]
    return roundoff.declared(port) if port.of_kind("device") else known
