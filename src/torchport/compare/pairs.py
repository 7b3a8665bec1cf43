"""What two recordings computed, tensor by tensor: how far each result is from that of the same call in the reference.

Calls are the same that have one module, operator and pass, and gradients those of one forward call (`align`). Where the
two call different operators for one line of a model (attention fused or written out), the calls between two that are
the same are a region, which is compared at its frontier: what is computed in it and read behind it. Both are the error
that a result has come to, inherited and introduced; `replay` says what was introduced. Needs numpy; no torch.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torchport.compare.align import match_calls, match_sequence_numbers, significant_of
from torchport.compare.tensors import Metrics, compute_metrics, measure_distance
from torchport.record.operators import layout
from torchport.record.operators.reading import Call, Operators, Tensor

TENSORS, STATISTICS, SHAPES = "tensors", "statistics", "other shapes"
# Relative to the norm: other forms of one computation are nearer than that.
ALIKE, ALIKE_HALF = {"float32": 1e-4, "float64": 1e-10}, 3e-2
BACKWARD = "backward"
PHASES = ("forward", BACKWARD, "optimizer")
NAMED = 4


@dataclasses.dataclass(frozen=True, slots=True)
class Pair:
    """One result of a call of both recordings, or of a region (`regions` says which operators it has in each).

    `how` says what was compared; `metrics` need the tensors, else there is `euclidean` alone: of statistics how far the
    norms are apart, 1 of other shapes."""

    step: int
    phase: str
    module: str
    operator: str
    result: int
    call: int
    how: str
    euclidean: float
    metrics: Metrics | None = None
    source: str = ""
    region: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Region:
    """Calls that are not the same: the operators of each side, and how many results could be compared behind them."""

    step: int
    phase: str
    module: str
    reference: Sequence[str]
    port: Sequence[str]
    compared: int


@dataclasses.dataclass(frozen=True)
class Paired:
    """All pairs of some steps. `calls` are those that compute something, in the reference and the port."""

    pairs: Sequence[Pair]
    regions: Sequence[Region]
    calls: tuple[int, int]
    same: int

    def to_csv(self) -> str:
        """A line for each result."""
        names = ["step", "phase", "module", "operator", "result", "call", "how", "euclidean", "region", "source"]
        figures = [field.name for field in dataclasses.fields(Metrics) if field.name != "euclidean"]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([*names, *figures])
        for pair in self.pairs:
            more = ["" if pair.metrics is None else getattr(pair.metrics, name) for name in figures]
            writer.writerow([*(getattr(pair, name) for name in names), *more])
        return text.getvalue()

    @functools.cached_property
    def apart(self) -> Mapping[tuple[int, int], float]:
        """By step and the port's call, how far its worst result is from the reference's."""
        found: dict[tuple[int, int], float] = {}
        for pair in self.pairs:
            key = pair.step, pair.call
            found[key] = max(found.get(key, 0.0), pair.euclidean)
        return found

    def to_json(self) -> dict[str, Any]:
        """Counts, and the regions."""
        return {
            "calls": list(self.calls),
            "same": self.same,
            "results": len(self.pairs),
            "regions": [dataclasses.asdict(region) for region in self.regions],
        }


def pair_results(reference: Operators, port: Operators, rank: int = 0, steps: Sequence[int] | None = None) -> Paired:
    """Compare the results of `steps` (by default the first that both have)."""
    one, other = reference.rank(rank), port.rank(rank)
    both = [number for number in one.steps if number in other.files]
    pairs: list[Pair] = []
    regions: list[Region] = []
    calls, same = [0, 0], 0
    for number in both[:1] if steps is None else [number for number in steps if number in both]:
        with one.step(number) as first, other.step(number) as second:
            for phase in PHASES:
                found = Phase(number, phase, list(first.calls()), list(second.calls()))
                pairs += found.pairs
                regions += found.regions
                same += found.same
                calls = [have + more for have, more in zip(calls, found.calls, strict=True)]
    return Paired(pairs, regions, (calls[0], calls[1]), same)


class Phase:
    """One pass of one step. `alike` has for each side the calls of regions whose results are the same but for rounding,
    or cannot be compared: other operators for one thing."""

    def __init__(self, number: int, phase: str, first: Sequence[Call], second: Sequence[Call]) -> None:
        self._number = number
        self._phase = phase
        self._all = [[call for call in calls if call.phase == phase] for calls in (first, second)]
        self.alike: tuple[set[int], set[int]] = (set(), set())
        counted = [significant_of(calls) for calls in self._all]
        self.calls = len(counted[0]), len(counted[1])
        self.same = 0
        self.pairs: list[Pair] = []
        self.regions: list[Region] = []
        open_: tuple[list[Call], list[Call]] = ([], [])
        known = match_sequence_numbers(first, second) if phase == BACKWARD else ({}, {})
        for a, b in match_calls(*counted, of=known):
            if a is not None and b is not None:
                self._close(open_, a, b)
                open_ = ([], [])
                self.same += 1
                self.pairs += self._results(a, b)
            elif a is not None:
                open_[0].append(a)
            elif b is not None:
                open_[1].append(b)
        self._close(open_, None, None)

    def _results(self, a: Call, b: Call) -> Iterator[Pair]:
        both = [(*call.outputs, *call.written) for call in (a, b)]
        for place, (one, other) in enumerate(zip(*both, strict=False)):
            if one is not None and other is not None and _floating(one) and _floating(other):
                yield self._pair(one, other, b, place)

    def _pair(self, one: Tensor, other: Tensor, call: Call, place: int, region: str = "") -> Pair:
        found: Metrics | None = None
        how, euclidean = STATISTICS, measure_distance(one, other) if one.shape == other.shape else 1.0
        if one.shape != other.shape:
            how = SHAPES
        elif one.has_content and other.has_content:
            how = TENSORS
            # Of equal ones too: a single pass over what is there.
            found = compute_metrics(one.values(), other.values(), other.dtype)
            euclidean = found.euclidean
        return Pair(
            self._number,
            self._phase,
            call.module,
            call.name,
            place,
            call.index,
            how,
            euclidean,
            found,
            call.source,
            region,
        )

    def _close(self, open_: tuple[list[Call], list[Call]], a: Call | None, b: Call | None) -> None:
        """A region ends before the calls `a` and `b`, None at the end of the pass."""
        if not any(open_):
            return
        names = [[call.name.partition("::")[2] for call in calls] for calls in open_]
        made = [
            self._frontier(side, calls, end) if calls else []
            for side, (calls, end) in enumerate(zip(open_, (a, b), strict=True))
        ]
        title = f"{_some(names[0])} | {_some(names[1])}"
        compared, same = 0, True
        left = list(made[0])
        last = open_[1][-1] if open_[1] else None
        for other in made[1]:
            one = next((one for one in left if one.shape == other.shape), None)
            if one is not None and last is not None:
                left.remove(one)
                self.pairs.append(self._pair(one, other, last, compared, title))
                same = same and self.pairs[-1].euclidean <= ALIKE.get(other.dtype, ALIKE_HALF)
                compared += 1
        # Of what has another shape in both (packed sequences with their padding) nobody knows.
        if all(open_) and all(made) and same:
            for known, calls in zip(self.alike, open_, strict=True):
                known.update(call.index for call in calls)
        module = (open_[1] or open_[0])[0].module
        self.regions.append(Region(self._number, self._phase, module, names[0], names[1], compared))

    def _frontier(self, side: int, calls: Sequence[Call], end: Call | None) -> list[Tensor]:
        """What calls of a region, or what moves their numbers, made and the rest of the pass reads, as it reads it."""
        first, behind = calls[0].index, calls[-1].index if end is None else end.index - 1
        inside, outside = [], []
        for call in self._all[side]:
            if first <= call.index <= behind:
                inside.append(call)
            elif call.index > behind:
                outside.append(call)
        made = {output.storage for call in inside for output in (*call.outputs, *call.written) if output is not None}
        if not outside:
            return [output for output in calls[-1].outputs if output is not None and _floating(output)]
        found: dict[int, Tensor] = {}
        for call in outside:
            for one in call.inputs:
                if one is not None and one.storage in made and _floating(one):
                    found.setdefault(one.storage, one)
            for output in (*call.outputs, *call.written):  # written again, or another tensor in its memory
                if output is not None and output.storage not in found:
                    made.discard(output.storage)
        return list(found.values())


def _floating(one: Tensor) -> bool:
    kind = layout.DTYPES.get(one.dtype)
    return kind is not None and kind.kind in ("float", "complex") and one.elements > 0


def _some(names: Sequence[str]) -> str:
    more = f" +{len(names) - NAMED}" if len(names) > NAMED else ""
    return " ".join(names[:NAMED]) + more if names else "nothing"
