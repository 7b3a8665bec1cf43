"""Where numbers stopped being numbers: the first NaN, infinity or saturated tensor of a step, and what made it.

By statistics alone, which every recording has. What was asked for is none: an infinity that an argument is (a mask is
filled with it), or the largest number of a dtype as an argument, and what only moves such numbers.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy

from torchport.record.operators.reading import Call, Operators, ProcessOperators, Step, Tensor

NAN, INFINITE, SATURATED = "NaN", "infinite", "saturated"
LARGEST = {"float16": 65504.0, "bfloat16": 3.3895313892515355e38, "float32": 3.4028234663852886e38}
SCALED = "left out by the GradScaler"
VANISHES = "it vanishes again: all that is computed from it is a number"
SCALED_PHASES = ("backward", "optimizer")  # in which a loss that was scaled too much overflows
# They give numbers to the host.
TO_HOST = frozenset({"_local_scalar_dense", "equal", "is_nonzero"})
# They fill with what they are given, or with nothing in particular.
MEMORY = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "resize_", "set_"})


@dataclasses.dataclass(frozen=True, slots=True)
class Overflow:
    """The first call of a step whose result is no number though what it was given is: `what` there is, how often, and
    of what it was given the largest magnitudes. `handled` says who took care of it; `after` counts the later calls
    of the step whose results are no numbers either."""

    step: int
    rank: int | None
    call: int
    operator: str
    phase: str
    module: str
    source: str
    what: str
    count: int
    dtype: str
    shape: Sequence[int]
    inputs: Sequence[str]
    handled: str = ""
    after: int = 0

    @property
    def sentence(self) -> str:
        """For people."""
        where = f" in {self.module}" if self.module.strip(".") else ""
        given = f"; given {', '.join(self.inputs)}" if self.inputs else ""
        tail = f"; {self.after:,} later calls do as well" if self.after else ""
        done = f" ({self.handled})" if self.handled else ""
        return (
            f"step {self.step}: {self.operator} ({self.phase}){where} makes {self.count:,} elements of "
            f"{self.dtype}{list(self.shape)} {self.what}{given}{tail}{done}"
        )


def find_overflows(recorded: Operators, steps: Sequence[int] | None = None) -> Iterator[Overflow]:
    """The first of each step of each process that has one."""
    for process in recorded.processes:
        scaled = _left_out(recorded, process)
        for number in process.steps if steps is None else [one for one in steps if one in process.files]:
            with process.step(number) as step:
                found = find_first_overflow(step, number, process.rank)
            if found is not None:
                if number in scaled and found.phase in SCALED_PHASES:
                    found = dataclasses.replace(found, handled=SCALED)
                yield found


def _left_out(recorded: Operators, process: ProcessOperators) -> set[int]:
    """The steps in whose files are the operators of one that a GradScaler left out."""
    events = [one for one in recorded.recording.processes if one.pid == process.pid]
    return {int(event["step"]) for one in events for event in one.of_kind("scaler") if event["skipped"]}


def has_suspect_numbers(arrays: Mapping[str, Any]) -> bool:
    """Whether a step has something that is no number at all, by its tables: cheap, for every step."""
    tensors = arrays["tensors"]
    return bool((tensors["nans"] > 0).any() or (tensors["infinities"] > 0).any()) or _saturated(tensors)


def _saturated(tensors: Any) -> bool:
    with numpy.errstate(invalid="ignore"):
        size = numpy.maximum(numpy.abs(tensors["minimum"]), numpy.abs(tensors["maximum"]))
    return any(bool((size == largest).any()) for largest in LARGEST.values())


def find_first_overflow(step: Step, number: int, rank: int | None = None) -> Overflow | None:
    """What a step's file says; None where all numbers are numbers, or were asked not to be."""
    if not has_suspect_numbers(step.file.tables):
        return None
    found: Overflow | None = None
    after = 0
    fate = _Fate()
    for call in step.calls():
        if call.name.startswith("module::") or call.name.partition("::")[2] in MEMORY:
            continue
        fate.add_call(call)
        for output in (*call.outputs, *call.written):
            what = _what(output)
            if output is None or not what:
                continue
            if found is not None:
                after += 1
                break
            if _made(call, output, what[0]):
                found = Overflow(
                    number,
                    rank,
                    call.index,
                    call.name,
                    call.phase,
                    call.module,
                    call.source,
                    *what,
                    output.dtype,
                    output.shape,
                    [_given(given) for given in call.inputs if given is not None and given.statistics],
                )
                break
    if found is None:
        return None
    return dataclasses.replace(found, after=after, handled="" if fate.lasts else VANISHES)


class _Fate:
    """Whether what is no number comes to last: in a parameter, on the host, or in memory that nobody reads any more in
    the step. RAdam divides by 0 and takes the reciprocal, a mask of log(0) is gone behind the softmax."""

    def __init__(self) -> None:
        self._seen = False
        self._unread: set[int] = set()

    @property
    def lasts(self) -> bool:
        return self._seen or bool(self._unread)

    def add_call(self, call: Call) -> None:
        """Follow one call, in order."""
        read = [one for one in call.inputs if one is not None and _what(one)]
        self._unread -= {one.storage for one in call.inputs if one is not None}
        made = [one for one in (*call.outputs, *call.written) if one is not None and _what(one)]
        self._unread |= {one.storage for one in made}
        moved = any(one.device == "cpu" for one in made) and any(one.device != "cpu" for one in read)
        to_host = moved or call.name.partition("::")[2] in TO_HOST
        self._seen |= bool(read and to_host) or any(one.name for one in made)


def _what(one: Tensor | None) -> tuple[str, int] | None:
    """What a tensor has that is no number, and how many; of a saturated one only that there are some."""
    found = one.statistics if one is not None else None
    if one is None or found is None:
        return None
    if found.nans:
        return NAN, found.nans
    if found.infinities:
        return INFINITE, found.infinities
    if one.elements > 1 and max(abs(found.minimum), abs(found.maximum)) == LARGEST.get(one.dtype):
        return SATURATED, 1
    return None


def _made(call: Call, one: Tensor, what: str) -> bool:
    """Whether the call made it: none of its inputs has it, and nobody asked for it."""
    before = [_what(given) for given in call.inputs]
    if what == NAN:
        return not any(given and given[0] == NAN for given in before) and not _asked(call.arguments, math.isnan)
    limit = LARGEST.get(one.dtype, math.inf)
    return not any(before) and not _asked(call.arguments, lambda value: abs(value) >= limit)


def _asked(value: Any, wanted: Any) -> bool:
    if isinstance(value, list):
        return any(_asked(one, wanted) for one in value)
    if isinstance(value, dict):
        return "float" in value and bool(wanted(float(value["float"])))
    return isinstance(value, float) and bool(wanted(value))


def _given(one: Tensor) -> str:
    """A word for what a call was given: its type and how large it was."""
    found = one.statistics
    assert found is not None  # the caller looked
    size = max(abs(found.minimum), abs(found.maximum))
    name = f" {one.name}" if one.name else ""
    return f"{one.dtype}{list(one.shape)}{name} up to {size:.4g}"
