"""The original run again: with rounding noise and small faults (the control run), and step by step from saved states.

What noise does to the original is what rounding may do to the port; a comparison that does not notice the faults could
not notice a fault of the port's either.
"""

from __future__ import annotations

import dataclasses
import shutil
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torchport import vnpu
from torchport.compare import Forced
from torchport.errors import TorchportError
from torchport.launch.host_memory import free_memory
from torchport.launch.keeper import Ended
from torchport.port.plan import CONTROL, NPU, REFERENCE, RESULT, Plan, step_result
from torchport.port.progress import Progress
from torchport.port.runs import (
    FILES,
    VIEW,
    count_ranks,
    find_kept,
    make_views,
    name_view_folder,
    options_of,
    restore_original_paths,
    run_recorded,
    steps_of,
)
from torchport.port.watch import Watch
from torchport.record import recording, roundoff, states
from torchport.record.recording import Recording
from torchport.results.port import ControlRun

MOST_STEPS = 20  # of the control run
MOST_NOISY = 200  # of the run that measures rounding where a training amplifies it
ROOM = 2.5  # times the memory of the reference's first step, for a control run and the port beside each other
ONE_THREAD = "1"  # another order of adding than that of the reference, which has several


class StoppedError(Exception):
    """Who waited for the run does so no longer."""


def run_control(
    plan: Plan,
    aside: Path,
    progress: Progress,
    formats: Mapping[str, str] | None = None,
    stopped: threading.Event | None = None,
) -> ControlRun:
    """Run the original once more in the folder `aside`, with noise and, where the plan has it so, with faults, for at
    most `MOST_STEPS` steps.

    `formats` are those in which an NPU computes (`roundoff`), None for those of its defaults. Setting `stopped` ends
    the run and raises StoppedError. A run that fails is no failure of the port: `why` says why.
    """
    reference = Recording.from_directory(plan.kept_in(REFERENCE))
    steps = min(reference.steps, MOST_STEPS)
    formats = assume_formats() if formats is None else formats
    data = ControlRun(
        plan.command, None, 0, 0.0, "the original did not reach a step", (), dict(formats), faults=plan.control
    )
    if steps:
        watch = _stoppable(Watch(aside, plan.timeout, progress), stopped)
        changes = {"noise": 1, "roundoffs": dict(formats), "faults": plan.control, "steps": steps}
        try:
            found, ended = rerun_side(plan, REFERENCE, aside, watch, changes)
        except (OSError, TorchportError) as error:
            data = dataclasses.replace(data, why=f"it could not be run: {error}")
        else:
            done = _steps(found, reference)
            data = dataclasses.replace(
                data,
                status=ended.status,
                steps=done,
                seconds=ended.seconds,
                why=_why(done, ended, steps),
                messages=tuple(found.last_messages),
            )
    step_result(CONTROL, plan, data).write(aside / RESULT)
    return data


def assume_formats() -> dict[str, str]:
    """The formats in which the NPU of this machine computes with float32 unless the script says otherwise."""
    return {} if vnpu.detect().kind is vnpu.Kind.VNPU else dict(roundoff.DEFAULTS)


def read_control_recording(run: ControlRun, folder: Path) -> Recording | None:
    """The recording of a control run in `folder`; None if it reached no step."""
    return Recording.from_directory(folder) if run.steps else None


def has_room(plan: Plan) -> bool:
    """Whether this machine has the memory for the control run beside the port, as far as the reference tells."""
    memory = Recording.from_directory(plan.kept_in(REFERENCE)).of_kind("memory")
    needed = sum(int(event["resident"]) for event in memory)
    return bool(memory) and ROOM * needed < free_memory()[0]


def may_run_beside(plan: Plan) -> bool:
    """Whether the control run and the port may run at one time: there is memory, and they do not meet.

    Ranks that torchrun has found no place for meet at one of the script's or of the launcher's, which all runs have.
    """
    alone = count_ranks(plan) == 1 or "--standalone" in plan.launch.command
    return alone and has_room(plan)


def run_with_noise(
    plan: Plan, aside: Path, progress: Progress, formats: Mapping[str, str], steps: int, draw: int
) -> Recording:
    """Run the original once more, in the folder `aside`, with the rounding noise of `formats` and without faults, from
    the states from which the port went on, too: how far rounding alone takes it. As many steps as the port did, at most
    `steps`. Another `draw` is other noise."""
    steps = min(steps_of(Recording.from_directory(plan.kept_in(REFERENCE))), steps)
    return _run_noisy(plan, aside, progress, formats, steps, draw=draw)[0]


