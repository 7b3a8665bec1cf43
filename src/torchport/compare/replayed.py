"""The process that computes recorded operators again: needs torch (CPU). `replay` starts it.

Its standard input is a job as JSON (`recording`, `ranks` with their steps, `settings`, `tanh`), its standard output a
line of JSON for each call.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torchport.compare import indices, scores
from torchport.compare.aftermath import Aftermath
from torchport.compare.precision import get_declared_error
from torchport.compare.scores import Score
from torchport.errors import TorchportError
from torchport.record import oracles
from torchport.record.operators import layout
from torchport.record.operators.mode import UNWRITTEN
from torchport.record.operators.reading import Call, Operators, Step, Tensor
from torchport.record.operators.rebuilt import Rebuilt, UnknownCallError, materialize_tensor

JUDGED, VIEW, RANDOM, MEMORY, UNKNOWN = "judged", "view", "random", "memory", "not judged"
# They give memory that nobody has written, or numbers to the host.
NO_RESULT = frozenset(
    f"aten::{name}"
    for name in (
        "empty",
        "empty_like",
        "empty_permuted",
        "empty_strided",
        "new_empty",
        "new_empty_strided",
        "resize_",
        "set_",
        "_local_scalar_dense",
        "promote_types",
        "is_pinned",
        "record_stream",
    )
)
RANDOM_WORDS = (
    "rand",
    "normal_",
    "uniform_",
    "bernoulli",
    "multinomial",
    "exponential_",
    "cauchy_",
    "geometric_",
    "log_normal_",
    "poisson",
    "dropout_gen_mask",
    "_fused_dropout",
)
# Results 1 and 2 are kept for a backward pass. If the module evaluates, the CPU leaves them empty; torch_npu 2.13.0
# fills them, and nothing reads them.
BATCH_NORMS = ("native_batch_norm", "_batch_norm_impl_index", "_native_batch_norm_legit_no_training")
SAVED_BY_BATCH_NORM = (1, 2)
# They change the dtype or the place of numbers and round once, to the nearest: a result has one right value.
CASTS = frozenset({"_to_copy", "copy_", "_npu_dtype_cast", "npu_dtype_cast", "_npu_dtype_cast_backward"})


def main() -> int:
    """Do the job on stdin."""
    job = json.load(sys.stdin)
    out = os.fdopen(os.dup(1), "w", buffering=1 << 16)
    os.dup2(2, 1)
    import torch

    torch.set_grad_enabled(False)
    try:
        for row in replay_steps(torch, job):
            out.write(json.dumps(row) + "\n")
    except TorchportError as error:
        out.write(json.dumps({"error": error.message, "hint": error.hint}) + "\n")
    out.close()
    return 0


def replay_steps(torch: Any, job: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A row for each call of the job's steps."""
    recorded = Operators.read(job["recording"])
    replayer = Replayer(torch, job["settings"], tanh=job["tanh"])
    for rank, numbers in job["ranks"]:
        process = recorded.rank(rank)
        for number in numbers:
            later = process.step(number + 1) if number + 1 in process.files else None
            with process.step(number) as step:
                try:
                    yield from ({"rank": rank, **row} for row in replayer.judge_step(number, step, later))
                finally:
                    if later is not None:
                        later.close()


