"""From dry runs to a prediction: whether it fits, milliseconds a step with an interval, what bounds it, what scales."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torchport.errors import TorchportError
from torchport.launch import Launch
from torchport.predict import advice, cost, interval, memory, runs
from torchport.predict.cost import Step
from torchport.predict.memory import Peak
from torchport.predict.runs import Plan, Ran
from torchport.predict.timeline import Log, read

Say = Callable[[str], None]


@dataclasses.dataclass(frozen=True, slots=True)
class Ranks:
    """What so many ranks come to: of the slowest one its step, the largest peak, and samples a second of all."""

    ranks: int
    step: Step | None
    low: float
    high: float
    samples: float
    throughput: float
    peak: Peak | None
    resident: int
    seconds: float
    wall_step: float


@dataclasses.dataclass(frozen=True, slots=True)
class Prediction:
    """A script on a chip. `failure` is the error that ended it, empty otherwise. `reads` are the lines that read values
    of the device and `unknown_reads` how often; `unfilled` the bytes of weights made on the host that were given no
    values; `shapes` operators whose sizes depend on data; `advice` what was tried where memory was out."""

    soc: str
    steps: int
    fits: bool
    failure: str
    one: Ranks
    many: Ranks | None
    validated: str
    reads: list[dict[str, Any]]
    unknown_reads: int
    unfilled: int
    shapes: dict[str, int]
    advice: list[dict[str, Any]]
    timeline: list[dict[str, Any]]

    def as_json(self) -> dict[str, Any]:
        """For `--json` and the next step."""
        return dataclasses.asdict(self)


def predict(
    plan: Plan, several: Launch | None = None, *, tries: bool = True, say: Say = lambda _: None
) -> Prediction:
    """Run the plan dry on one rank and, with `several`, as that command starts more.

    Raises TorchportError, with exit code 1 where the script failed and 2 where there is nothing to predict.
    """
    with runs.scratch() as folder:
        one = runs.run(plan, folder, say=lambda text: say(f"one rank: {text}"))
        full = _out_of_memory(one)
        _judge(plan, one, full)
        ranks, log, marks = _ranks(plan, one)
        tried = advice.tries(plan, say) if full and tries else []
        many = None
        if several is not None and not full:
            many = _several(plan, several, say)
        read_lines = one.notes[0]["reads"]
        return Prediction(
            soc=plan.soc,
            steps=len(one.notes[0]["marks"]),
            fits=not full,
            failure=(one.notes[0]["error"] or {}).get("text", "") if full else "",
            one=ranks,
            many=many,
            validated=interval.validated(plan.soc),
            reads=read_lines,
            unknown_reads=one.notes[0]["unknown_reads"],
            unfilled=one.notes[0]["unfilled"],
            shapes=_shapes(log),
            advice=tried,
            timeline=_timeline(log, marks),
        )


def _several(plan: Plan, launch: Launch, say: Say) -> Ranks:
    with runs.scratch() as folder:
        environment = {**plan.environment, **dict(launch.variables)}
        ran = runs.run(
            dataclasses.replace(plan, launch=launch, environment=environment),
            folder,
            say=lambda text: say(f"{launch.processes} ranks: {text}"),
        )
        _judge(plan, ran, False)
        return _ranks(plan, ran)[0]


def _out_of_memory(ran: Ran) -> bool:
    return any(note["error"] and note["error"]["out_of_memory"] for note in ran.notes)


def _judge(plan: Plan, ran: Ran, full: bool) -> None:
    """Raise what keeps the run from being a prediction."""
    if full:
        return
    failed = next((note["error"] for note in ran.notes if note["error"]), None)
    read_lines = [line for note in ran.notes for line in note["reads"]]
    often = max(read_lines, key=lambda line: line["count"], default=None)
    hint = (
        f"It read a value of the device {often['count']} times at {os.path.basename(often['path'])}:{often['line']} "
        f"({often['call']}); in a dry run these are zero."
        if often
        else "No value of the device was read, so `torchport run` fails in the same way."
    )
    if failed is not None:
        raise TorchportError(
            f"the script failed at {failed['where']}: {failed['text']}", hint=hint, exit_code=1
        )
    if ran.status is None:
        raise TorchportError(
            f"the script did not come to {plan.steps} steps within {plan.seconds:g} s",
            hint=f"{hint if often else 'Give it more time (--limit) or fewer --steps.'}",
            exit_code=1,
        )
    if not ran.notes and ran.status != 0:
        last = ran.tail.strip().splitlines()
        raise TorchportError(
            f"the script ended with status {ran.status} before it came to the NPU: {last[-1] if last else 'no output'}",
            hint="`torchport run` shows all that it writes.",
            exit_code=1,
        )
    if not ran.notes or not any(note["marks"] for note in ran.notes):
        raise TorchportError(
            "the script ended without a step of an optimizer on the NPU: there is nothing to predict",
            hint="A step is a call of optimizer.step(); give the words that make it train.",
        )
    if ran.status != 0 and not any(len(note["marks"]) >= plan.steps for note in ran.notes):
        raise TorchportError(f"the script ended with status {ran.status}", hint=hint, exit_code=1)


def _ranks(plan: Plan, ran: Ran) -> tuple[Ranks, Log | None, tuple[float, float]]:
    """Of all ranks of a run the slowest step and the largest peak; the first rank's log."""
    logs: list[Log] = [read(path) for path in ran.logs if path.exists()]
    steps: list[Step] = []
    walls: list[float] = []
    bounds = (0.0, 0.0)
    for note, log in zip(ran.notes, logs, strict=True):
        marks = note["marks"]
        if not marks:
            continue
        begin, end = (marks[-2], marks[-1]) if len(marks) > 1 else (0.0, marks[0])
        steps.append(cost.step(log, begin, end))
        if len(note["walls"]) > 1:
            walls.append(note["walls"][-1] - note["walls"][-2])
        if bounds == (0.0, 0.0):
            bounds = begin, end
    slowest = max(steps, key=lambda step: step.time) if steps else None
    peaks = [memory.peak(note["memory"]) for note in ran.notes if note["memory"]]
    low, high = interval.factors(plan.soc)
    samples = _samples(ran.notes[0]) if ran.notes else 0.0
    count = max(len(ran.notes), 1)
    made = Ranks(
        ranks=count,
        step=slowest,
        low=slowest.time * low if slowest else math.nan,
        high=slowest.time * high if slowest else math.nan,
        samples=samples * count,
        throughput=samples * count / slowest.time * 1e3 if slowest and slowest.time > 0 else math.nan,
        peak=max(peaks, key=lambda peak: peak.allocated) if peaks else None,
        resident=sum(note["resident"] for note in ran.notes),
        seconds=ran.seconds,
        wall_step=max(walls, default=math.nan),
    )
    return made, logs[0] if logs else None, bounds


