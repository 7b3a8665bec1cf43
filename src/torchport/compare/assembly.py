"""One device against many: the ranks of a distributed run put together to what the same training does on one device.

Both become recordings of one process that have the same series: of each parameter that the ranks have all parts of
(`shards`) the gradient, in its whole, and the loss. All else of `compare` then holds for them as for any two runs.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from torchport.compare.conditions import open_finding
from torchport.compare.disagreement import explain_parting, find_disagreement, find_other_starts, get_bound
from torchport.compare.reach import name_some
from torchport.compare.shards import Held, Number, find_layouts, list_held
from torchport.compare.whole import Whole, put_together
from torchport.errors import TorchportError
from torchport.findings import Finding
from torchport.record.quantities import SAMPLE
from torchport.record.recording import Process, Recording

OPEN = "TP370"
FIRST_LOSS = 1e-3  # relative, of the first step: how the losses of the ranks are put together
KEPT = frozenset(
    ("process", "seed", "random", "torch", "precision", "settings", "scaler", "error", "stop", "end", "note")
)
STEP = "step"  # the kind of event
SITE = "loss of a step"


@dataclasses.dataclass(frozen=True, slots=True)
class Assembly:
    """Two recordings of one process each, `one` of the single device and `many` of all ranks together; `findings` of
    what ranks that hold the same do differently, and what was not compared in `unchecked`."""

    one: Recording
    many: Recording
    findings: tuple[Finding, ...]
    unchecked: tuple[str, ...]
    note: str
    pairs: tuple[Whole, ...]
    losses: _Losses | None
    ranks: int

    def fit_control(self, control: Recording, *, of_ranks: Recording | None = None) -> Recording:
        """A control run with the quantities that both have: of the single device, or of the ranks beside the recording
        `of_ranks` of the single device.

        Raises TorchportError for one of another number of processes.
        """
        wanted, found = (1 if of_ranks is None else self.ranks), len(control.trained)
        if found != wanted:
            raise TorchportError(
                f"{found} processes of the control trained, and {wanted} of the first recording",
                hint="A control is the run of the first recording once more: torchport run --record C --control-of A",
            )
        if of_ranks is not None:
            return assemble_ranks(of_ranks, control).many
        (process,) = control.trained
        held = list_held(process, 0)
        pairs = [
            dataclasses.replace(
                pair,
                steps=held[pair.name].steps,
                theirs=[
                    (gradient, change if pair.follows_changes else None)
                    for gradient, change in zip(held[pair.name].gradients, held[pair.name].changes, strict=True)
                ],
            )
            for pair in self.pairs
            if pair.name in held
        ]
        losses = [self.losses.inner(row) for row in _split_losses(process) if row] if self.losses else None
        return _make_recording(control, process, pairs, losses, lambda pair: pair.theirs)

    def explain_parting(self, step: int | None) -> Iterator[Finding]:
        """By what factor the gradients of that step are others, where it is one for all, and of which parameters."""
        yield from explain_parting(self.pairs, self.ranks, step)


@dataclasses.dataclass(frozen=True, slots=True)
class _Losses:
    """The losses by step, and in which way the losses of the ranks were put together."""

    way: str
    inner: Callable[[Sequence[float]], float]  # of several losses in one step
    one: Sequence[float]
    many: Sequence[float]


def can_assemble(first: Recording, second: Recording) -> bool:
    """Whether one of the two has one process and the other several."""
    counts = sorted((len(first.trained), len(second.trained)))
    return counts[0] == 1 and counts[1] > 1


def assemble_ranks(one: Recording, many: Recording) -> Assembly:
    """Put the ranks of `many` together."""
    (process,) = one.trained
    ranks = many.trained
    theirs = list_held(process, 0)
    ours = [list_held(rank, number) for number, rank in enumerate(ranks)]
    layouts = find_layouts(theirs, ours)
    pairs = tuple(put_together(name, layout) for name, layout in layouts.items())
    losses = _pair_losses(process, ranks)
    used = {id(held) for layout in layouts.values() for part in layout.parts for held in part}
    findings = [*find_other_starts(theirs, ours, used), *find_disagreement(pairs, get_bound(many))]
    if losses is None and not pairs:
        findings.append(
            open_finding(
                OPEN,
                "neither the parameters nor the losses of the ranks can be put together to what one device has",
                "Give both the same initial weights (full tensors of one seed, then cut) and the same global batch.",
            )
        )
    parts = sum(not pair.layout.is_whole for pair in pairs)
    note = f"{len(pairs)} of {len(theirs)} parameters put together of {len(ranks)} ranks, {parts} of them of parts"
    if losses is not None:
        note += f"; the loss of a step is {losses.way}"
    return Assembly(
        _make_recording(one, process, pairs, losses.one if losses else None, lambda pair: pair.theirs),
        _make_recording(many, ranks[0], pairs, losses.many if losses else None, lambda pair: pair.ours),
        tuple(findings),
        tuple(_list_unchecked(theirs, pairs, losses)),
        note,
        pairs,
        losses,
        len(ranks),
    )


def _pair_losses(one: Process, ranks: Sequence[Process]) -> _Losses | None:
    """The losses of each step, put together in the first way that fits in the first step."""
    theirs, ours = _split_losses(one), [_split_losses(rank) for rank in ranks]
    steps = min(map(len, (theirs, *ours)))
    if not steps:
        return None
    for way, combine in _list_ways(len(ranks)):
        for inner in (statistics.fmean, math.fsum):
            base = [inner(values) if values else math.nan for values in theirs[:steps]]
            rows = [[inner(rank[step]) for rank in ours if rank[step]] for step in range(steps)]
            together = [combine(row, first) for row, first in zip(rows, base, strict=True)]
            if math.isclose(together[0], base[0], rel_tol=FIRST_LOSS):
                return _Losses(way, inner, base, together)
    return None


def _list_ways(ranks: int) -> Iterator[tuple[str, Callable[[Sequence[float], float], float]]]:
    yield "that of each rank", lambda row, base: max(row, key=lambda value: abs(value - base), default=math.nan)
    yield "the mean of the ranks'", lambda row, _: statistics.fmean(row) if row else math.nan
    yield "the sum of the ranks'", lambda row, _: math.fsum(row) if row else math.nan
    for rank in reversed(range(ranks)):  # the last stage of a pipeline has it
        yield f"that of rank {rank}", lambda row, base, rank=rank: row[rank] if rank < len(row) else math.nan  # type: ignore[misc]


def _split_losses(process: Process) -> list[list[float]]:
    found: list[list[float]] = [[]]
    for event in process.events:
        if event["kind"] == "loss":
            found[-1].append(float(event["value"]))
        elif event["kind"] == STEP:
            found.append([])
    return found[:-1]


def _list_unchecked(theirs: Mapping[str, Held], pairs: Sequence[Whole], losses: _Losses | None) -> Iterator[str]:
    known = {pair.name for pair in pairs}
    left = [name for name in theirs if name not in known]
    if left:
        some = name_some(left)
        yield f"{len(left)} of {len(theirs)} parameters, of which the ranks' parts do not make up the whole ({some})"
    if losses is None:
        yield "losses: no way to put the ranks' together (each, mean, sum) gives the one device's in the first step"
    if any(not pair.layout.is_whole and pair.layout.whole.size > SAMPLE for pair in pairs):
        yield f"updates of parameters of more than {SAMPLE} numbers that ranks have parts of (their gradients were)"
    yield "data, and what modules give, of the ranks"


def _make_recording(
    recording: Recording,
    process: Process,
    pairs: Sequence[Whole],
    losses: Sequence[float] | None,
    values: Callable[[Whole], Sequence[tuple[Number, Number]]],
) -> Recording:
    """The recording with one process that has these quantities."""
    events: list[Mapping[str, Any]] = [event for event in process.events if event["kind"] in KEPT]
    by_step: dict[int, list[Mapping[str, Any]]] = {}
    for number in sorted({pair.layout.whole.optimizer for pair in pairs}):
        own = [pair for pair in pairs if pair.layout.whole.optimizer == number]
        names, sizes = [pair.name for pair in own], [pair.layout.whole.size for pair in own]
        events.append({"kind": "parameters", "optimizer": number, "step": 0, "names": names, "sizes": sizes})
        for place in range(min(len(pair.steps) for pair in own)):
            rows = [values(pair)[place] for pair in own]
            at = own[0].steps[place]
            norms = {"kind": "norms", "optimizer": number, "step": at, "norm": [None] * len(own)}
            by_step.setdefault(at, []).append(
                {**norms, "gradient": [row[0] for row in rows], "change": [row[1] for row in rows]}
            )
    for step, event in enumerate(process.of_kind(STEP)):
        if losses is not None and step < len(losses):
            loss = {"kind": "loss", "site": SITE, "by": "backward", "value": losses[step], "device": event["device"]}
            events.append({**loss, "launches": None, "elapsed": event.get("elapsed", 0.0)})
        events += [*by_step.get(step, ()), event]
    return dataclasses.replace(recording, processes=(Process(process.pid, tuple(events)),))