class Replayer:
    """Judges calls. `settings` are those of the device, `tanh` whether the CPU computed GELU as an NPU does."""

    def __init__(self, torch: Any, settings: Mapping[str, Any], *, tanh: bool) -> None:
        self.torch = torch
        self._settings = settings
        self._tanh = tanh

    def judge_step(self, number: int, step: Step, later: Step | None) -> Iterator[dict[str, Any]]:
        """A row for each call of a step that has results."""
        aftermath = Aftermath(step, later)
        for call in step.calls():
            if call.name.startswith("module::"):
                continue
            row = self.judge_call(call, aftermath)
            if row.get("wrong") and any(change.call == call.index for change in step.changes):
                # Its inputs were written over before it, or behind it.
                other = self.judge_call(step.call(call.index, changed=True), aftermath)
                row = row if other.get("wrong") else other
            yield {"step": number, **_named(call), **row}

    def judge_call(self, call: Call, aftermath: Aftermath) -> dict[str, Any]:
        """What is found of one call."""
        if call.name in NO_RESULT:
            return {"kind": MEMORY}
        try:
            return self._call(call, aftermath)
        except UnknownCallError as error:
            return {"kind": UNKNOWN, "why": str(error), "bytes": self._given(call)}
        except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError, AttributeError) as error:
            # Of an operator that the CPU has otherwise: what it was given it cannot take.
            why = " ".join(str(error).split())[:160]
            return {"kind": UNKNOWN, "why": f"the CPU refuses it: {why}", "bytes": self._given(call)}

    def _given(self, call: Call) -> int:
        """The bytes of what a call gives and of what it writes."""
        return _bytes([*call.outputs, *_unshown(self.torch, call)])

    def _call(self, call: Call, aftermath: Aftermath) -> dict[str, Any]:
        short = call.name.partition("::")[2]
        recorded = self._recorded(call, aftermath)
        size = _bytes(recorded)
        reference = oracles.find_reference(call.name, on_npu=_is_on_npu(call, recorded), tanh=self._tanh)
        if reference is None and any(word in short for word in RANDOM_WORDS):
            return {"kind": RANDOM, "bytes": size}
        shown = [one for one in recorded if one is not None]
        if shown and all(one.reason == UNWRITTEN and not one.has_content for one in shown):
            return {"kind": MEMORY}  # a view of memory that nobody has written
        if not any(one is not None and one.has_content for one in recorded):
            why = next((one.reason for one in recorded if one is not None and one.reason), "nobody saw its result")
            return {"kind": UNKNOWN, "why": why, "bytes": size or _bytes(_written(self.torch, call))}
        cpu = self._computed(call, recorded, reference, wide=False)
        found: list[Score] = []
        lost = ""
        missing = 0
        wide: list[Any] | None = None
        noisy: list[Any] | None = None
        for place, one in enumerate(recorded):
            if one is None or not one.has_content or place >= len(cpu) or cpu[place] is None:
                missing += 0 if one is None or not one.elements else _size(one)
                continue
            if place in SAVED_BY_BATCH_NORM and short.endswith(BATCH_NORMS) and cpu[place].numel() == 0:
                continue
            got = materialize_tensor(self.torch, one, wide=False)
            if _same(self.torch, got, cpu[place]):
                found.append(Score(1.0, 0.0, 0.0, 0.0, 0.0))
                continue
            if short in indices.OPERATORS and got.dtype == self.torch.int64:
                found += self._score_indices(call, recorded, place, got, cpu[place])
                continue
            if short in CASTS or not (got.is_floating_point() or got.is_complex()):
                found.append(scores.score_exact(self.torch, got, cpu[place]))
                continue
            if wide is None:
                wide = self._computed(call, recorded, reference, wide=True)
            limit, _ = get_declared_error(call.name, one.dtype, one.device, self._settings)
            own, exact = _as_gradient(short, got, cpu[place]), _as_gradient(short, got, wide[place])
            saturates = bool(self._settings.get("saturates"))
            terms = _count_terms(call, one)
            score = scores.score_result(self.torch, got, own, exact, limit, terms, saturates=saturates)
            if score.wrong and not score.spoilt:
                if noisy is None:
                    noisy = self._computed(call, recorded, reference, wide=True, noise=scores.NOISE)
                moved = _as_gradient(short, got, noisy[place])
                score = scores.adjust_for_conditioning(score, exact, moved, one.dtype)
            found.append(score)
            lost = lost or (scores.find_narrower_dtype(self.torch, got) if score.wrong else "")
        if any(score.wrong for score in found) and self._of_chance(call, recorded, reference, cpu):
            raise UnknownCallError("it reads memory that nobody has written")
        return {**self._row(found, size, missing, _is_view(call, recorded)), "lost": lost}

    def _score_indices(
        self, call: Call, recorded: Sequence[Tensor | None], place: int, got: Any, cpu: Any
    ) -> list[Score]:
        """Of the indices that are result `place`, by the values beside them."""
        beside = recorded[0] if place == 1 else None
        values = (
            materialize_tensor(self.torch, beside, wide=False) if beside is not None and beside.has_content else None
        )
        name = call.name.partition("::")[2] + (f".{call.overload}" if call.overload not in ("", "default") else "")
        score = indices.score_indices(self.torch, name, Rebuilt(self.torch, call, wide=False).args, got, values, cpu)
        return [] if score is None else [score]

    def _of_chance(self, call: Call, recorded: Sequence[Tensor | None], reference: Any, cpu: Sequence[Any]) -> bool:
        """Whether the results depend on what is in memory that nobody has written: no operator is to blame for that."""
        if not any(one is not None and one.reason == UNWRITTEN for one in call.inputs):
            return False
        other = self._computed(call, recorded, reference, wide=False, fill=1.0)
        both = zip(cpu, other, strict=True)
        return not all(a is b or (a is not None and _same(self.torch, a, b)) for a, b in both)

    def _row(self, found: Sequence[Score], size: int, missing: int, view: bool) -> dict[str, Any]:
        if not found:
            return {"kind": UNKNOWN, "why": "its results have a layout of the device's own", "bytes": size}
        place, worst = max(enumerate(found), key=lambda one: (one[1].wrong, one[1].score))
        return {
            "kind": VIEW if view else JUDGED,
            "score": worst.score,
            "error": worst.error,
            "bound": worst.bound,
            "cpu": worst.cpu,
            "of_one": worst.of_one,
            "wrong": worst.wrong,
            "spoilt": worst.spoilt,
            "result": place,
            "declared": worst.declared,
            "bytes": size,
            "unseen": missing,
        }

    def _recorded(self, call: Call, aftermath: Aftermath) -> list[Tensor | None]:
        """The results, then what arguments held after the call that no result shows."""
        after = {(one.storage, one.offset): one for one in call.written if one is not None}
        found = (
            after.get((one.storage, one.offset)) or aftermath.find_value_after(call, one)
            for one in _unshown(self.torch, call)
        )
        return [*call.outputs, *found]

    def _computed(
        self,
        call: Call,
        recorded: Sequence[Tensor | None],
        reference: Any,
        *,
        wide: bool,
        noise: float = 0.0,
        fill: float = 0.0,
    ) -> list[Any]:
        """The results again, in the order of `_recorded`; memory that nobody has written is full of `fill`."""
        torch = self.torch
        single = call.name in oracles.SINGLE_NUMBERS and _is_on_npu(call, recorded)
        rebuilt = Rebuilt(torch, call, wide, noise, fill, single=single)
        if reference is not None:
            extra: dict[str, Any] = {}
            code = reference.__code__
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            if "made" in names:
                extra["made"] = [
                    None if one is None or not one.has_content else materialize_tensor(torch, one, wide=False)
                    for one in recorded
                ]
            if "results" in names:
                extra["results"] = call.results
            found = list(reference(torch, *rebuilt.args, **extra))
            # One for each result of the schema; of those that are undefined nothing was recorded.
            return order_results(torch, call, found) if len(found) == len(_flat(call.results)) else found
        operator = _operator(torch, call)
        positional, named = [], {}
        for argument, value in zip(operator._schema.arguments, rebuilt.args, strict=True):
            value = None if argument.name == "pin_memory" else value
            if argument.kwarg_only:
                named[argument.name] = value
            else:
                positional.append(value)
        results = operator(*positional, **named)
        written = (rebuilt.rebuild_tensor(one) for one in _unshown(torch, call))
        return [*order_results(torch, call, results), *written]


