"""What two recordings of operators say: which operator is wrong first, and whether it is to blame."""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from torchport.compare.batches import compare_global_batches
from torchport.compare.classes import Cause, find_causes
from torchport.compare.collectives import WRONG_COLLECTIVE, find_wrong_collectives
from torchport.compare.overwritten import OVERWRITTEN, Overwritten, find_overwritten
from torchport.compare.pairs import Paired, pair_results
from torchport.compare.reach import count_steps
from torchport.compare.repeated import Unsteady, find_unsteady_calls
from torchport.compare.replay import JUDGED, UNKNOWN, Replay, Row, has_tensors, replay_recording
from torchport.errors import TorchportError
from torchport.findings import Finding, Location, Safety, Severity
from torchport.record.operators.overflow import Overflow, find_overflows
from torchport.record.operators.reading import Operators

WRONG, DIFFERENT, CONFIGURED, UNJUDGED = "TP357", "TP358", "TP359", "TP360"
OVERFLOWS, UNSTEADY, MEMORY = "TP361", "TP362", "TP366"
RESULT, PRECISION, OVERFLOW = "wrong result", "lost precision", "overflow or saturation"
NONDETERMINISM = "nondeterminism"
_CLASSES = {OVERFLOWS: OVERFLOW, UNSTEADY: NONDETERMINISM, MEMORY: OVERWRITTEN}
_HINTS = {
    WRONG_COLLECTIVE: "No rank's own operators are to blame: look at the operator of the reduction, the group, and the "
    "library of the device."
}
STEADY = 10.0  # times its own noise: an error that is larger is none of chance
SHOWN = 200  # rows that a result keeps: those that are wrong, then the highest scores
OTHERS = 5  # wrong operators that are named after the first
LEAST_SHARE = 0.95
APART = 1e-3  # of norms, relative: more than rounding makes of them in a step
SUSPECTS = 3  # modules
COMMON = 0.34  # of the modules that the smaller recording has: fewer are of another model
BINS = 400
MOST_ROWS = 200_000  # of the table in a report
HIGHEST = 1e9  # that is drawn: infinite is what has a NaN


