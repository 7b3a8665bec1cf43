"""What two recordings of operators say: which operator is wrong first, and whether it is to blame."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from torchport.compare.classes import Cause, causes
from torchport.compare.pairs import Paired, paired
from torchport.compare.replay import JUDGED, Replay, Row, has_tensors, replay
from torchport.errors import TorchportError
from torchport.findings import Finding, Location, Safety, Severity
from torchport.record.operators.reading import Operators

WRONG, DIFFERENT, CONFIGURED, UNJUDGED = "TP357", "TP358", "TP359", "TP360"
RESULT, PRECISION, OVERFLOW = "wrong result", "lost precision", "overflow or saturation"
SHOWN = 200  # rows that a result keeps: those that are wrong, then the highest scores
OTHERS = 5  # wrong operators that are named after the first
LEAST_SHARE = 0.95
COMMON = 0.34  # of the modules that the smaller recording has: fewer are of another model
BINS = 400
HIGHEST = 1e9  # that is drawn: infinite is what has a NaN


@dataclasses.dataclass(frozen=True, slots=True)
class Culprit:
    """What was found: `causes` around operators, `replay` of the port's (None: its tensors were not kept), `paired`
    what both computed (None: in different processes)."""

    causes: Sequence[Cause]
    replay: Replay | None
    steps: tuple[int, int]
    paired: Paired | None = None

    @property
    def findings(self) -> list[Finding]:
        """The first cause, and the operators that are wrong, in the order in which they come about."""
        wrong = list(self._wrong())
        around = list(self._around())
        first = self.replay.first if self.replay else None
        # What the first operator was given does not matter to how far it is from what it has to give.
        before = bool(self.causes) and (first is None or self.causes[0].step < first.step)
        return [*(around + wrong if before else wrong + around), *self._remarks()]

    def _wrong(self) -> Iterator[Finding]:
        if self.replay is None or self.replay.first is None:
            return
        row, others = self.replay.first, self.replay.wrong[1:]
        more = f"; so are {len(others)} later calls ({_names(others)})" if others else ""
        yield Finding(
            WRONG, Severity.ERROR, Safety.REPORT, _location(row.source),
            f"first wrong: {_where(row)}, step {row.step}: {_size(row)}, introduced there, not inherited{more}",
            f"{kind(row)}. Its inputs and results are in the recording: {row.operator}, call {row.call} of step "
            f"{row.step}.",
            evidence=dataclasses.asdict(row) | {"class": kind(row)},
        )  # fmt: skip

    def _around(self) -> Iterator[Finding]:
        for place, cause in enumerate(self.causes):
            yield Finding(
                DIFFERENT, Severity.ERROR if place == 0 else Severity.WARNING, Safety.REPORT, _location(cause.source),
                f"{cause.kind}: {cause.text}",
                "No operator is to blame for that: look for what the device chooses in the script.",
                evidence=dataclasses.asdict(cause),
            )  # fmt: skip

    def _remarks(self) -> Iterator[Finding]:
        if self.replay is None:
            yield Finding(
                UNJUDGED, Severity.INFO, Safety.REPORT, None,
                "operators were recorded without tensors: what they were given was compared, not what they compute",
                "Record the suspects with them: torchport run --record DIR --level tensor --filter module=NAME SCRIPT",
            )  # fmt: skip
            return
        rows = [row for row in self.replay.rows if row.configured]
        if rows:
            worst = max(rows, key=lambda row: row.score)
            yield Finding(
                CONFIGURED, Severity.INFO, Safety.REPORT, None,
                f"{len(rows)} calls are as exact as the device's settings say, and no more: {_where(worst)} is "
                f"{worst.error:.1g} off, {worst.declared:.1g} is declared",
                "torch.npu.matmul.allow_hf32 and torch.npu.conv.allow_hf32 choose it.",
            )  # fmt: skip
        if self.replay.share < LEAST_SHARE:
            names = ", ".join(dict.fromkeys(operator for operator, _, _ in self.replay.unjudged[:OTHERS]))
            yield Finding(
                UNJUDGED, Severity.WARNING, Safety.REPORT, None,
                f"only {self.replay.share:.1%} of what operators computed could be judged; not {names}",
                "The report lists what was not judged, and why.",
            )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """`class` and `first` name the culprit; `rows` are calls, those to look at first."""
        first = self.replay.first if self.replay else None
        found = self.findings
        around = bool(found) and found[0].code == DIFFERENT
        rows = self.replay.rows if self.replay else ()
        ordered = sorted(
            (row for row in rows if row.kind in (JUDGED, "view")), key=lambda row: (-row.wrong, -row.score)
        )
        return {
            "class": self.causes[0].kind if around else kind(first) if first else "",
            "first": dataclasses.asdict(first) if first else None,
            "causes": [dataclasses.asdict(cause) for cause in self.causes],
            "steps": {"reference": self.steps[0], "port": self.steps[1]},
            "replayed": list(self.replay.steps) if self.replay else [],
            "calls": len(rows),
            "wrong": len(self.replay.wrong) if self.replay else 0,
            "share": self.replay.share if self.replay else None,
            "unjudged": [
                {"operator": operator, "why": why, "calls": count}
                for operator, why, count in (self.replay.unjudged if self.replay else ())
            ],
            "profile": _profile(rows),
            "aligned": self.paired.to_json() if self.paired else None,
            "rows": [self._row(row) for row in ordered[:SHOWN]],
        }  # fmt: skip

    def _row(self, row: Row) -> dict[str, Any]:
        """A call; `apart` is how far its results are from the reference's, inherited and introduced."""
        apart = self.paired.apart.get((row.step, row.call)) if self.paired else None
        return dataclasses.asdict(row) | {"apart": apart}