def order_results(torch: Any, call: Call, results: Any) -> list[Any]:
    """What an operator gave, in the order of the call's outputs: an undefined result is one of them, or none."""
    made: list[Any] = [None] * len(call.outputs)
    for word, value in zip(_flat(call.results), _flat(results), strict=False):
        if isinstance(word, dict) and "t" in word and isinstance(value, torch.Tensor):
            made[word["t"]] = value
    return made


def _named(call: Call) -> dict[str, Any]:
    """What call it was."""
    names = [one.name for one in (*call.inputs, *call.outputs) if one is not None and one.name]
    return {
        "call": call.index,
        "operator": call.name,
        "overload": call.overload,
        "phase": call.phase,
        "module": call.module,
        "function": call.function,
        "source": call.source,
        "names": list(dict.fromkeys(names)),
    }


def _operator(torch: Any, call: Call) -> Any:
    space, _, name = call.name.partition("::")
    packet = getattr(getattr(torch.ops, space), name, None) if hasattr(torch.ops, space) else None
    found = getattr(packet, call.overload or "default", None) if packet is not None else None
    if found is None:
        raise UnknownCallError("there is no reference for it here, and the CPU does not have it")
    return found


def _written(torch: Any, call: Call) -> list[Tensor]:
    """The inputs that the call writes, in order."""
    try:
        arguments = _operator(torch, call)._schema.arguments
    except (UnknownCallError, AttributeError):
        return []
    names = ("running_mean", "running_var") if call.name.endswith("native_batch_norm") and call.arguments[5] else ()
    found = []
    for argument, value in zip(arguments, call.arguments, strict=False):
        if argument.name in names or (argument.alias_info is not None and argument.alias_info.is_write):
            for one in _flat(value):
                if isinstance(one, dict) and "t" in one and call.inputs[one["t"]] is not None:
                    found.append(call.inputs[one["t"]])
    return [one for one in found if one is not None]