@dataclasses.dataclass(frozen=True, slots=True)
class Culprit:
    """What was found: `causes` around operators, `replay` of the port's (None: its tensors were not kept), `paired`
    what both computed (None: in different processes); `overflows` the port's alone, `unsteady` what a second run of it
    did not repeat, `overwritten` the port's memory that was written over (`checked`: whether that was looked for)."""

    causes: Sequence[Cause]
    replay: Replay | None
    steps: tuple[int, int]
    paired: Paired | None = None
    overflows: Sequence[Overflow] = ()
    unsteady: Sequence[Unsteady] = ()
    port: Path | None = None
    rank: int = 0  # of `paired` and `unsteady`
    overwritten: Sequence[Overwritten] = ()
    checked: bool = False

    @property
    def findings(self) -> list[Finding]:
        """The first cause, and the operators that are wrong, in the order in which they come about."""
        wrong = list(self._wrong())
        written = list(self._written_over())
        around = list(self._around())
        first = self.replay.first if self.replay else None
        # What the first operator was given does not matter to how far it is from what it has to give.
        before = bool(self.causes) and (first is None or self.causes[0].step < first.step)
        said = around + wrong if before else wrong + around
        # A reader of memory that was written over is not to blame for its results.
        said = written + said if first is None or self._comes_first(first) else said + written
        return [*said, *self._spoilt(), *self._shaking(), *self._remarks()]

    def _comes_first(self, row: Row) -> bool:
        return any(one.place <= (row.step, row.call) for one in self.overwritten)

    def _written_over(self) -> Iterator[Finding]:
        if self.overwritten:
            one, others = self.overwritten[0], len(self.overwritten) - 1
            yield Finding(
                MEMORY,
                Severity.ERROR,
                Safety.REPORT,
                _location(one.blamed.source),
                f"{OVERWRITTEN}: {one.sentence}{f'; so are {others} others' if others else ''}",
                "Look for a kernel that writes beyond its results, a stream that uses the memory without a wait "
                "(wait_stream, record_stream), and code that writes through an address.",
                evidence=dataclasses.asdict(one) | {"class": OVERWRITTEN, "operator": one.blamed.operator},
            )

    def _wrong(self) -> Iterator[Finding]:
        if self.replay is None or self.replay.first is None:
            return
        row, others = self.replay.first, self.replay.wrong[1:]
        more = f"; so are {len(others)} later calls ({_names(others)})" if others else ""
        yield Finding(
            WRONG,
            Severity.ERROR,
            Safety.REPORT,
            _location(row.source),
            f"first wrong: {_where(row)}, step {row.step}{self._of_rank(row)}: {_size(row)}, introduced there, "
            f"{self._reserved}{more}",
            f"{self._kind(row)}. As a test with pytest: {self._case(row)}",
            evidence=dataclasses.asdict(row) | {"class": self._kind(row)},
        )

    @property
    def _reserved(self) -> str:
        """How far the word reaches: whether the inputs were checked."""
        if self.checked:
            return "not inherited"
        return "unless its inputs were written over meanwhile (this recorder does not look)"

    def _of_rank(self, row: Row) -> str:
        """Which card it is, where several were judged, and whether it is the only one."""
        if self.replay is None or len(self.replay.judged) == 1:
            return ""
        alone = {one.rank for one in self.replay.wrong} == {row.rank}
        return f" of rank {row.rank}{', on no other rank' if alone else ''}"

    def _kind(self, row: Row) -> str:
        """The class; what a second run does not repeat is no error that can be found again."""
        here = row.rank == self.rank
        noise = [one.by for one in self.unsteady if here and (one.step, one.call) == (row.step, row.call)]
        return NONDETERMINISM if noise and row.error <= STEADY * max(noise) else classify_error(row)

    def _case(self, row: Row) -> str:
        """The command that makes a test of that call."""
        rows = self.replay.rows if self.replay else ()
        same = [one for one in rows if (one.rank, one.step, one.operator) == (row.rank, row.step, row.operator)]
        before = sum(one.call < row.call for one in same)
        where = "DIR" if self.port is None else shlex.quote(str(self.port))
        rank = f" --rank {row.rank}" if row.rank else ""
        return f"torchport case {where} --step {row.step}{rank} --op {row.operator}:{before} -o case"

    def _spoilt(self) -> Iterator[Finding]:
        for overflow in self.overflows[:1]:
            more = f"; the reference's are numbers, {len(self.overflows)} steps have some"
            yield Finding(
                OVERFLOWS,
                Severity.ERROR,
                Safety.REPORT,
                _location(overflow.source),
                f"{OVERFLOW}: {overflow.sentence}{more}",
                "Look at how large its inputs are, and whether they are so in the reference: torchport record overflow",
                evidence=dataclasses.asdict(overflow),
            )

    def _shaking(self) -> Iterator[Finding]:
        if self.unsteady:
            names = Counter(one.operator for one in self.unsteady)
            worst = max(self.unsteady, key=lambda one: one.by)
            yield Finding(
                UNSTEADY,
                Severity.WARNING,
                Safety.REPORT,
                _location(worst.source),
                f"{NONDETERMINISM}: {', '.join(name for name, _ in names.most_common(OTHERS))} give other results for "
                f"the same inputs in a second run, {worst.by:.1g} apart at most ({worst.operator} in "
                f"{worst.module or 'no module'}, step {worst.step})",
                "torch.use_deterministic_algorithms(True) asks for operators that repeat themselves.",
                evidence=dataclasses.asdict(worst),
            )

    def list_unchecked(self) -> Iterator[str]:
        """The steps of operators that were recorded and not judged."""
        if self.replay is not None and self.replay.left_out:
            yield (
                f"the operators of {count_steps(self.replay.left_out, 'recorded step')} ({self.replay.reach} were "
                "computed again)"
            )

    def _around(self) -> Iterator[Finding]:
        for place, cause in enumerate(self.causes):
            yield Finding(
                DIFFERENT,
                Severity.ERROR if place == 0 else Severity.WARNING,
                Safety.REPORT,
                _location(cause.source),
                f"{cause.kind}: {cause.text}",
                _HINTS.get(
                    cause.kind, "No operator is to blame for that: look for what the device chooses in the script."
                ),
                evidence=dataclasses.asdict(cause),
            )

    def _remarks(self) -> Iterator[Finding]:
        if self.replay is None:
            yield Finding(
                UNJUDGED,
                Severity.INFO,
                Safety.REPORT,
                None,
                "operators were recorded without tensors: what they were given was compared, not what they compute",
                f"Record the suspects with them: torchport run --record DIR --level tensor {self._suspects()} SCRIPT",
            )
            return
        rows = [row for row in self.replay.rows if row.configured]
        if rows:
            worst = max(rows, key=lambda row: row.score)
            yield Finding(
                CONFIGURED,
                Severity.INFO,
                Safety.REPORT,
                None,
                f"{len(rows)} calls are as exact as the device's settings say, and no more: {_where(worst)} is "
                f"{worst.error:.1g} off, {worst.declared:.1g} is declared",
                "torch.npu.matmul.allow_hf32 and torch.npu.conv.allow_hf32 choose it.",
            )
        if self.replay.share < LEAST_SHARE:
            names = ", ".join(dict.fromkeys(operator for operator, _, _ in self.replay.unjudged[:OTHERS]))
            yield Finding(
                UNJUDGED,
                Severity.WARNING,
                Safety.REPORT,
                None,
                f"only {self.replay.share:.1%} of what operators computed could be judged; not {names}",
                "The report lists what was not judged, and why.",
            )

    def _suspects(self) -> str:
        """The filters that record the first modules whose results are apart, as far as statistics tell."""
        apart = [pair for pair in self.paired.pairs if pair.euclidean > APART] if self.paired else []
        modules = list(dict.fromkeys(one.module for one in apart if one.module.strip(".")))[:SUSPECTS]
        if not modules:
            return "--filter module=NAME"
        filters = [f"step={apart[0].step}", *(f"module={name}" for name in modules)]
        return " ".join(f"--filter {shlex.quote(one)}" for one in filters)

    def to_json(self) -> dict[str, Any]:
        """`class` and `first` name the culprit; `rows` are calls, those to look at first."""
        first = self.replay.first if self.replay else None
        found = self.findings
        code = found[0].code if found else ""
        rows = self.replay.rows if self.replay else ()
        ordered = sorted(
            (row for row in rows if row.kind in (JUDGED, "view")), key=lambda row: (-row.wrong, -row.score)
        )
        return {
            "class": self._class(code, first),
            "first": self._first(code, first),
            "overwritten": [dataclasses.asdict(one) for one in self.overwritten[:SHOWN]],
            "causes": [dataclasses.asdict(cause) for cause in self.causes],
            "steps": {"reference": self.steps[0], "port": self.steps[1]},
            "replayed": self.replay.reach if self.replay else "",
            "left_out": self.replay.left_out if self.replay else 0,
            "calls": len(rows),
            "wrong": len(self.replay.wrong) if self.replay else 0,
            "share": self.replay.share if self.replay else None,
            "unjudged": [
                {"operator": operator, "why": why, "calls": count}
                for operator, why, count in (self.replay.unjudged if self.replay else ())
            ],
            "overflows": [
                dataclasses.asdict(overflow) | {"sentence": overflow.sentence} for overflow in self.overflows
            ],
            "unsteady": [dataclasses.asdict(one) for one in self.unsteady[:SHOWN]],
            "profile": _profile(rows),
            "table": self._table(),
            "aligned": self.paired.to_json() if self.paired else None,
            "rows": [self._row(row) for row in ordered[:SHOWN]],
        }

    def _first(self, code: str, first: Row | None) -> dict[str, Any] | None:
        """The operator of the finding that comes first: of memory that was written over, the one that wrote there or
        has made it; of a collective, itself."""
        if code == DIFFERENT and self.causes[0].operator:
            cause = self.causes[0]
            names = ("step", "rank", "call", "operator", "module", "source")
            return {name: getattr(cause, name) for name in names}
        if code != MEMORY:
            return dataclasses.asdict(first) if first else None
        one = self.overwritten[0]
        named = one.blamed
        found = {
            "step": one.when if named is one.writer else one.step,
            "rank": one.rank,
            "call": named.call,
            "operator": named.operator,
        }
        return {**found, "module": named.module, "source": named.source}

    def _class(self, code: str, first: Row | None) -> str:
        """Of the finding that comes first."""
        if code == DIFFERENT:
            return self.causes[0].kind
        if code == MEMORY or not first:
            return _CLASSES.get(code, "")
        return self._kind(first)

    def _table(self) -> dict[str, Any]:
        """All calls that were judged, for a table: text by its place in `strings`."""
        strings: dict[str, int] = {}
        rows = []
        for row in (self.replay.rows if self.replay else ())[:MOST_ROWS]:
            if row.kind not in (JUDGED, UNKNOWN):
                continue
            apart = self._apart(row)
            texts = (row.operator, row.phase, row.module, row.source, row.spoilt or row.why)
            rows.append(
                [
                    row.step,
                    row.call,
                    int(row.wrong),
                    *(_short(value) for value in (row.score, row.error, apart)),
                    *(strings.setdefault(text, len(strings)) for text in texts),
                ]
            )
        return {"strings": list(strings), "rows": rows}

    def _row(self, row: Row) -> dict[str, Any]:
        """A call; `apart` is how far its results are from the reference's, inherited and introduced."""
        return dataclasses.asdict(row) | {"apart": self._apart(row)}

    def _apart(self, row: Row) -> float | None:
        return self.paired.apart.get((row.step, row.call)) if self.paired and row.rank == self.rank else None


