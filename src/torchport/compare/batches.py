"""The global batch of a step, rebuilt from what each rank was given: which samples, whatever rank had them."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy

from torchport.compare.classes import DATA, Cause
from torchport.errors import TorchportError
from torchport.record.operators.reading import Call, Operators, ProcessOperators, Step, Tensor

HINT = "Record both with the same number of processes, or both with --level tensor."


def compare_global_batches(reference: Operators, port: Operators) -> list[Cause]:
    """What differs in the global batches of two recordings with other numbers of processes, in the first step of both.

    Raises TorchportError where a batch cannot be rebuilt: its tensors were not kept, or it has another size.
    """
    number = _step(reference, port)
    batches = [_batches(one, number) for one in (reference, port)]
    ranks = [len(one.processes) for one in (reference, port)]
    if not batches[0] or len(batches[0]) != len(batches[1]):
        raise TorchportError(
            f"{reference.path} has operators of {ranks[0]} processes, {port.path} of {ranks[1]}, and their batches are "
            f"{len(batches[0])} and {len(batches[1])} tensors in step {number}: they cannot be put together",
            hint=HINT,
        )
    for place, (theirs, ours) in enumerate(zip(*batches, strict=True)):
        sizes = theirs.total(), ours.total()
        if sizes[0] != sizes[1]:
            raise TorchportError(
                f"the global batch of {reference.path} has {sizes[0]} samples, that of {port.path} {sizes[1]}: "
                f"{ranks[0]} and {ranks[1]} processes do not train on the same data",
                hint="Give each the same global batch.",
            )
        missing = (theirs - ours).total()
        if missing:
            return [
                Cause(
                    DATA,
                    f"{missing} of the {sizes[0]} samples of the global batch are others in step {number} "
                    f"(tensor {place} of the batch, rebuilt from {ranks[0]} and {ranks[1]} processes)",
                    number,
                    by=missing / sizes[0],
                )
            ]
    return []


def _step(reference: Operators, port: Operators) -> int:
    common = set.intersection(*(set(process.steps) for both in (reference, port) for process in both.processes))
    if not common:
        raise TorchportError(
            f"{reference.path} and {port.path} have no step that all of their processes recorded", hint=HINT
        )
    return min(common)


def _batches(recorded: Operators, number: int) -> list[Counter[bytes]]:
    """For each tensor that comes from outside, by the order of its use, the samples of all ranks."""
    of_ranks = [_tensors(process, number) for process in recorded.processes]
    count = min(map(len, of_ranks))
    found = []
    for place in range(count):
        samples: Counter[bytes] = Counter()
        for rank in of_ranks:
            samples += rank[place]
        found.append(samples)
    return found


def _tensors(process: ProcessOperators, number: int) -> list[Counter[bytes]]:
    with process.step(number) as step:
        given = list(_given(step))
        kept: Sequence[Tensor] = [one for one in given if one.has_content]
        if len(kept) < len(given) or not given:
            raise TorchportError(
                f"{process.files[number]} does not have what the model was given, so a batch cannot be rebuilt out of "
                "the samples of several processes",
                hint=HINT,
            )
        return [_samples(one) for one in kept]


def _given(step: Step) -> Iterator[Tensor]:
    """What the forward pass reads and has not made: by a module, or beside what one has made (a loss, its labels), in
    the order of its use. What a rank draws or cuts before, parameters and single numbers are none of that."""
    made: set[int] = set()  # by modules, and out of that
    seen: set[int] = set()
    for call in step.calls():
        if call.phase != "forward" or call.name.startswith(("module::", "c10d::")):
            continue
        inputs = [one for one in call.inputs if one is not None]
        if not call.module and not any(one.storage in made for one in inputs):
            continue
        for one in inputs:
            # Names are known when a module has run once.
            if one.storage in made or one.storage in seen or one.name or one.requires_grad or one.elements <= 1:
                continue
            seen.add(one.storage)
            yield one
        made.update(_results(call))


def _results(call: Call) -> Iterator[int]:
    """The storages that a call has made; a view's is its input's."""
    given = {one.storage for one in call.inputs if one is not None}
    for output in call.outputs:
        if output is not None and output.storage not in given:
            yield output.storage


def _samples(one: Tensor) -> Counter[bytes]:
    """Checksums of the slices along the first dimension."""
    rows = numpy.ascontiguousarray(one.bits())
    return Counter(hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in rows)
