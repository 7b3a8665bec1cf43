"""What differs between two recordings that no operator is to blame for: weights, data, hyper-parameters, random
streams, operators and collectives that only one has. Needs no torch.

They are looked for in the first steps that both have, in the order in which they come about; the first that is found is
the cause of what follows.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torchport.compare.align import MOVES, match_calls, select_significant_forward, strip_namespace
from torchport.compare.pairs import Phase
from torchport.compare.tensors import ROUNDING, measure_distance
from torchport.record.operators.reading import Call, Operators, Step, Tensor
from torchport.record.recording import Recording

WEIGHT, DATA, HYPER_PARAMETER, RANDOM = "weight", "data", "hyper-parameter", "random stream"
OPERATOR, COLLECTIVE = "missing operator", "missing collective"
DRAWS = ("bernoulli", "dropout", "rand", "normal_", "uniform_", "multinomial")
# Bytes of a generator's state: of the CPU (the Mersenne Twister of at::CPUGeneratorImpl), of CUDA and of the NPU (seed
# and offset).
STATES = ((5056,), (16,))
HOST = frozenset({"cpu", "meta"})
NAMED = 4  # tensors are named in a sentence


@dataclasses.dataclass(frozen=True, slots=True)
class Cause:
    """One difference: its class, a sentence, and where it was seen. `operator` and `call` name the call that is to
    blame, if one is, on `rank`."""

    kind: str
    text: str
    step: int
    module: str = ""
    source: str = ""
    by: float = 0.0
    operator: str = ""
    call: int = -1
    rank: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Side:
    """One step of one recording."""

    calls: Sequence[Call]
    device: str

    @classmethod
    def from_step(cls, step: Step) -> Side:
        """All of its calls; the device is the accelerator, if there is one: a first step may make a whole dataset on
        the host."""
        calls = list(step.calls())
        devices = {output.device.partition(":")[0] for call in calls for output in call.outputs if output is not None}
        return cls(calls, next(iter(sorted(devices - HOST) or sorted(devices)), ""))


def find_causes(reference: Operators, port: Operators, rank: int = 0, *, other_ranks: bool = False) -> list[Cause]:
    """What differs in the first step of both, in the order in which it comes about. With `other_ranks` each rank has a
    part of the batch that is not the other's: data, draws and collectives are not compared then."""
    one, other = reference.rank(rank), port.rank(rank)
    steps = [number for number in one.steps if number in other.files]
    if not steps:
        return []
    found: list[Cause] = []
    forms: set[tuple[str, str]] = set()
    operators = functools.partial(_operators, inside=other_ranks, forms=forms)
    for number in steps[:2]:
        with one.step(number) as first, other.step(number) as second:
            sides = Side.from_step(first), Side.from_step(second)
            looks: tuple[Callable[[int, Side, Side], Iterator[Cause]], ...] = (
                (_arguments, operators, _updates)
                if other_ranks
                else (_data, _arguments, operators, _draws, _collectives, _updates)
            )
            if number == steps[0]:  # later ones are what training made of them, with the rounding of each machine
                found += _weights(number, *sides)
            for look in looks:
                found += look(number, *sides)
            if number == steps[0]:
                found += _settings(reference.recording, port.recording)
        if found:
            break
    return found


def _inputs(side: Side) -> Iterator[tuple[Call, Tensor]]:
    """The tensors that no call of the step has made, as they are first read, in order."""
    made: set[int] = set()
    seen: set[int] = set()
    for call in side.calls:
        for one in call.inputs:
            if one is not None and one.storage not in made and one.storage not in seen:
                seen.add(one.storage)
                yield call, one
        made.update(output.storage for output in call.outputs if output is not None)


def _weights(number: int, one: Side, other: Side) -> Iterator[Cause]:
    sides = [{tensor.name: tensor for _, tensor in _inputs(side) if tensor.name} for side in (one, other)]
    apart = {
        name: by
        for name, tensor in sides[0].items()
        if name in sides[1] and (by := measure_distance(tensor, sides[1][name])) > ROUNDING
    }
    if apart:
        names = sorted(apart, key=lambda name: -apart[name])
        yield Cause(
            WEIGHT,
            f"{_list(names)}: not the same numbers before step {number}, {max(apart.values()):.2g} relative",
            number,
            names[0].rpartition(".")[0],
            by=max(apart.values()),
        )


