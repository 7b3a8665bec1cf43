"""The comparison of a port's runs, and the further runs that it turns out to need."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

from torchport.compare import compare_recordings
from torchport.findings import Result, Severity
from torchport.port import controls, suspects
from torchport.port.plan import CONTROL, Plan
from torchport.port.progress import Progress
from torchport.record import roundoff
from torchport.record.recording import Recording
from torchport.results.comparison import Comparison
from torchport.results.port import ControlRun

AMPLIFIED, UNNOTICED, SHORT = "TP349", "TP356", "TP364"
MEASURED = frozenset({"TP301", "TP354", "TP363"})  # findings whose bounds are measured rounding
FORCED, NOISE = "forced", "noise"  # below compare/, what was run again


OPERATORS = "operators"


def judge_runs(
    plan: Plan, folder: Path, reference: Recording, port: Recording, control: ControlRun, progress: Progress
) -> Result[Comparison]:
    """As `_judged`, and which operator is wrong first where the runs part (`suspects`)."""
    result = _judged(plan, folder, reference, port, control, progress)
    return result if not plan.operators else suspects.add_suspects(plan, folder / OPERATORS, result, progress)


def _judged(
    plan: Plan, folder: Path, reference: Recording, port: Recording, control: ControlRun, progress: Progress
) -> Result[Comparison]:
    """Compare `port` with `reference` by the control run of `plan`; in `folder` is what is run again.

    A training that rounding takes another way within the control run, or in which it drowns small faults, is run step
    by step from the reference's states; one of which a later step may be amplified rounding is measured for longer.
    """
    formats = _formats(control, port)
    yardstick = _fitting_control(plan, folder, control, formats, progress)
    judge = functools.partial(compare_recordings, reference, port, on_npu=True, control=yardstick, given=plan.tolerance)
    result = judge()
    if plan.tolerance is not None or not result.data.yardstick:
        return result

    def force() -> Result[Comparison]:
        nonlocal judge
        progress.note("rounding grows fast in this training: each step is run from the original's state")
        place = folder / FORCED
        place.mkdir()
        forced = controls.run_forced_steps(plan, place, progress, formats)
        if forced is not None:
            judge = functools.partial(judge, forced=forced)
        return judge()

    can_be_forced = bool(reference.of_kind("step")) and not result.data.chance
    if can_be_forced and _is_drowned(result):
        can_be_forced = False
        result = force()
    late = _find_late_difference(result, control)
    if late is not None or (_has(result, AMPLIFIED) and not result.data.forced):
        progress.note("a later step differs: the original runs once more, with noise, to measure rounding there")
        noise = folder / NOISE
        noise.mkdir()
        longer = controls.run_with_noise(plan, noise, progress, formats, least=(late or 0) + 1)
        judge = functools.partial(judge, longer=longer)
        result = judge()
        if can_be_forced and _is_drowned(result):
            result = force()
    return result


def _is_drowned(result: Result[Comparison]) -> bool:
    """Whether rounding takes the training another way, or hides small faults or too many of the steps."""
    measured = result.data.yardstick
    return (measured is not None and measured.chaotic is not None) or _has(result, UNNOTICED) or _has(result, SHORT)


def _has(result: Result[Comparison], code: str) -> bool:
    return any(finding.code == code for finding in result.findings)


def _find_late_difference(result: Result[Comparison], control: ControlRun) -> int | None:
    """The first step that speaks against the port, if the control run did not come that far."""
    found = [
        int(finding.evidence["step"])
        for finding in result.findings
        if finding.severity is Severity.ERROR and finding.code in MEASURED and "step" in finding.evidence
    ]
    first = min(found, default=0)
    return first if first >= control.steps > 0 else None


def _fitting_control(
    plan: Plan, folder: Path, control: ControlRun, formats: Mapping[str, str], progress: Progress
) -> Recording | None:
    """The control run; another one if the port's device rounds otherwise than that one took for granted."""
    if formats == control.formats:
        return controls.read_control_recording(control, plan.kept_in(CONTROL))
    progress.note("the port's device was told to round otherwise: the control run is made again")
    again = folder / CONTROL
    again.mkdir()
    return controls.read_control_recording(controls.run_control(plan, again, progress, formats), again)


def _formats(control: ControlRun, port: Recording) -> Mapping[str, str]:
    """The formats in which the port's device said that it computes; else the formats of the control run."""
    return roundoff.read_declared_formats(port) if port.of_kind("device") else control.formats
