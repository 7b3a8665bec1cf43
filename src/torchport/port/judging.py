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
FOLLOWING = frozenset({"TP306"})  # what is printed at the end: it differs because a step does
SMALL = 0.05  # of a quantity; an activation on the other side of a ReLU moves a gradient by less
MORE_DRAWS = (2, 3, 4)  # the first is that of the control run
FORCED, NOISE, OPERATORS = "forced", "noise", "operators"  # below compare/, what was run again


def judge_runs(
    plan: Plan, folder: Path, reference: Recording, port: Recording, control: ControlRun, progress: Progress
) -> Result[Comparison]:
    """Compare `port` with `reference` by the control run of `plan`, and find the operator that is wrong first where the
    runs part (`suspects`). The further runs that this needs are left in `folder`."""
    result = _Judge(plan, folder, reference, port, control, progress).judge()
    return result if not plan.operators else suspects.add_suspects(plan, folder / OPERATORS, result, progress)


class _Judge:
    """The comparison of a port's runs, and the further runs that it turns out to need."""

    def __init__(
        self, plan: Plan, folder: Path, reference: Recording, port: Recording, control: ControlRun, progress: Progress
    ) -> None:
        self._plan = plan
        self._folder = folder
        self._control = control
        self._progress = progress
        self._formats = find_formats(control, port)
        self._noisy: list[Recording] = []
        self._has_steps = bool(reference.of_kind("step"))
        self._compare = functools.partial(
            compare_recordings,
            reference,
            port,
            on_npu=True,
            control=_fitting_control(plan, folder, control, self._formats, progress),
            given=plan.tolerance,
        )

    def judge(self) -> Result[Comparison]:
        """Compare, with the fewest runs that decide.

        A training that rounding takes another way within the control run, or in which it drowns small faults, is run
        step by step from the reference's states; a later step that may be amplified rounding is measured for longer.
        """
        result = self._compare()
        if self._plan.tolerance is not None or not result.data.yardstick:
            return result
        may_force = self._has_steps and not result.data.chance
        if may_force and _is_drowned(result):
            may_force = False
            result = self._force_steps()
        first = _find_unmeasured_difference(result, self._control)
        if first is not None or (_has(result, AMPLIFIED) and not result.data.forced):
            result = self._measure_longer(first or 0)
            if may_force and _is_drowned(result):
                result = self._force_steps()
        return self._draw_again(result, may_force and not result.data.forced)

    def _force_steps(self) -> Result[Comparison]:
        """Run each step from the original's state, and compare these steps as well."""
        self._progress.note("rounding grows fast in this training: each step is run from the original's state")
        forced = controls.run_forced_steps(self._plan, self._make_folder(FORCED), self._progress, self._formats)
        if forced is not None:
            self._compare = functools.partial(self._compare, forced=forced)
        return self._compare()

    def _measure_longer(self, step: int) -> Result[Comparison]:
        """Run the original with noise as far as `step` at least, and compare by that run as well."""
        self._progress.note(
            "a step differs that the control run says too little of: the original runs once more, with noise"
        )
        return self._add_noise(max(controls.MOST_NOISY, step + 1), draw=1)

    def _draw_again(self, result: Result[Comparison], may_force: bool) -> Result[Comparison]:
        """Run the original with noise of other draws while a small difference speaks against the port.

        Now and then rounding puts one activation to the other side of a ReLU, or another element first in a maximum:
        a gradient then moves a thousand times as far as in the steps before, which a single draw of few steps may not
        have met.
        """
        for draw in MORE_DRAWS:
            step = _find_small_difference(result)
            if step is None:
                break
            if draw == MORE_DRAWS[0]:
                self._progress.note("a small difference: the original runs again, with rounding noise of other draws")
            result = self._add_noise(max(controls.MOST_STEPS, step + 1), draw)
            if may_force and _is_drowned(result):
                may_force, result = False, self._force_steps()
        return result

    def _add_noise(self, steps: int, draw: int) -> Result[Comparison]:
        """Run the original with noise for so many steps, and compare by that run as well."""
        folder = self._make_folder(f"{NOISE}-{draw}")
        self._noisy.append(controls.run_with_noise(self._plan, folder, self._progress, self._formats, steps, draw))
        self._compare = functools.partial(self._compare, longer=self._noisy)
        return self._compare()

    def _make_folder(self, name: str) -> Path:
        folder = self._folder / name
        folder.mkdir()
        return folder


def _is_drowned(result: Result[Comparison]) -> bool:
    """Whether rounding takes the training another way, or hides small faults or too many of the steps."""
    measured = result.data.yardstick
    return (measured is not None and measured.chaotic is not None) or _has(result, UNNOTICED) or _has(result, SHORT)


def _has(result: Result[Comparison], code: str) -> bool:
    return any(finding.code == code for finding in result.findings)


def _find_measured_error(result: Result[Comparison]) -> int | None:
    """The first step with an error whose bound is measured rounding; None if there is none."""
    steps = [
        int(finding.evidence["step"])
        for finding in result.findings
        if finding.severity is Severity.ERROR and finding.code in MEASURED and "step" in finding.evidence
    ]
    return min(steps, default=None)


def _find_unmeasured_difference(result: Result[Comparison], control: ControlRun) -> int | None:
    """The first step that speaks against the port, if the control run says too little of it: it did not come that far,
    or computes in half precision, where now and then rounding puts an activation to the other side of a ReLU, and its
    few steps may have had none of these."""
    found = _find_measured_error(result)
    first = found or 0
    is_half = found is not None and result.data.tolerance["dtype"] != "float32"
    return first if control.steps and (is_half or first >= control.steps) else None


def _find_small_difference(result: Result[Comparison]) -> int | None:
    """The first step that speaks against the port, if it does so by no more than rounding may do in a rare step, and
    nothing else speaks against it."""
    first = _find_measured_error(result)
    errors = (finding for finding in result.findings if finding.severity is Severity.ERROR)
    if first is None or any(finding.code not in MEASURED | FOLLOWING for finding in errors):
        return None
    found = [row.error for row in result.data.first if row.step == first]
    return first if all(error is not None and error <= SMALL for error in found) else None


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


def find_formats(control: ControlRun, port: Recording) -> Mapping[str, str]:
    """The formats in which the port's device said that it computes; else the formats of the control run."""
    return roundoff.read_declared_formats(port) if port.of_kind("device") else control.formats
