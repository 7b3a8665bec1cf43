"""Operators that give other results for the same inputs: two runs of one script on one device, call by call."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from torchport.compare.align import match_calls
from torchport.compare.tensors import measure_distance
from torchport.errors import TorchportError
from torchport.record.operators.reading import Call, Operators, Tensor

# What they give is drawn, made elsewhere, or not written yet.
CHANCE = (
    "rand",
    "normal_",
    "uniform_",
    "bernoulli",
    "multinomial",
    "exponential_",
    "dropout",
    "empty",
    "poisson",
    "cauchy_",
    "geometric_",
    "log_normal_",
    "resize_",
    "set_",
)


@dataclasses.dataclass(frozen=True, slots=True)
class Unsteady:
    """A call whose inputs were the same and whose result was not: `by` is how far apart, the noise of this operator."""

    step: int
    call: int
    operator: str
    module: str
    source: str
    by: float


def find_unsteady_calls(port: Operators, again: Operators, rank: int = 0) -> list[Unsteady]:
    """The calls of `port` that `again`, a second recording of the same run, does not repeat bit by bit.

    Raises TorchportError where the two have no step in common, or no checksum says which inputs were the same.
    """
    one, other = port.rank(rank), again.rank(rank)
    both = [number for number in one.steps if number in other.files]
    if not both:
        raise TorchportError(
            f"{again.path} has no step of operators that {port.path} has", hint="Record the same run twice."
        )
    found: list[Unsteady] = []
    compared = 0
    for number in both:
        with one.step(number) as first, other.step(number) as second:
            for a, b in match_calls(list(first.calls()), list(second.calls())):
                if a is None or b is None or not _same_inputs(a, b):
                    continue
                compared += 1
                found += _apart(number, a, b)
    if not compared:
        raise TorchportError(
            f"no call of {again.path} was given what it was given in {port.path}",
            hint="Record the same run twice, with the same seed; devices without checksums need --level tensor.",
        )
    return found


def _sum(one: Tensor | None) -> object:
    """What is the same for the same numbers; None where nothing says so."""
    if one is None or one.elements == 0:
        return 0
    found = one.statistics
    return (one.shape, one.dtype, found.checksum) if found is not None and found.checksum else None


def _same_inputs(a: Call, b: Call) -> bool:
    if a.arguments != b.arguments or len(a.inputs) != len(b.inputs):
        return False
    sums = [(_sum(one), _sum(other)) for one, other in zip(a.inputs, b.inputs, strict=True)]
    return all(one is not None and one == other for one, other in sums)


def _apart(number: int, a: Call, b: Call) -> Iterator[Unsteady]:
    short = a.name.partition("::")[2]
    if a.name.startswith(("module::", "c10d::")) or any(word in short for word in CHANCE):
        return
    worst = 0.0
    for one, other in zip((*a.outputs, *a.written), (*b.outputs, *b.written), strict=False):
        sums = _sum(one), _sum(other)
        if one is not None and other is not None and None not in sums and sums[0] != sums[1]:
            worst = max(worst, measure_distance(one, other), 2.0**-60)
    if worst:
        yield Unsteady(number, a.index, a.name, a.module, a.source, worst)