def culprit(reference: Path, port: Path) -> Culprit | None:
    """Judge the operators of two recordings; None where neither has any.

    Raises TorchportError where one alone has some, or they share no module, and as `replay` does.
    """
    one, other = Operators.read(reference), Operators.read(port)
    if not one.processes and not other.processes:
        return None
    for recorded, beside in ((one, other), (other, one)):
        if not any(process.steps for process in recorded.processes):
            raise TorchportError(
                f"{recorded.path} has no step of operators, {beside.path} has",
                hint="Record both: torchport run --record DIR --level tensor SCRIPT",
            )
    ranks = [len(recorded.processes) for recorded in (one, other)]
    if ranks[0] != ranks[1]:
        raise TorchportError(
            f"{one.path} has operators of {ranks[0]} processes, {other.path} of {ranks[1]}: their batches are not "
            "the same",
            hint="Record both with the same number of processes.",
        )
    rank = other.processes[0].rank or 0
    _of_one_script(one, other, rank)
    steps = len(one.processes[0].steps), len(other.processes[0].steps)
    replayed = replay(port, rank=rank) if has_tensors(other) else None
    return Culprit(causes(one, other, rank), replayed, steps, paired(one, other, rank))


def _of_one_script(one: Operators, other: Operators, rank: int) -> None:
    modules = []
    for recorded in (one, other):
        process = recorded.rank(rank)
        with process.step(process.steps[0]) as step:
            modules.append({call.module for call in step.calls() if call.module.strip(".")})
    fewer = min(map(len, modules))
    if fewer and len(modules[0] & modules[1]) < fewer * COMMON:
        raise TorchportError(
            f"{one.path} and {other.path} have hardly a module in common ({_some(modules[0])}; {_some(modules[1])})",
            hint="Compare two recordings of one script.",
        )


def _some(names: set[str]) -> str:
    return ", ".join(sorted(names)[:3])


def kind(row: Row) -> str:
    """The class of a wrong operator."""
    if row.spoilt and any(word in row.spoilt for word in ("NaN", "infinite", "saturated")):
        return OVERFLOW
    return PRECISION if row.lost else RESULT


def _profile(rows: Sequence[Row]) -> list[float]:
    """The highest score of each of at most BINS stretches of the run, in the order of calls."""
    scores = [min(row.score, HIGHEST) for row in rows if row.kind == JUDGED]
    width = max(1, math.ceil(len(scores) / BINS))
    return [max(scores[first : first + width]) for first in range(0, len(scores), width)]


def _where(row: Row) -> str:
    named = f", {row.names[0]}" if len(row.names) == 1 and row.phase != "forward" else ""
    passed = {"forward": "", "backward": ", gradient", "optimizer": ", optimizer"}.get(
        row.phase, f", {row.phase}"
    )
    module = "the model" if row.module == "." else row.module or "outside of modules"
    return f"{module} ({row.operator}{passed}{named})"


def _size(row: Row) -> str:
    if row.spoilt:
        return row.spoilt
    return f"{row.error:.1g} off, {row.score:.3g}x what rounding explains"


def _names(rows: Sequence[Row]) -> str:
    names = list(dict.fromkeys(_where(row) for row in rows))
    more = f", and {len(names) - OTHERS} more" if len(names) > OTHERS else ""
    return ", ".join(names[:OTHERS]) + more


def _location(source: str) -> Location | None:
    path, _, line = source.rpartition(":")
    return Location(path, int(line), 1, int(line), 1) if path and line.isdecimal() else None