def run_forced_steps(plan: Plan, aside: Path, progress: Progress, formats: Mapping[str, str]) -> Forced | None:
    """Run the original, the original with noise and faults, and the port, each step from the state that the first had
    before it: for a training that rounding takes another way within a few steps.

    At most as many steps as `states` saves; None where it could not save any. Raises TorchportError where a run cannot
    be started.
    """
    kept = Recording.from_directory(plan.kept_in(REFERENCE))
    folder = aside / recording.STATES
    found: dict[str, Recording] = {}
    with_faults = {"noise": 1, "roundoffs": dict(formats), "faults": plan.control, "states_in": str(folder)}
    steps = min(kept.steps, states.MOST_STEPS)
    size = 0
    for name, side, changes in (
        (REFERENCE, REFERENCE, {"states_out": str(folder)}),
        (CONTROL, REFERENCE, with_faults),
        (NPU, NPU, {"states_in": str(folder)}),
    ):
        place = aside / name
        place.mkdir(parents=True)
        watch = Watch(place, plan.timeout, progress)
        found[name], _ = rerun_side(plan, side, place, watch, {**changes, "steps": steps})
        if name == REFERENCE:
            saved, size = states.measure_saved_states(folder)
            if not saved:
                return None
            steps = min(steps, saved + 1)  # the first step needs none
    shutil.rmtree(folder)
    return Forced(found[REFERENCE], found[NPU], found[CONTROL], size)


def run_to_the_end(plan: Plan, aside: Path, progress: Progress, formats: Mapping[str, str], draw: int) -> Ended:
    """Run the original once more, in the folder `aside`, with the rounding noise `draw` of `formats`, from the states
    from which the port went on, as far as the port, and keep the files that it writes."""
    steps = steps_of(Recording.from_directory(plan.kept_in(REFERENCE)))
    return _run_noisy(plan, aside, progress, formats, steps, draw=draw, keep=True)[1]


def _run_noisy(
    plan: Plan,
    aside: Path,
    progress: Progress,
    formats: Mapping[str, str],
    steps: int,
    *,
    draw: int,
    keep: bool = False,
) -> tuple[Recording, Ended]:
    """Run the original with noise and without faults, from the states from which the port went on."""
    states_in = find_kept(plan, recording.STATES)
    changes = {"noise": draw, "roundoffs": dict(formats), "steps": steps, "states_in": states_in}
    return rerun_side(plan, REFERENCE, aside, Watch(aside, plan.timeout, progress), changes, keep=keep)


def rerun_side(
    plan: Plan, side: str, aside: Path, watch: Callable[[float], str], changes: Mapping[str, Any], *, keep: bool = False
) -> tuple[Recording, Ended]:
    """Run one side in the folder `aside` from the reference's initial weights, with these options of the session; what
    it wrote is kept there with `keep`."""
    kept = Recording.from_directory(plan.kept_in(REFERENCE))
    with make_views(plan, side, aside) as views:
        options = dataclasses.replace(
            options_of(plan, side, aside, views),
            save="",
            load=str(plan.kept_in(REFERENCE) / recording.WEIGHTS),
            batches=find_kept(plan, recording.BATCHES),
            enough=None,
            kind=kept.trained[0].step_kind,
            discarded=not keep,
            **{"states_out": "", "states_every": 1, **changes},
        )
        found = run_recorded(plan, side, aside, views, options, watch, ONE_THREAD if side == REFERENCE else "")
        for number, view in enumerate(views):
            if keep:
                view.keep_written(aside / name_view_folder(FILES, number))
                output = aside / recording.STDOUT
                output.write_text(restore_original_paths([view], output.read_text("utf-8", "replace")), "utf-8")
            shutil.rmtree(aside / f"{VIEW}-{number + 1}")
    return found


def _stoppable(watch: Watch, stopped: threading.Event | None) -> Callable[[float], str]:
    def look(seconds: float) -> str:
        if stopped is not None and stopped.is_set():
            raise StoppedError
        return watch(seconds)

    return look


def _steps(found: Recording, reference: Recording) -> int:
    """The steps of the reference's kind: a run that fails may have called a module without doing a step."""
    kinds = {one.trained[0].step_kind for one in (found, reference) if one.trained}
    return found.steps if len(kinds) == 1 else 0


def _why(done: int, ended: Ended, steps: int) -> str:
    """Why a run did fewer steps than it was asked for."""
    if done >= steps:
        return ""
    reason = {"timeout": "it was stopped by --timeout", "memory": "the machine's memory was used up"}
    text = reason.get(ended.stopped, f"it ended with exit status {ended.status}")
    return f"{text} after {done} of {steps} steps"
