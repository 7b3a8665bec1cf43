"""Inputs for which an ONNX model and PyTorch's are compared: other sizes, other contents, and the user's own."""

from __future__ import annotations

import dataclasses
import zipfile
from collections.abc import Callable, Iterable
from typing import Any

import numpy
import torch

from torchport.export.job import BATCHES, FinalError, Input, Job

SHIFT = 3  # other dynamic axes are tried with so much less
LONGEST = 8  # times the given size: the longest that is tried to take the other way of a branch
NEAR, FAR = 1e-3, 4.0  # factors on normal numbers


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """`batch` replaces a dynamic first size, `shift` is taken off other dynamic ones.

    `length` is a given size and another in its place: axes that were given with equal sizes change together.
    """

    seed: int
    batch: int | None = None
    shift: int = 0
    length: tuple[int, int] | None = None
    kind: str = ""
    sample: str = ""

    def name_inputs(self) -> str:
        """Say how the inputs are special; "" if they are not."""
        return self.kind or self.sample


def _fill_end(tensor: Any) -> Any:
    """Zeros behind the middle of the second axis, as padding is."""
    axis = min(1, tensor.dim() - 1)
    made = tensor.clone()
    half = tensor.shape[axis] // 2
    made.narrow(axis, tensor.shape[axis] - half, half).zero_()
    return made


def _flatten(tensor: Any) -> Any:
    """The same at all places of an image or a sequence, so that all are on one side of a threshold."""
    axis = {3: 1, 4: 2, 5: 2}.get(tensor.dim())
    if axis is None:
        return tensor
    last = tensor.dim() if tensor.dim() > 3 else 2
    return tensor[tuple(slice(0, 1) if axis <= n < last else slice(None) for n in range(tensor.dim()))].expand_as(
        tensor
    )


def _change_few(tensor: Any) -> Any:
    """The other sign at the first places."""
    axis = min(1, tensor.dim() - 1) if tensor.dim() < 4 else tensor.dim() - 1
    made = tensor.clone().movedim(axis, 0)
    made[:1] = -made[:1]
    return made.movedim(0, axis)


# Contents that lead to other counts: by name, of normal numbers, and of integers below a bound.
KINDS: dict[str, tuple[Callable[[Any], Any], Callable[[Any, int], Any]]] = {
    "flat": (lambda x: _flatten(x) * FAR, lambda x, below: x // 2),
    "flat, negated": (lambda x: -_flatten(x) * FAR, lambda x, below: (x + below) // 2),
    "flat but for a few": (lambda x: _change_few(_flatten(x) * FAR), lambda x, below: x * (x == below - 1)),
    "negated but for a few": (lambda x: -_change_few(_flatten(x) * FAR), lambda x, below: x.clamp(min=below - 1)),
    "near zero": (lambda x: x * NEAR, lambda x, below: torch.zeros_like(x)),
    "all positive": (lambda x: x.abs(), lambda x, below: torch.full_like(x, below - 1)),
    "all negative": (lambda x: -x.abs(), lambda x, below: x),
    "large": (lambda x: x * FAR, lambda x, below: x),
    "padded": (_fill_end, lambda x, below: _fill_end(x)),
}


def list_sizes(job: Job) -> list[Case]:
    """Batches of 1, 3 and 8, and other lengths once; with static sizes, other inputs of the same sizes."""
    if not any(one.dynamic for one in job.inputs):
        return [Case(1 + number) for number in range(len(BATCHES))]
    cases = [Case(1 + number, batch) for number, batch in enumerate(BATCHES)]
    if any(set(one.dynamic) - {0} for one in job.inputs):
        cases.append(Case(1 + len(BATCHES), BATCHES[1], SHIFT))
    return cases


def list_kinds() -> list[Case]:
    """Other contents, in the batch that was given; each of two seeds."""
    return [Case(11 + number, kind=kind) for number in range(2) for kind in KINDS]


def list_lengths(job: Job, constants: set[int]) -> list[Case]:
    """Sizes on both sides of the numbers that sizes were compared with; 1 and twice the given ones among them."""
    dynamic = [(axis, one.shape[axis]) for one in job.inputs for axis in one.dynamic]
    lengths = dict.fromkeys(size for axis, size in dynamic if axis)
    first = max((size for axis, size in dynamic if not axis), default=0)
    near = sorted({1, *(number + step for number in constants for step in (-1, 0, 1))})
    cases = [
        Case(31 + n, length=(given, n)) for given in lengths for n in (*near, 2 * given) if 0 <= n <= LONGEST * given
    ]
    if first:
        cases += [Case(31 + n, n) for n in near if 0 < n <= LONGEST * max(first, max(BATCHES)) and n not in BATCHES]
    return cases


def make_inputs(case: Case, job: Job) -> list[Any]:
    """A tensor for each input. Raises FinalError for a sample that does not fit."""
    if case.sample:
        return _read_sample(case.sample, job)
    return [make_sample(one, case, job.half) for one in job.inputs]


def make_sample(one: Input, case: Case, half: bool) -> Any:
    """A tensor for the input."""
    generator = torch.Generator().manual_seed(case.seed)
    sizes = [_choose_size(one, axis, case) for axis in range(len(one.shape))]
    dtype = getattr(torch, one.dtype)
    numbers, integers = KINDS.get(case.kind, (None, None))
    if dtype.is_floating_point:
        made = torch.randn(sizes, generator=generator)
        made = (numbers(made) if numbers and sizes else made).to(dtype)
        return made.half() if half and dtype == torch.float32 else made
    whole = torch.randint(0, one.below, sizes, generator=generator)
    return (integers(whole, one.below) if integers and sizes else whole).to(dtype)


def describe_sizes(given: Iterable[Any]) -> str:
    """The sizes of tensors, such as "3x224x224 3"."""
    return " ".join("x".join(map(str, tensor.shape)) or "scalar" for tensor in given)


def _choose_size(one: Input, axis: int, case: Case) -> int:
    given = one.shape[axis]
    if axis not in one.dynamic:
        return given
    if axis == 0:
        return case.batch or given
    if case.length is not None and case.length[0] == given:
        return case.length[1]
    return max(1, given - case.shift)


def _read_sample(path: str, job: Job) -> list[Any]:
    names = [one.name for one in job.inputs]
    try:
        with numpy.load(path, allow_pickle=False) as arrays:
            if isinstance(arrays, numpy.ndarray) or sorted(arrays.files) != sorted(names):
                raise FinalError(
                    f"--sample {path} does not hold the inputs {', '.join(names)}",
                    hint="numpy.savez(FILE, NAME=array, ...) writes one, with a name for each --input.",
                )
            tensors = [torch.from_numpy(arrays[name]) for name in names]
    except (OSError, ValueError, EOFError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        raise FinalError(
            f"--sample {path} cannot be read: {error}", hint="It is an .npz file of numpy.savez, without objects."
        ) from error
    made = []
    for one, tensor in zip(job.inputs, tensors, strict=True):
        if tensor.dim() != len(one.shape) or any(
            size != wanted and axis not in one.dynamic
            for axis, (size, wanted) in enumerate(zip(tensor.shape, one.shape, strict=True))
        ):
            raise FinalError(
                f"--sample {path}: {one.name} is {list(tensor.shape)}, and --input says {list(one.shape)}",
                hint="Only dynamic axes may have other sizes (--dynamic).",
            )
        dtype = torch.float16 if job.half and one.dtype == "float32" else getattr(torch, one.dtype)
        made.append(tensor.to(dtype))
    return made
