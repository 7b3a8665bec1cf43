"""Whether an operator computes the same wherever its operands lie in memory: for judge.py, under "layouts".

An operator's samples are laid out in other ways, the cotangents as well, and results and gradients must be those of
contiguous tensors, but for the order of sums. Where one unit in the last place of the operands moves them as far, the
sample says nothing. CANN's C API knows no negative bit: views that have it and are not resolved are torch_npu's.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._pytree import tree_flatten, tree_map

Layout = Callable[[torch.Tensor], torch.Tensor]
Computed = tuple[list[torch.Tensor], list[torch.Tensor | None]]
DTYPES = (torch.float32, torch.int64)
SAMPLES = 4
CLOSE = 1e-5  # of the largest value of a tensor: float32 sums of some thousand terms in another order


def moved(tensor: torch.Tensor, source: int, to: int) -> torch.Tensor:
    """The same values, with the elements of dimension `source` where those of dimension `to` would lie."""
    there = tensor.movedim(source, to).clone(memory_format=torch.contiguous_format)
    return there.movedim(to, source)


def stepped(tensor: torch.Tensor) -> torch.Tensor:
    wide = tensor.new_zeros(*tensor.shape[:-1], 2 * tensor.shape[-1])
    view = wide[..., ::2]
    view.copy_(tensor)
    return view


def behind(tensor: torch.Tensor) -> torch.Tensor:
    view = tensor.new_zeros(tensor.numel() + 3)[3:].view(tensor.shape)
    view.copy_(tensor)
    return view


def negated(tensor: torch.Tensor) -> torch.Tensor:
    """A view with the negative bit, which torch resolves before a kernel sees it."""
    return torch._neg_view(tensor.neg()) if tensor.is_floating_point() else tensor


LAYOUTS: dict[str, tuple[int, Layout]] = {  # the fewest dimensions
    "channels last": (3, lambda tensor: moved(tensor, 1, -1)),
    "transposed": (2, lambda tensor: moved(tensor, -2, -1)),
    "first last": (3, lambda tensor: moved(tensor, 0, -1)),
    "stepped": (1, stepped),
    "behind": (0, behind),
    "negative": (0, negated),
}


def one_place_off(tensor: torch.Tensor) -> torch.Tensor:
    """No layout: the values are next to those of `tensor`."""
    return tensor.nextafter(2 * tensor) if tensor.is_floating_point() else tensor


def expanded(tensor: torch.Tensor) -> torch.Tensor:
    """Other values: the first along the last dimension."""
    return tensor[..., :1].expand(tensor.shape) if tensor.dim() and tensor.shape[-1] else tensor


def laid_out(value: Any, layout: Layout, least: int, device: str) -> Any:
    def one(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return device if isinstance(leaf, torch.device) or (isinstance(leaf, str) and leaf == "cpu") else leaf
        there = leaf.detach().to(device, copy=True).contiguous()
        there = layout(there) if leaf.dim() >= least else there
        return there.detach().requires_grad_(leaf.requires_grad)

    return tree_map(one, value)


def compute(
    op: OpInfo, sample: SampleInput, layout: Layout = torch.clone, least: int = 0, device: str = "npu"
) -> Computed:
    arguments, options = laid_out(((sample.input, *sample.args), sample.kwargs), layout, least, device)
    torch.manual_seed(0)
    result = sample.output_process_fn_grad(op(*arguments, **options))
    outputs = _tensors(result)
    leaves = [leaf for leaf in _tensors((arguments, options)) if leaf.requires_grad]
    roots = [out for out in outputs if out.requires_grad]
    values = [out.detach().cpu() for out in outputs]
    if not roots or not leaves:
        return values, []
    generator = torch.Generator().manual_seed(1)
    cotangents = [
        laid_out(torch.rand(out.shape, generator=generator).to(out.dtype), layout, least, device) for out in roots
    ]
    gradients = torch.autograd.grad(roots, leaves, cotangents, allow_unused=True)
    return values, [None if one is None else one.cpu() for one in gradients]


def judge(
    op: OpInfo,
    classify: Callable[[Exception], tuple[str, str]],
    on_npu_only: Callable[[], AbstractContextManager[object]],
) -> tuple[str, str]:
    """Status and reason; `classify` gives those of a refusal. What torch_npu would compute on the CPU raises in
    `on_npu_only`."""
    refused = "NOT_OFFERED", "op_db: nothing that gives the same twice"
    tried = 0
    for dtype in DTYPES:
        if dtype not in op.supported_dtypes("cpu"):
            continue
        grad = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
        torch.manual_seed(0)
        try:
            every = op.sample_inputs("cpu", dtype, requires_grad=grad)
            samples = [*itertools.islice(filter(strided, every), SAMPLES)]
        except Exception as problem:  # an OpInfo that cannot make inputs says nothing about a device
            return "NOT_OFFERED", f"op_db: no samples: {type(problem).__name__}"
        for sample in samples:
            for values, layouts in ((sample, LAYOUTS), (first_of_rows(sample), {"expanded": (1, expanded)})):
                try:
                    with on_npu_only():
                        plain, again = compute(op, values), compute(op, values)
                except Exception as refusal:
                    status, reason = classify(refusal)
                    if status == "NOT_OFFERED":  # else the verdicts on dtypes say it
                        refused = status, reason
                    continue
                if not same(plain, again):  # what memory happened to hold
                    continue
                tried += 1
                for name, (least, layout) in layouts.items():
                    problem = differs(op, values, plain, layout, least)
                    if problem is not None:
                        status, reason = classify(problem)
                        return status, f"{reason} ({str(dtype).removeprefix('torch.')}, {name})"
    return ("PASS", "") if tried else refused


def strided(sample: SampleInput) -> bool:
    return all(one.layout == torch.strided for one in _tensors((sample.input, sample.args, sample.kwargs)))


class OtherError(Exception):
    """Other values than those of contiguous tensors."""


def differs(op: OpInfo, sample: SampleInput, plain: Computed, layout: Layout, least: int) -> Exception | None:
    """How, unless it does on the CPU as well: what is asked for are the strides themselves."""
    try:
        found = compute(op, sample, layout, least)
        if same(plain, found) or not same(plain, compute(op, sample, one_place_off)):
            return None
        if layout is negated:
            return RuntimeError("a negative view is taken for what it views")
        problem: Exception = OtherError("other values")
    except Exception as refusal:
        problem = refusal
    try:
        there = same(compute(op, sample, device="cpu"), compute(op, sample, layout, least, "cpu"))
    except Exception:
        return None
    return problem if there else None


def first_of_rows(sample: SampleInput) -> SampleInput:
    """Values that an expanded tensor can hold."""

    def one(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return expanded(leaf).detach().contiguous().requires_grad_(leaf.requires_grad)

    return sample.transform(one)


def same(expected: Computed, actual: Computed) -> bool:
    return all(
        (one is None) == (other is None) and (one is None or other is None or _close(one, other))
        for ones, others in zip(expected, actual, strict=True)
        for one, other in itertools.zip_longest(ones, others)
    )


def _close(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if not (one.is_floating_point() or one.is_complex()):
        return torch.equal(one, other)
    largest = one.abs().nan_to_num(0, 0, 0).max().item() if one.numel() else 0.0
    return torch.allclose(one, other, rtol=0, atol=CLOSE * largest, equal_nan=True)


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_flatten(value)[0] if isinstance(leaf, torch.Tensor)]
