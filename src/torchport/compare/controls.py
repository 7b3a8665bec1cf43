"""What this comparison was seen to notice: the small faults that were put into the control run on purpose.

A comparison that says "holds" has to be able to say something else. The control run is the original, so its only
differences are rounding noise, which is allowed, and the faults, which have to be noticed by the same bounds.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from torchport.compare import evaluations, start
from torchport.compare.conditions import open_finding
from torchport.compare.series import CHANGE, GRADIENT, Key, Series
from torchport.compare.yardstick import Pair, Yardstick
from torchport.findings import Finding
from torchport.record.recording import CALL, OPTIMIZER, Process
from torchport.results.comparison import ControlRow, Noticed

UPDATE, LAYER, SAMPLE = NAMES = ("update", "gradient", "sample")
LATE = "late"
START, EVALUATION = EXACT = ("start", "evaluation")  # compared as they are, so that no noise hides them
WORDS = {UPDATE: "5 % of one update", LAYER: "1 % of one layer's gradient", SAMPLE: "one sample of the batch replaced"}
EXACT_WORDS = {START: "another initial weight", EVALUATION: "an evaluation in training mode"}
# By how much the faults change the quantity that they are put into (`record.faults`).
SHARES = {UPDATE: 0.05, LAYER: 0.01}
# Where noise hides a fault from the bounds, a port that agrees with the original so many times closer than the fault is
# large does not have it.
CLOSER = 4.0
SHOWN = 6  # quantities that noticed a fault, the clearest first


@dataclasses.dataclass(frozen=True, slots=True)
class Fault:
    """Something that a control run did wrong in step `step`; `parameter` None: all parameters of the optimizer."""

    name: str
    step: int
    what: str
    optimizer: int | None
    parameter: int | None

    @classmethod
    def from_event(cls, event: Mapping[str, Any]) -> Fault:
        """The fault of an event `fault`."""
        return cls(*(event[field.name] for field in dataclasses.fields(cls)))

    def find_touched_steps(self, found: Mapping[Key, Series]) -> Iterator[tuple[Key, int]]:
        """The series, and the steps of them, whose numbers the fault makes."""
        kind = {"change": CHANGE, "gradient": GRADIENT}.get(self.what)
        for key, one in found.items():
            if kind is None:  # nothing is what it was from there on
                yield from ((key, at) for at in one.at if at >= self.step)
            elif (
                key[0] == kind
                and key[1].startswith(f"optimizer {self.optimizer}.")
                and self.parameter in (None, key[2])
                and self.step in one.at
            ):
                yield key, self.step


def read_faults(control: Process) -> list[Fault]:
    """What the control run did wrong, in order."""
    return [Fault.from_event(event) for event in control.of_kind("fault")]


def tabulate_faults(
    reference: dict[Key, Series],
    control: dict[Key, Series],
    made: Iterable[Fault],
    yardstick: Yardstick,
    worst: Mapping[Key, float],
    kind: str,
    *,
    chance: bool,
) -> list[ControlRow]:
    """For each fault of `NAMES` what noticed it. `worst` is how far the port itself is from the original in each
    quantity; `kind` is the run's kind of step; with `chance` only means are compared, which notice none."""
    by_name = {fault.name: fault for fault in made}
    rows = []
    for name in NAMES:
        fault = by_name.get(name)
        if fault is None:
            rows.append(ControlRow(name, WORDS[name], possible=False, why=_why_not(name, kind)))
        else:
            noticed = [] if chance else _noticed(fault, reference, control, yardstick, worst)
            where = _where(fault, reference)
            rows.append(ControlRow(name, WORDS[name], fault.step, where, noticed=tuple(noticed)))
    return rows


def judge_late_fault(
    rows: Iterable[ControlRow], pairs: Iterable[Pair], restarts: Sequence[int], yardstick: Yardstick
) -> list[ControlRow]:
    """Whether the first fault that was noticed would have been, too, in the last steps of the port, which went on from
    states of the original's at `restarts`: by the bounds that hold there, as the control run ends before, or by how
    near the port is to the original in all of its steps."""
    for row in rows:
        places = list(_find_late_places(row, pairs))
        if not restarts or row.step is None or not places:
            continue
        end = max((at for _, pair in places for at in pair.reference.at[: len(pair.allowed)]), default=0)
        step = min(restarts[-1] + row.step, end)
        near = [_near(row.name, pair.key, max(pair.errors, default=math.inf), yardstick) for _, pair in places]
        noticed = [
            Noticed(pair.key[0], pair.reference.name, error, least)
            for (error, pair), most in zip(places, near, strict=True)
            for at, bound in zip(pair.reference.at, pair.allowed, strict=False)
            if at == step and error > (least := min(bound, most))
        ]
        noticed.sort(key=lambda one: one.allowed / one.error)
        words = f"{row.words} in step {step}"
        return [ControlRow(LATE, words, step, row.where, noticed=tuple(noticed[:SHOWN]), repeats=row.name)]
    return []


