"""Collectives: what a rank has after one, held against what all ranks gave, in float64. Needs numpy; no torch.

The operator of a reduction is not recorded: it is the one that the reference's own results fit. A collective of a part
of the ranks fits none, and is not judged.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy

from torchport.compare.classes import Cause
from torchport.compare.scores import EPSILON
from torchport.record.operators.reading import Call, Operators, ProcessOperators, Step, Tensor

WRONG_COLLECTIVE = "wrong collective"
# Times the number of ranks and half a unit in the last place of the sum of magnitudes: any order of summation.
MULTIPLE = 4.0

Results = Mapping[str, Any]
# It does not read its first input. gloo ends a collective of one tensor by such copies, when it is waited for.
COPY = "aten::copy_"


def _fold(given: Sequence[Any], rank: int = 0, place: int = 0) -> dict[str, Any]:
    rows = numpy.stack(given)
    return {
        "the sum": rows.sum(0),
        "the mean": rows.mean(0),
        "the maximum": rows.max(0),
        "the minimum": rows.min(0),
        "the product": rows.prod(0),
    }


def _scatter(given: Sequence[Any], rank: int, place: int) -> dict[str, Any]:
    size = given[0].size // len(given)
    return {name: whole[rank * size : (rank + 1) * size] for name, whole in _fold(given).items()}


def _send(given: Sequence[Any], rank: int, place: int) -> dict[str, Any]:
    return {f"what rank {root} gave": one for root, one in enumerate(given)}


def _gather(given: Sequence[Any], rank: int, place: int) -> dict[str, Any]:
    return {"what all ranks gave": numpy.concatenate(given)}


def _gather_each(given: Sequence[Any], rank: int, place: int) -> dict[str, Any]:
    return {"what all ranks gave": given[place]}


@dataclasses.dataclass(frozen=True, slots=True)
class _Kind:
    """`given` is the place of the tensor that a rank gives among the inputs, `written` those that it has results in;
    `results` are what may be right, by name, from all that was given, for a rank and one of `written`."""

    given: int
    written: Callable[[int], Iterable[int]]
    results: Callable[[Sequence[Any], int, int], dict[str, Any]]


_KINDS = {
    "c10d::allreduce_": _Kind(0, lambda count: range(1), _fold),
    "c10d::broadcast_": _Kind(0, lambda count: range(1), _send),
    "c10d::allgather_": _Kind(-1, lambda count: range(count - 1), _gather_each),
    "c10d::_allgather_base_": _Kind(1, lambda count: range(1), _gather),
    "c10d::_reduce_scatter_base_": _Kind(1, lambda count: range(1), _scatter),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
    """One collective of one rank: what it gave, and what it had afterwards: flat parts by place in `written`, each
    with where it begins."""

    call: Call
    dtype: str
    given: Any
    had: Mapping[int, Sequence[tuple[int, Any]]]


def find_wrong_collectives(reference: Operators, port: Operators, steps: Iterable[int]) -> Iterator[Cause]:
    """The collectives that give the port another result than what its ranks gave makes it, in the first of `steps`
    that has one."""
    if len(reference.processes) != len(port.processes) or len(port.processes) < 2:
        return
    for number in steps:
        if not all(number in process.files for both in (reference, port) for process in both.processes):
            continue
        theirs, ours = (_read_step(recorded.processes, number) for recorded in (reference, port))
        both = [pair for name in theirs.keys() & ours.keys() for pair in zip(theirs[name], ours[name], strict=False)]
        found = [cause for before, after in both if (cause := compare_collective(number, before, after)) is not None]
        yield from found
        if found:
            return


def compare_collective(number: int, reference: Sequence[Seen], port: Sequence[Seen]) -> Cause | None:
    """The fault of one collective of the port, of which each rank has its part here."""
    right = [_name_results(reference, rank) for rank in range(len(reference))]
    wanted = set.intersection(*right)
    if not wanted:
        return None
    found = [_name_results(port, rank) for rank in range(len(port))]
    odd = [rank for rank, names in enumerate(found) if port[rank].had and not names & wanted]
    if not odd:
        return None
    call = port[odd[0]].call
    names = set.union(*(found[rank] for rank in odd))
    instead = " or ".join(sorted(names)) or "what none of their values makes"
    where = "on every rank" if len(odd) == len(port) else f"on rank{'s' * (len(odd) > 1)} {', '.join(map(str, odd))}"
    return Cause(
        WRONG_COLLECTIVE,
        f"{call.name} in step {number} gives {instead} {where}, {' or '.join(sorted(wanted))} in the reference",
        number,
        call.module,
        call.source,
        operator=call.name,
        call=call.index,
        rank=odd[0],
    )


def _name_results(seen: Sequence[Seen], rank: int) -> set[str]:
    """The names of the results that a rank has, of all that may be right; all if nobody saw what it had."""
    kind, given = _KINDS[seen[rank].call.name], [one.given for one in seen]
    bound = MULTIPLE * len(given) * EPSILON.get(seen[rank].dtype, 0.0)
    found: set[str] | None = None
    for place, parts in seen[rank].had.items():
        fits = set()
        for name, whole in kind.results(given, rank, place).items():
            size = (
                _fold([numpy.abs(one) for one in given])["the sum"] if whole.size == given[0].size else numpy.abs(whole)
            )
            if all(_is_close(whole[at : at + part.size], part, size[at : at + part.size], bound) for at, part in parts):
                fits.add(name)
        found = fits if found is None else found & fits
    return set(kind.results(given, rank, 0)) if found is None else found


def _is_close(right: Any, part: Any, size: Any, bound: float) -> bool:
    if right.shape != part.shape:
        return False
    with numpy.errstate(invalid="ignore"):
        off = numpy.abs(right - part)
    numbers = numpy.isfinite(right) & numpy.isfinite(part)
    norm = float(numpy.linalg.norm(size[numbers])) or 1.0
    return bool(numpy.linalg.norm(off[numbers]) <= bound * norm) and bool(
        (numpy.isfinite(right) == numpy.isfinite(part)).all()
    )


def _read_step(processes: Sequence[ProcessOperators], number: int) -> dict[str, list[list[Seen]]]:
    """The collectives of a step, by name, in order, for all ranks; those that all ranks have in the same shape."""
    of_ranks = []
    for process in processes:
        with process.step(number) as step:
            of_ranks.append(_read_rank(step))
    found: dict[str, list[list[Seen]]] = {}
    for name in set.intersection(*map(set, of_ranks)):
        for row in zip(*(rank[name] for rank in of_ranks), strict=False):
            known = [one for one in row if one is not None]
            if len(known) == len(row) and len({one.given.size for one in known}) == 1:
                found.setdefault(name, []).append(known)
    return found


def _read_rank(step: Step) -> dict[str, list[Seen | None]]:
    calls = list(step.calls())
    memory = _Memory(calls)
    found: dict[str, list[Seen | None]] = {}
    for call in calls:
        if call.name in _KINDS:
            found.setdefault(call.name, []).append(_read_call(call, memory))
    return found


class _Memory:
    """The inputs of the operators of a step, by storage and version, and which versions they wrote themselves."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self._sights: dict[int, dict[int, list[Tensor]]] = {}
        self._wrote: dict[int, set[int]] = {}
        for call in calls:
            before: dict[int, int] = {}
            for place, one in enumerate(call.inputs):
                if one is not None:
                    before[one.storage] = max(one.version, before.get(one.storage, 0))
                    if one.has_content and not (call.name == COPY and place == 0):
                        self._sights.setdefault(one.storage, {}).setdefault(one.version, []).append(one)
            for one in (*call.outputs, *call.written):
                if (
                    one is not None
                    and call.name not in (*_KINDS, COPY)
                    and one.version > before.get(one.storage, one.version)
                ):
                    self._wrote.setdefault(one.storage, set()).add(one.version)

    def find_after(self, written: Tensor) -> Sequence[Tensor]:
        """The sights of the memory of a tensor that a collective wrote, before an operator wrote to it."""
        versions = self._sights.get(written.storage, {})
        later = min((version for version in versions if version > written.version), default=None)
        if later is None or any(written.version < one <= later for one in self._wrote.get(written.storage, ())):
            return ()
        return versions[later]


def _read_call(call: Call, memory: _Memory) -> Seen | None:
    kind = _KINDS[call.name]
    given = call.inputs[kind.given]
    if given is None or not given.has_content or given.dtype not in EPSILON:
        return None
    had: dict[int, list[tuple[int, Any]]] = {}
    for place in kind.written(len(call.inputs)):
        written = call.inputs[place]
        if written is None:
            continue
        parts = []
        for one in memory.find_after(written):
            at = one.offset - written.offset
            if one.dtype == written.dtype and at >= 0 and at + one.elements <= written.elements and _is_flat(one):
                parts.append((at, _flatten(one)))
        if parts:
            had[place] = parts
    return Seen(call, given.dtype, _flatten(given), had)


def _is_flat(one: Tensor) -> bool:
    """Whether its elements lie one behind the other in their own order."""
    step = 1
    for size, stride in zip(reversed(one.shape), reversed(one.stride), strict=True):
        if size != 1 and stride != step:
            return False
        step *= size
    return True


def _flatten(one: Tensor) -> Any:
    return numpy.asarray(one.values(), dtype=numpy.float64).reshape(-1)
