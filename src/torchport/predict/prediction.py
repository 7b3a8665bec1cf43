"""From dry runs to a prediction: whether it fits, milliseconds a step with an interval, what bounds it, what scales."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable
from typing import Any

from torchport.diagnose import diagnose_text
from torchport.errors import TorchportError
from torchport.launch import Launch
from torchport.predict import advice, cost, interval, memory, runs
from torchport.predict.chosen import Chosen, choose_step
from torchport.predict.runs import Plan, Ran
from torchport.predict.timeline import Log, read_timeline
from torchport.results.codec import from_json
from torchport.results.prediction import Loading, Prediction, Ranks, Read, Step, Task

Say = Callable[[str], None]


@dataclasses.dataclass(frozen=True, slots=True)
class _Outcome:
    """A run with what it comes to, its first rank's log and the bounds of the step in it that is timed."""

    ran: Ran
    ranks: Ranks
    log: Log | None
    bounds: tuple[float, float]


def predict_plan(
    plan: Plan, several: Launch | None = None, *, tries: bool = True, say: Say = lambda _: None
) -> Prediction:
    """Run the plan dry on one rank and, with `several`, as that command starts more.

    With `several` a script may need its ranks: that it fails on one, or fits not, is part of the answer.
    Raises TorchportError, with exit code 1 where the script failed and 2 where there is nothing to predict.
    """
    alone: TorchportError | None = None
    one: _Outcome | None = None
    try:
        one = _outcome(plan, lambda text: say(f"one rank: {text}"))
    except TorchportError as error:
        if several is None:
            raise
        alone = error
    many = None
    asked = plan
    if several is not None:
        asked = dataclasses.replace(plan, launch=several, environment={**plan.environment, **dict(several.variables)})
        many = _outcome(asked, lambda text: say(f"{several.processes} ranks: {text}"))
    answer = many or one
    assert answer is not None
    advised = tuple(advice.try_changes(asked, say)) if not answer.ranks.fits and tries else ()
    first = answer.ran.notes[0]
    return Prediction(
        soc=plan.soc,
        steps=len(first["marks"]),
        fits=answer.ranks.fits,
        failure=answer.ranks.failure,
        one=one.ranks if one else _failed(alone),
        many=many.ranks if many else None,
        validated=interval.describe_validation(plan.soc),
        reads=tuple(from_json(Read, row) for row in first["reads"]),
        unknown_reads=first["unknown_reads"],
        unfilled=first["unfilled"],
        unfilled_read=first["unfilled_read"],
        shapes=_shapes(answer.log),
        sizes=_sizes(asked),
        compiled=first["compiled"],
        advice=advised,
        timeline=_timeline(answer.log, answer.bounds),
    )


def _failed(error: TorchportError | None) -> Ranks:
    nothing = math.nan
    return Ranks(
        ranks=1,
        fits=False,
        failure=error.message if error else "",
        step=None,
        low=nothing,
        high=nothing,
        samples=0.0,
        timed=0,
        batches=(),
        throughput=nothing,
        loading=None,
        peak=None,
        resident=0,
        seconds=0.0,
        wall_step=nothing,
        processor_step=nothing,
    )


def _outcome(plan: Plan, say: Say) -> _Outcome:
    """Raises TorchportError where a run is no prediction."""
    with runs.make_scratch_folder() as folder:
        ran = runs.run_dry(plan, folder, say=say)
        full = next((note["error"] for note in ran.notes if note["error"] and note["error"]["out_of_memory"]), None)
        if full is None:
            _judge(plan, ran)
        ranks, log, bounds = _ranks(plan, ran, full["text"] if full else "")
        return _Outcome(ran, ranks, log, bounds)


def _judge(plan: Plan, ran: Ran) -> None:
    """Raise what keeps the run from being a prediction."""
    failed = next((note["error"] for note in ran.notes if note["error"]), None)
    often = max((line for note in ran.notes for line in note["reads"]), key=lambda line: line["count"], default=None)
    hint = (
        f"It read a value of the device {often['count']}x at {os.path.basename(often['path'])}:{often['line']} "
        f"({often['call']}); in a dry run these are zero, and what the script does next may hang on that."
        if often
        else "No value of the device was read, so `torchport run` fails in the same way."
    )
    if ran.stopped == runs.MEMORY:
        raise TorchportError(
            f"the script was ended when it held {ran.held / 2**30:.1f} GiB of this machine's memory, of which no more "
            "could be had: its host needs more than that",
            hint="Weights made on the CPU take that memory where a script computes with them there. Make them on the "
            'device (`with torch.device("cuda"):`) or on meta, or predict on a machine with more memory.',
            exit_code=1,
        )
    if ran.stopped == runs.TIME:
        raise TorchportError(
            f"the script did not come to {plan.steps} steps within {plan.seconds:g} s",
            hint=hint if often else "Give it more time (--limit) or fewer --steps.",
            exit_code=1,
        )
    if failed is not None:
        raise TorchportError(f"the script failed at {failed['where']}: {failed['text']}", hint=hint, exit_code=1)
    if not ran.notes and ran.status != 0:
        raise TorchportError(
            f"the script ended with status {ran.status} before it came to the NPU: {_find_cause(ran.tail)}",
            hint="`torchport run` shows all that it writes.",
            exit_code=1,
        )
    if not ran.notes or not any(note["marks"] for note in ran.notes):
        elsewhere = max((note["elsewhere"] for note in ran.notes), default=0)
        if elsewhere:
            raise TorchportError(
                f"the script's optimizer made {elsewhere} steps on the CPU and none on the NPU: there is nothing to "
                "predict",
                hint="Give the words that make it train on the accelerator; a script that asks for the NPU itself "
                "needs --as-is.",
            )
        ended = f"with status {ran.status} and " if ran.status else ""
        raise TorchportError(
            f"the script ended {ended}without a step of an optimizer on the NPU: there is nothing to predict",
            hint="A step is a call of optimizer.step(); "
            + (f"none was reached. {hint}" if often else "give the words that make it train."),
            exit_code=1 if ran.status else 2,
        )
    if ran.status != 0 and not any(len(note["marks"]) >= plan.steps for note in ran.notes):
        raise TorchportError(f"the script ended with status {ran.status}", hint=hint, exit_code=1)


