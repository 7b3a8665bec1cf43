"""Memory that was written over: what a call was given is not what was read of it before. Needs numpy; no torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy

from torchport.record.operators.reading import Call, Change, Operators, Step, Tensor

OVERWRITTEN = "overwritten memory"
MOST = 1000  # changes of one step that are told apart


@dataclasses.dataclass(frozen=True, slots=True)
class Named:
    """A call of a recording."""

    call: int
    operator: str
    module: str
    source: str

    @classmethod
    def of(cls, call: Call) -> Named:
        """Its number, operator, module and line."""
        return cls(call.index, call.name, call.module, call.source)

    @property
    def sentence(self) -> str:
        """Such as "aten::relu in layer1 (train.py:14)"."""
        module = f" in {self.module}" if self.module.strip(".") else ""
        return f"{self.operator}{module}{f' ({self.source})' if self.source else ''}"


@dataclasses.dataclass(frozen=True, slots=True)
class Overwritten:
    """A tensor in memory that no recorded call has written, and that was another behind the call `seen` of `step` than
    behind the call `right` (None: than before the first). `elements` of `size` differ; `owner` is the call that made
    it, None for one of an earlier step, and `name` what the user's modules call it. `writer` is the one call that ran
    meanwhile in the step `when`, or that was given the same memory; None where that is not known."""

    step: int
    rank: int
    owner: Named | None
    name: str
    seen: Named
    right: Named | None
    writer: Named | None
    when: int
    shared: bool  # whether the writer was given the same memory
    elements: int
    size: int

    @property
    def place(self) -> tuple[int, int]:
        """Step and call at which it was found."""
        return self.step, self.seen.call

    @property
    def blamed(self) -> Named:
        """The call that writes there, or else the one that has made what is written over."""
        return self.writer or self.owner or self.seen

    @property
    def sentence(self) -> str:
        """The change, and the call that did it where it is known."""
        what = f"the result of {self.owner.sentence}" if self.owner else self.name or "a tensor of an earlier step"
        before = f"behind {self.right.operator}, call {self.right.call}" if self.right else "before the first call"
        text = (
            f"{what} is another behind {self.seen.sentence}, call {self.seen.call} of step {self.step}, than {before}: "
            f"{self.elements:,} of {self.size:,} elements, and as far as torch knows nothing has written them"
        )
        if self.writer is None:
            return text
        if self.shared:
            return f"{text}; {self.writer.sentence} was given the same memory meanwhile"
        when = f" in step {self.when}" if self.when != self.step else ""
        return f"{text}; only {self.writer.sentence} ran meanwhile{when}"


def find_overwritten(recorded: Operators, ranks: Iterable[int] | None = None) -> list[Overwritten]:
    """The memory of a recording that was written over, the earliest first, each tensor once: in the step in which it
    is known best which call did it, if that is in a later one."""
    found: dict[tuple[int, str, str, str], Overwritten] = {}
    for number, process in enumerate(recorded.processes):
        rank = number if process.rank is None else process.rank
        if ranks is not None and rank not in ranks:
            continue
        for step_number in process.steps:
            with process.step(step_number) as step:
                if not step.about.get("checked"):  # by no step of this process: its inputs were not looked at again
                    break
                for one in _read_step(step, step_number, rank):
                    owner = one.owner or one.seen
                    key = (rank, owner.operator, owner.module, owner.source)
                    known = found.get(key)
                    if known is None:
                        found[key] = one
                    elif known.writer is None and one.writer is not None:
                        found[key] = dataclasses.replace(known, writer=one.writer, when=one.when, shared=one.shared)
    return sorted(found.values(), key=lambda one: one.place)


def _read_step(step: Step, number: int, rank: int) -> list[Overwritten]:
    changes = step.changes[:MOST]
    if not changes:
        return []
    makers: dict[int, Call] = {}
    for call in step.calls():
        for tensor in (*call.outputs, *call.written):
            if tensor is not None:
                makers.setdefault(tensor.index, call)
    return [_describe(step, number, rank, change, makers) for change in changes]


def _describe(step: Step, number: int, rank: int, change: Change, makers: dict[int, Call]) -> Overwritten:
    owner = makers.get(change.before.index)
    writer = None if change.by is None else makers.get(change.by.index)
    alone = writer is None and change.call - change.after == 1
    elements, size = _count_differences(change.before, change.now)
    seen = Named.of(step.call(change.call))
    return Overwritten(
        step=number,
        rank=rank,
        owner=None if owner is None else Named.of(owner),
        name=change.before.name,
        seen=seen,
        right=None if change.after < 0 else Named.of(step.call(change.after)),
        writer=seen if alone else None if writer is None else Named.of(writer),
        when=number,
        shared=writer is not None,
        elements=elements,
        size=size,
    )


def _count_differences(before: Tensor, now: Tensor) -> tuple[int, int]:
    """How many elements differ, bit for bit, and how many there are."""
    one, other = before.bits(), now.bits()
    if one is None or other is None:
        return 0, before.elements
    width = one.dtype.itemsize
    bytes_ = numpy.ascontiguousarray(one).reshape(-1).view("u1") != numpy.ascontiguousarray(other).reshape(-1).view(
        "u1"
    )
    return int(bytes_.reshape(-1, width).any(axis=1).sum()), before.elements