def find_culprit(
    reference: Path,
    port: Path,
    again: Path | None = None,
    *,
    steps: Sequence[int] | None = None,
    ranks: Sequence[int] | None = None,
    parted: int | None = None,
) -> Culprit | None:
    """Judge the operators of two recordings; None where neither has any. `again` is a recording of the port's run once
    more, which shows what is not repeated; `replay_recording` says what `steps`, `ranks` and `parted` are.

    Raises TorchportError where one alone has some, or they share no module, and as `replay_recording`,
    `compare_global_batches` and `find_unsteady_calls` do.
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
    other_ranks = len(one.processes) != len(other.processes)
    rank = ranks[0] if ranks else other.processes[0].rank or 0
    _of_one_script(one, other, rank)
    counts = len(one.processes[0].steps), len(other.processes[0].steps)
    replayed = replay_recording(port, ranks=ranks, steps=steps, parted=parted) if has_tensors(other) else None
    around = compare_global_batches(one, other) if other_ranks else []
    around += find_causes(one, other, rank, other_ranks=other_ranks)
    around += find_wrong_collectives(one, other, replayed.steps if replayed else ())
    return Culprit(
        around,
        replayed,
        counts,
        # Each of other ranks computes another part of the batch.
        None if other_ranks else pair_results(one, other, rank),
        _overflows(one, other),
        [] if again is None else find_unsteady_calls(other, Operators.read(again), rank),
        port,
        rank,
        find_overwritten(other, ranks),
        _is_checked(other),
    )


def find_port_culprit(port: Path, *, parted: int | None = None) -> Culprit | None:
    """Judge the operators of one recording, beside a reference that has none: what they compute, not what they are
    given. None where it has no tensors of any. Raises TorchportError as `replay_recording` does."""
    recorded = Operators.read(port)
    if not any(process.steps for process in recorded.processes) or not has_tensors(recorded):
        return None
    first = recorded.processes[0]
    spoilt = [overflow for overflow in find_overflows(recorded) if not overflow.handled]
    judged = replay_recording(port, parted=parted)
    return Culprit(
        [],
        judged,
        (0, len(first.steps)),
        None,
        spoilt,
        port=port,
        rank=first.rank or 0,
        overwritten=find_overwritten(recorded),
        checked=_is_checked(recorded),
    )


def _is_checked(recorded: Operators) -> bool:
    """Whether the inputs of operators were looked at again behind them."""
    process = recorded.processes[0]
    with process.step(process.steps[0]) as step:
        return bool(step.about.get("checked"))


def _overflows(reference: Operators, port: Operators) -> list[Overflow]:
    """What the port's numbers run into and the reference's do not, but for what a GradScaler takes care of."""
    theirs = {(overflow.step, overflow.operator, overflow.module) for overflow in find_overflows(reference)}
    return [
        overflow
        for overflow in find_overflows(port)
        if not overflow.handled and (overflow.step, overflow.operator, overflow.module) not in theirs
    ]


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


def classify_error(row: Row) -> str:
    """The class of a wrong operator."""
    if row.spoilt and any(word in row.spoilt for word in ("NaN", "infinite", "saturated")):
        return OVERFLOW
    return PRECISION if row.lost else RESULT


def _profile(rows: Sequence[Row]) -> list[float]:
    """The highest score of each of at most BINS stretches of the run, in the order of calls."""
    scores = [min(row.score, HIGHEST) for row in rows if row.kind == JUDGED]
    width = max(1, math.ceil(len(scores) / BINS))
    return [max(scores[first : first + width]) for first in range(0, len(scores), width)]


def _short(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.3g}")


def _where(row: Row) -> str:
    named = f", {row.names[0]}" if len(row.names) == 1 and row.phase != "forward" else ""
    passed = {"forward": "", "backward": ", gradient", "optimizer": ", optimizer"}.get(row.phase, f", {row.phase}")
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