def _find_cause(tail: str) -> str:
    """The cause by `torchport diagnose`: a launcher's own lines come after the exception of a rank."""
    found = diagnose_text(tail)
    if found.data["answer"] == "cause":
        return found.findings[0].message
    last = [line for line in tail.splitlines() if line.strip(" =-")]
    return last[-1].strip() if last else "no output"


def _ranks(plan: Plan, ran: Ran, failure: str) -> tuple[Ranks, Log | None, tuple[float, float]]:
    """Of all ranks of a run the slowest step and the largest peak; the first rank's log."""
    # One that failed before it used the device has none.
    logs = [read_timeline(path) if path.exists() else None for path in ran.logs]
    steps: list[Step] = []
    walls: list[float] = []
    processor: list[float] = []
    bounds = (0.0, 0.0)
    chosen = choose_step(ran.notes[0]) if ran.notes else Chosen(-1, 0.0, ())
    for note, log in zip(ran.notes, logs, strict=True):
        marks = [note["begin"], *note["marks"]]
        if len(marks) < 2 or log is None:
            continue
        begin, end = marks[chosen.index : chosen.index + 2] if chosen.index + 1 < len(marks) else marks[-2:]
        steps.append(cost.summarize_step(log, begin, end))
        if chosen.index > 0:
            walls.append(note["walls"][chosen.index] - note["walls"][chosen.index - 1])
            processor.append(note["processor"][chosen.index] - note["processor"][chosen.index - 1])
        if bounds == (0.0, 0.0):
            bounds = begin, end
    slowest = max(steps, key=lambda step: step.time) if steps else None
    peaks = [memory.compute_peak(note["memory"], chosen.index) for note in ran.notes if note["memory"]]
    low, high = interval.compute_interval_factors(plan.soc)
    samples = chosen.samples
    count = max(len(ran.notes), 1)
    made = Ranks(
        ranks=count,
        fits=not failure,
        failure=failure,
        step=slowest,
        low=slowest.time * low if slowest else math.nan,
        high=slowest.time * high if slowest else math.nan,
        samples=samples * count,
        timed=chosen.index + 1,
        batches=chosen.each,
        throughput=samples * count / slowest.time * 1e3 if slowest and slowest.time > 0 else math.nan,
        loading=_loading(ran.notes[0], slowest) if ran.notes else None,
        peak=max(peaks, key=lambda peak: peak.allocated) if peaks else None,
        resident=ran.held,
        seconds=ran.seconds,
        wall_step=max(walls, default=math.nan),
        processor_step=max(processor, default=math.nan),
    )
    return made, logs[0] if logs else None, bounds


def _loading(note: dict[str, Any], step: Step | None) -> Loading | None:
    """None where the script has no DataLoader, or its workers are no forks and were not seen."""
    found = note["loading"]
    steps = len(note["marks"])
    if not found or not found["batches"] or not steps or step is None:
        return None
    taken = max(found["taken"] / steps, 1.0)
    time = found["seconds"] / found["batches"] * taken * 1e3
    workers = found["workers"]
    paced = max(step.time, time / workers) if workers else step.time + time
    return Loading(time, workers, paced)


def _shapes(log: Log | None) -> dict[str, int]:
    """Operators whose results have a size that depends on data, with how often they ran."""
    found: dict[str, int] = {}
    for task in log.tasks if log else ():
        if any(word in task.name for word in ("Nonzero", "NonZero", "Unique", "MaskedSelect", "Bincount", "NonMax")):
            found[task.name] = found.get(task.name, 0) + 1
    return found


def _sizes(plan: Plan) -> str:
    """What a size that depends on data is taken to be."""
    if counts := plan.environment.get("VNPU_DRY_COUNTS"):
        return f"as VNPU_DRY_COUNTS={counts} says"
    if share := plan.environment.get("VNPU_DRY_SHARE"):
        return f"VNPU_DRY_SHARE={share} of the largest that they can be"
    return "as large as they can be (VNPU_DRY_SHARE=0.1 takes a tenth of that)"


def _timeline(log: Log | None, bounds: tuple[float, float], most: int = 4000) -> tuple[Task, ...]:
    """The timed step's tasks for a picture: the longest `most`, in their order, times in microseconds of the step."""
    if log is None:
        return ()
    first, last = (bound * 1e3 for bound in bounds)
    tasks = [task for task in log.tasks if first < task.virtual_ended <= last and task.unit != "none"]
    tasks = sorted(sorted(tasks, key=lambda task: -task.virtual_time)[:most], key=lambda task: task.virtual_began)
    return tuple(
        Task(
            name=task.name,
            stream=task.stream,
            unit=task.unit,
            at=(task.virtual_began - first) / 1e3,
            us=task.virtual_time / 1e3,
            shapes=tuple(tuple(tensor.shape) for tensor in task.tensors[:4]),
        )
        for task in tasks
    )