def _data(number: int, one: Side, other: Side) -> Iterator[Cause]:
    # Memory of an accelerator that no call has written was kept from before (FSDP's parameters), or a library wrote it
    # unseen (below vmap); data come to it from the host, and are compared there. All memory of a CPU is on the host.
    seen = number > 0 or one.device in HOST or other.device in HOST
    given = [
        [
            (call, tensor)
            for call, tensor in find_external_tensors(side)
            if tensor.elements > 1 and not (seen and _is_kept(call, tensor))
        ]
        for side in (one, other)
    ]
    for (_, first), (call, second) in _match_tensors(*given):
        if (by := measure_distance(first, second)) > ROUNDING:
            yield Cause(
                DATA,
                f"the model is given other data in step {number}: {second.dtype} {list(second.shape)}",
                number,
                call.module,
                call.source,
                by,
            )
            return


def _is_kept(call: Call, tensor: Tensor) -> bool:
    """Whether a tensor was on an accelerator before the call that reads it."""
    return tensor.device.partition(":")[0] not in HOST and not _draws_numbers(call)


def _match_tensors(
    one: Sequence[tuple[Call, Tensor]], other: Sequence[tuple[Call, Tensor]]
) -> Iterator[tuple[tuple[Call, Tensor], tuple[Call, Tensor]]]:
    """Pairs in order, of those types and shapes of which both have as many: others are not known to be the same."""
    known, same = ([(tensor.dtype, tuple(tensor.shape)) for _, tensor in side] for side in (one, other))
    counts = Counter(known), Counter(same)
    waiting: dict[Any, list[tuple[Call, Tensor]]] = {}
    for kind, first in zip(known, one, strict=True):
        waiting.setdefault(kind, []).append(first)
    for kind, second in zip(same, other, strict=True):
        if counts[0][kind] == counts[1][kind]:
            yield waiting[kind].pop(0), second


def find_external_tensors(side: Side) -> Iterator[tuple[Call, Tensor]]:
    """What comes from the host or out of a draw beside the model, in the order of its use."""
    for call, tensor in _inputs(side):
        if call.phase == "forward" and not tensor.name and not _is_generator_state(call, tensor):
            yield call, tensor
    for call in side.calls:
        if _draws_numbers(call) and not call.module:
            yield from ((call, tensor) for tensor in call.outputs if tensor is not None)


def _is_generator_state(call: Call, tensor: Tensor) -> bool:
    """Whether it is the state of a random generator, which `torch.utils.checkpoint` keeps and puts back: bytes on the
    host that nothing computes with. One stream on each device is as it should be."""
    kept = strip_namespace(call) in ("detach", "clone", "_to_copy", "copy_")
    return kept and tensor.dtype == "uint8" and tensor.device == "cpu" and tensor.shape in STATES


def _draws_numbers(call: Call) -> bool:
    return any(word in strip_namespace(call) for word in DRAWS) and "backward" not in call.name


def _arguments(number: int, one: Side, other: Side) -> Iterator[Cause]:
    forward = [select_significant_forward(side.calls, alike=False) for side in (one, other)]
    updates = [
        # The shapes of new memory are no hyper-parameters: FSDP's shards are allocated in the order of each device.
        [call for call in side.calls if call.phase == "optimizer" and strip_namespace(call) not in MOVES]
        for side in (one, other)
    ]
    for first, second in (*match_calls(*forward), *match_calls(*updates)):
        if first is None or second is None or first.overload != second.overload:
            continue
        shapes = [[t.shape for t in call.inputs if t is not None] for call in (first, second)]
        if shapes[0] != shapes[1]:
            continue
        for place, (a, b) in enumerate(zip(first.arguments, second.arguments, strict=False)):
            if _plain(a) and _plain(b) and not _equal(a, b):
                yield Cause(
                    HYPER_PARAMETER,
                    f"{second.name} in {second.module or f'the {second.phase} pass'} is given {_word(b)} as its "
                    f"argument {place}, {_word(a)} in the reference",
                    number,
                    second.module,
                    second.source,
                )
                return
    yield from _update_numbers(number, *updates)


def _update_numbers(number: int, one: Sequence[Call], other: Sequence[Call]) -> Iterator[Cause]:
    """What the optimizers compute with, where one updates all parameters in a call and the other each in its own: the
    numbers are the same, whatever the form of the operators."""
    sides = [_numbers_by_name(calls) for calls in (one, other)]
    for name in sorted(sides[0].keys() & sides[1].keys()):
        theirs, ours = (
            sorted(value for value in mine[name] if not any(_equal(value, known) for known in yours[name]))
            for mine, yours in (sides, sides[::-1])
        )
        if theirs and ours:
            yield Cause(
                HYPER_PARAMETER,
                f"{name} in the optimizer pass computes with {_words(ours)}, with {_words(theirs)} in the reference",
                number,
            )
            return