def _samples(note: dict[str, Any]) -> float:
    """The first dimension of what the model was given, for all its calls in a step."""
    memory_notes = note["memory"] or {}
    batches, steps = memory_notes.get("batches") or [], memory_notes.get("steps") or 0
    return sum(shape[0] for shape in batches) / steps if steps else 0.0


def _shapes(log: Log | None) -> dict[str, int]:
    """Operators whose results have a size that depends on data, with how often they ran."""
    found: dict[str, int] = {}
    for task in log.tasks if log else ():
        if any(
            word in task.name
            for word in ("Nonzero", "NonZero", "Unique", "MaskedSelect", "Bincount", "NonMax")
        ):
            found[task.name] = found.get(task.name, 0) + 1
    return found


def _timeline(log: Log | None, bounds: tuple[float, float], most: int = 4000) -> list[dict[str, Any]]:
    """The last step's tasks for a picture: the longest `most`, in their order, times in microseconds of the step."""
    if log is None:
        return []
    first, last = (bound * 1e3 for bound in bounds)
    tasks = [task for task in log.tasks if first < task.virtual_ended <= last and task.unit != "none"]
    tasks = sorted(
        sorted(tasks, key=lambda task: -task.virtual_time)[:most], key=lambda task: task.virtual_began
    )
    return [
        {
            "name": task.name,
            "stream": task.stream,
            "unit": task.unit,
            "at": (task.virtual_began - first) / 1e3,
            "us": task.virtual_time / 1e3,
            "shapes": [list(tensor.shape) for tensor in task.tensors[:4]],
        }
        for task in tasks
    ]


def logs_of(folder: Path) -> list[Path]:
    """The event logs of a run in this folder."""
    return sorted(folder.glob(runs.TIMELINE.replace("%p", "*")))