def _find_late_places(row: ControlRow, pairs: Iterable[Pair]) -> Iterator[tuple[float, Pair]]:
    """The quantities that may notice the fault of `row` in the last steps, and by how much it would change each: an
    update is that of whichever optimizer steps there, a later stage's too."""
    if row.noticed and row.name == UPDATE:
        yield from ((SHARES[UPDATE], pair) for pair in pairs if pair.key[0] == CHANGE)
        return
    known = {(pair.key[0], pair.reference.name): pair for pair in pairs}
    yield from ((one.error, known[place]) for one in row.noticed if (place := (one.kind, one.name)) in known)


def judge_exact_faults(reference: Process, control: Process, *, chance: bool) -> list[ControlRow]:
    """Whether the record of the control run shows the start and the evaluation that were recorded wrongly on purpose.
    With `chance` starts are not compared."""
    starts = [] if chance else [event for event in control.of_kind("start") if event.get("planted")]
    noticed = {
        START: [
            Noticed("weight", event["tensor"], float(event["difference"]), start.EXACT)
            for event in starts
            if start.is_more_than_rounding(event)
        ],
        EVALUATION: [
            Noticed("mode", site, math.inf, 0.0) for site, _, _ in evaluations.list_other_modes(reference, control)
        ],
    }
    rows = []
    for name, words in EXACT_WORDS.items():
        planted = [event for event in control.of_kind("planted") if event["name"] == name]
        if planted:
            rows.append(ControlRow(name, words, where=planted[0]["where"], noticed=tuple(noticed[name][:1])))
        else:
            why = "no weights are made equal" if name == START else "no evaluation was seen in the first steps"
            rows.append(ControlRow(name, words, possible=False, why=why))
    return rows


def list_unnoticed_words(rows: Iterable[ControlRow]) -> list[str]:
    """The faults of `EXACT` that were planted and not noticed, in words."""
    return [row.words for row in rows if row.name in EXACT and row.possible and not row.noticed]


def report_unnoticed_faults(rows: Iterable[ControlRow]) -> Iterator[Finding]:
    """What went unnoticed leaves the question open."""
    for row in rows:
        if row.possible and not row.noticed and row.name not in EXACT:
            where = f" ({row.where}, step {row.step})" if row.where else f" (step {row.step})"
            yield open_finding(
                "TP356",
                f"this comparison would not notice {row.words}{where}",
                "Give the script arguments with which it rounds less or draws nothing of its own: float32, a larger "
                "batch, a smaller learning rate; --no-control says what was compared all the same.",
                step=row.step,
            )


def describe_noticed_changes(rows: Iterable[ControlRow]) -> str:
    """The smallest changes that were noticed, as a part of a sentence; "" where none was. The rows have the parameters
    that were changed."""
    noticed = [row for row in rows if row.noticed]
    late = {row.repeats: row.step for row in noticed if row.name == LATE}
    words = [
        row.words + (f" (also in step {late[row.name]})" if row.name in late else "")
        for row in noticed
        if row.name != LATE
    ]
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else "".join(words)


def _noticed(
    fault: Fault,
    reference: dict[Key, Series],
    control: dict[Key, Series],
    yardstick: Yardstick,
    worst: Mapping[Key, float],
) -> list[Noticed]:
    found: list[Noticed] = []
    for key, step in fault.find_touched_steps(reference):
        if key not in control:
            continue
        pair = yardstick.compare_series(key, reference[key], control[key])
        for place, (error, allowed) in enumerate(zip(pair.errors, pair.allowed, strict=True)):
            if reference[key].at[place] == step:
                bound = min(allowed, _closer(fault, key, error, pair.noise, place, yardstick, worst))
                if error > bound:
                    found.append(Noticed(key[0], reference[key].name, error, bound))
                break
    found.sort(key=lambda row: row.allowed / row.error if row.error else math.inf)
    return found[:SHOWN]


def _closer(
    fault: Fault,
    key: Key,
    error: float,
    noise: Sequence[float] | None,
    place: int,
    yardstick: Yardstick,
    worst: Mapping[Key, float],
) -> float:
    """The bound by which the port's own agreement rules the fault out; infinite where it does not."""
    share = SHARES.get(fault.name)
    if share is None or key not in worst or not noise or place >= len(noise):
        return math.inf
    seen = abs(error - share) <= max(2 * noise[place], share / 2)
    bound = _near(fault.name, key, worst[key], yardstick)
    return bound if seen else math.inf


def _near(name: str, key: Key, worst: float, yardstick: Yardstick) -> float:
    """The bound that a port which is never further than `worst` from the original sets a fault; infinite if the fault
    is not larger."""
    bound = max(CLOSER * worst, yardstick.get_floor(key[0]))
    return bound if SHARES.get(name, 0.0) > bound else math.inf


def _where(fault: Fault, reference: Mapping[Key, Series]) -> str:
    if fault.parameter is None:
        return ""
    touched = [reference[key].name for key, _ in fault.find_touched_steps(reference)]
    return touched[0] if touched else ""


def _why_not(name: str, kind: str) -> str:
    if name == UPDATE and kind != OPTIMIZER:
        return "no optimizer steps"
    if name == LAYER and kind == CALL:
        return "nothing is differentiated"
    return "no module is called in the steps" if name == SAMPLE else "too few steps"