def _unshown(torch: Any, call: Call) -> list[Tensor]:
    """The inputs that the call writes and that no output shows, in order."""
    shown = {(one.storage, one.offset) for one in call.outputs if one is not None}
    return [one for one in _written(torch, call) if (one.storage, one.offset) not in shown]


def _count_terms(call: Call, result: Tensor) -> float:
    """How many numbers a call may sum for one of a result's; an optimizer sums none."""
    if call.phase == "optimizer":
        return 1.0
    given = max((one.elements for one in call.inputs if one is not None), default=0)
    return given / max(1, result.elements)


def _as_gradient(name: str, got: Any, right: Any) -> Any:
    """A gradient in the shape that the device gave it, where that is the sum of what was broadcast: autograd takes
    both, and sums the larger one itself (`_prelu_kernel_backward` gives a weight's gradient reduced on an NPU)."""
    if got.shape == right.shape or not name.endswith("_backward") or got.dim() > right.dim():
        return right
    padded = (1,) * (right.dim() - got.dim()) + tuple(got.shape)
    fits = all(one in (1, other) for one, other in zip(padded, right.shape, strict=True))
    return right.sum_to_size(got.shape) if fits else right


def _flat(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [one for part in value for one in _flat(part)]
    return [value]


def _is_on_npu(call: Call, recorded: Sequence[Tensor | None]) -> bool:
    return any(one is not None and one.device.startswith("npu") for one in (*call.inputs, *recorded))


def _same(torch: Any, one: Any, other: Any) -> bool:
    """Bit for bit, whatever NaN it is."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if torch.equal(one, other):
        return True
    nans = one.isnan()
    return bool(nans.any() and torch.equal(nans, other.isnan()) and torch.equal(one[~nans], other[~nans]))


def _is_view(call: Call, recorded: Sequence[Tensor | None]) -> bool:
    """Whether its results are its inputs' storage, unwritten."""
    given = {(one.storage, one.version) for one in call.inputs if one is not None}
    made = [one for one in recorded if one is not None]
    return bool(made) and all(one.storage >= 0 and (one.storage, one.version) in given for one in made)


def _bytes(tensors: Sequence[Tensor | None]) -> int:
    """Of floating-point results."""
    return sum(_size(tensor) for tensor in tensors if tensor is not None)


def _size(one: Tensor) -> int:
    kind = layout.DTYPES.get(one.dtype)
    return one.elements * kind.size if kind is not None and kind.kind in ("float", "complex") else 0


if __name__ == "__main__":
    sys.exit(main())