def _numbers_by_name(calls: Sequence[Call]) -> dict[str, set[float]]:
    """By operator, whether it writes in place or takes a list or not, the fractions that it is given, without 0, 1 and
    -1: one form of an operator writes these factors, another leaves them out."""
    found: dict[str, set[float]] = {}
    for call in calls:
        name = strip_namespace(call).removeprefix("_foreach_").removesuffix("_")
        found.setdefault(name, set()).update(value for value in _fractions(call.arguments) if abs(value) not in (0, 1))
    return found


def _fractions(value: Any) -> Iterator[float]:
    if isinstance(value, float):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _fractions(one)


def _words(values: Sequence[float]) -> str:
    return ", ".join(map(_word, values[:NAMED]))


def _plain(value: Any) -> bool:
    """What says how to compute: a number, a truth value, a word, or a list of them."""
    return (
        value is None
        or isinstance(value, (bool, int, float, str))
        or (isinstance(value, list) and all(map(_plain, value)))
    )


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, (int, float)):
        return math.isclose(one, other, rel_tol=1e-9)
    return bool(one == other)


def _word(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else repr(value)


def _operators(number: int, one: Side, other: Side, *, inside: bool, forms: set[tuple[str, str]]) -> Iterator[Cause]:
    """`inside`: of modules only, without what averages gradients beside the model. `forms` has the modules and the
    operators for which the other recording was seen to call others that give the same: in a later step training has
    taken the numbers apart."""
    alike = one.device != other.device
    calls = [
        [call for call in select_significant_forward(side.calls, alike=alike) if call.module or not inside]
        for side in (one, other)
    ]
    phase: Phase | None = None  # asked only where something is missing
    for first, second in match_calls(*calls):
        call = first or second
        if call is not None and (first is None or second is None) and not _draws_numbers(call):
            if (call.module, call.name) in forms:
                continue
            phase = phase or Phase(number, "forward", one.calls, other.calls)
            if call.index in phase.alike[0 if second is None else 1]:
                forms.add((call.module, call.name))
                continue
            where = "only the reference calls" if second is None else "the reference does not call"
            yield Cause(
                OPERATOR,
                f"{where} {call.name} in {call.module or 'no module'} ({call.source or 'no source'})",
                number,
                call.module,
                call.source,
            )
            return


def _draws(number: int, one: Side, other: Side) -> Iterator[Cause]:
    drawn = [[call for call in side.calls if call.module and _draws_numbers(call)] for side in (one, other)]
    if [strip_namespace(call) for call in drawn[0]] != [strip_namespace(call) for call in drawn[1]]:
        return
    for first, second in zip(*drawn, strict=True):
        masks = [call.outputs[-1] if call.outputs else None for call in (first, second)]
        if masks[0] is not None and masks[1] is not None and measure_distance(masks[0], masks[1]) > ROUNDING:
            yield Cause(
                RANDOM,
                f"{second.name} in {second.module} draws other numbers in step {number}",
                number,
                second.module,
                second.source,
            )
            return


def _collectives(number: int, one: Side, other: Side) -> Iterator[Cause]:
    counts = [Counter(call.name for call in side.calls if call.name.startswith("c10d::")) for side in (one, other)]
    for name in sorted(counts[0].keys() | counts[1].keys()):
        if counts[0][name] != counts[1][name]:
            yield Cause(
                COLLECTIVE,
                f"{name} is called {counts[1][name]} times in step {number}, {counts[0][name]} times in the reference",
                number,
            )


def _updates(number: int, one: Side, other: Side) -> Iterator[Cause]:
    """Parameters that only the reference's optimizer writes."""
    sets = [
        {
            tensor.name
            for call in side.calls
            if call.phase == "optimizer"
            for tensor in call.inputs
            if tensor is not None and tensor.name
        }
        for side in (one, other)
    ]
    missing = sorted(sets[0] - sets[1])
    if missing and sets[1]:
        yield Cause(
            OPERATOR,
            f"{_list(missing)}: not updated in step {number}, where the reference's optimizer does",
            number,
            missing[0].rpartition(".")[0],
        )


def _settings(reference: Recording, port: Recording) -> Iterator[Cause]:
    """Hyper-parameters that the optimizers were seen with."""
    both = [
        {(event["optimizer"], event["step"]): event["groups"] for event in recording.of_kind("settings")}
        for recording in (reference, port)
    ]
    for key in sorted(both[0].keys() & both[1].keys()):
        for place, (a, b) in enumerate(zip(both[0][key], both[1][key], strict=False)):
            apart = [name for name in a if name in b and not _equal(a[name], b[name])]
            if apart:
                name = apart[0]
                yield Cause(
                    HYPER_PARAMETER,
                    f"optimizer {key[0]} has {name} {_word(b[name])} in its group {place}, {_word(a[name])} in "
                    "the reference",
                    key[1],
                )
                return


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
