"""The float64 oracle: one function run on the NPU in the dtype under test and on the CPU in float64.

torch_npu's own tests compare NPU with CPU; here both are ATen, so that would prove plumbing only. The
reference therefore runs in float64 on the *rounded* inputs, and the result must lie within a few units of
the dtype's precision.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
DEVICE = "npu"


def layouts(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """`tensor`'s shape in every memory layout: contiguous, transposed, strided, behind an offset, expanded.

    All hold `tensor`'s values, except the expanded one, which repeats its first column.
    """
    tensor = tensor.contiguous()
    yield tensor
    if tensor.dim() >= 2:
        yield tensor.mT.contiguous().mT
        yield tensor.transpose(0, -1).contiguous().transpose(0, -1)
    if tensor.dim() >= 1:
        gaps = tensor.new_zeros(*tensor.shape, 2)
        gaps[..., 0] = tensor
        yield gaps[..., 0]
    behind = tensor.new_zeros(tensor.numel() + 3)
    behind[3:] = tensor.flatten()
    yield behind[3:].view(tensor.shape)
    if tensor.dim() >= 1 and tensor.shape[-1] > 0:
        yield tensor[..., :1].expand(tensor.shape)


def place(tensor: torch.Tensor, dtype: torch.dtype | None = None, device: str = "") -> torch.Tensor:
    """A copy with the same sizes, strides and offset over a storage of its own."""
    dtype = tensor.dtype if dtype is None else dtype
    length = tensor.untyped_storage().nbytes() // tensor.element_size()
    storage = tensor.detach().as_strided((length,), (1,), 0).to(dtype)
    storage = storage.to(device or DEVICE, copy=True)
    return storage.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())


def random(*shape: int, low: float = -2.0, high: float = 2.0, seed: int = 0) -> torch.Tensor:
    """Uniform float64 values, the same in every run."""
    generator = torch.Generator().manual_seed(seed + sum(shape) * 7919)
    return torch.rand(shape, dtype=torch.float64, generator=generator) * (high - low) + low


def int4(*shape: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Random int4 as int8, and packed: eight to an int32, the first in the lowest bits."""
    values = torch.randint(-8, 8, shape, generator=torch.Generator().manual_seed(seed))
    words = ((values % 16).unflatten(-1, (-1, 8)) * 16 ** torch.arange(8)).sum(-1)
    return values.to(torch.int8), (words - (words >= 2**31) * 2**32).to(torch.int32)


def check(
    function: Callable[..., Any],
    *inputs: Any,
    dtypes: Sequence[torch.dtype] = FLOATS,
    grad: bool = True,
    reference: Callable[..., Any] | None = None,
    scale: float | None = None,
    ulps: float = 2.0,
) -> None:
    """Compare `function(*inputs)` on the NPU, in each dtype, with `reference` (default: `function`) in float64.

    Floating-point tensors among `inputs` (and in lists there) are rounded to the dtype and keep their layout;
    other tensors keep their dtype; anything else is passed as it is. Results may be nested tuples and lists.
    Values may differ by `ulps` times the dtype's eps times (|expected| + `scale`); the default scale is the
    mean magnitude of the expected tensor. A float64 reference result stands for the dtype under test, any
    other dtype must be met exactly, and so must integers, bools, shapes, infinities and NaNs.
    With `grad`, gradients of the floating-point inputs are compared too, wherever the reference has them.
    """
    reference = function if reference is None else reference
    for dtype in dtypes:
        rounded = [_map(value, lambda t, to=dtype: _round(t, to)) for value in inputs]
        exact = [_map(value, lambda t: _leaf(place(t, _wide(t.dtype), "cpu"), grad)) for value in rounded]
        device = [_map(value, lambda t: _leaf(place(t), grad)) for value in rounded]
        expected, actual = _tensors(reference(*exact)), _tensors(function(*device))
        where = f"{_source(function)} in {dtype}"
        assert len(actual) == len(expected), f"{where}: {len(actual)} results, expected {len(expected)}"
        for index, (a, e) in enumerate(zip(actual, expected, strict=True)):
            compare(a, e, dtype, scale=scale, ulps=ulps, where=f"{where}: result {index}")
        differentiable = [e.requires_grad for e in expected]
        if not any(differentiable):
            continue
        where += ": gradient"
        seeds = [_round(random(*e.shape, seed=17) if e.dim() else e.new_tensor(0.75), dtype) for e in expected]
        leaves = [
            (a, e)
            for a, e in zip(_tensors(device), _tensors(exact), strict=True)
            if isinstance(e, torch.Tensor) and e.requires_grad
        ]
        chosen = [i for i, yes in enumerate(differentiable) if yes]
        for i in chosen:
            assert actual[i].requires_grad, f"{where}: result {i} has lost its history"
        gradients = torch.autograd.grad(
            [actual[i] for i in chosen],
            [a for a, _ in leaves],
            [seeds[i].to(DEVICE).to(actual[i].dtype) for i in chosen],
            allow_unused=True,
        )
        exact_gradients = torch.autograd.grad(
            [expected[i] for i in chosen],
            [e for _, e in leaves],
            [seeds[i].to(expected[i].dtype) for i in chosen],
            allow_unused=True,
        )
        for index, (a, e) in enumerate(zip(gradients, exact_gradients, strict=True)):
            assert (a is None) == (e is None), f"{where} of input {index}: {a} where {e} is expected"
            if e is not None:
                compare(a, e, dtype, scale=scale, ulps=2 * ulps, where=f"{where} of input {index}")


def compare(
    actual: Any,
    expected: Any,
    dtype: torch.dtype,
    *,
    scale: float | None = None,
    ulps: float = 2.0,
    where: str = "result",
) -> None:
    """Assert that a result on the NPU is the expected one; see `check`."""
    if not isinstance(expected, torch.Tensor):
        assert actual == expected, f"{where}: {actual}, expected {expected}"
        return
    wanted = _narrow(expected.dtype, dtype)
    assert actual.device.type == DEVICE, f"{where} is on {actual.device}"
    assert actual.dtype == wanted, f"{where} has {actual.dtype}, expected {wanted}"
    assert actual.shape == expected.shape, f"{where} has {tuple(actual.shape)}, expected {tuple(expected.shape)}"
    actual, expected = actual.detach().cpu(), expected.detach()
    if not (wanted.is_floating_point or wanted.is_complex):
        assert torch.equal(actual, expected), f"{where}:\n{actual}\nexpected\n{expected}"
        return
    if wanted.is_complex:
        actual, expected = torch.view_as_real(actual), torch.view_as_real(expected)
        wanted = expected.dtype if wanted == torch.complex128 else torch.float32
    actual, expected = actual.double(), expected.double()
    overflown = expected.to(wanted).double()
    expected = torch.where(overflown.isinf(), overflown, expected)
    finite = expected[expected.isfinite()].abs()
    magnitude = scale if scale is not None else float(finite.mean()) if finite.numel() else 0.0
    info = torch.finfo(wanted)
    allowed = ulps * info.eps * (expected.abs() + magnitude) + ulps * info.smallest_normal * info.eps
    same = (actual == expected) | (actual.isnan() & expected.isnan())
    close = same | (expected.isfinite() & ((actual - expected).abs() <= allowed))
    if not bool(close.all()):
        wrong = (~close).nonzero()
        at = tuple(wrong[0].tolist())
        raise AssertionError(
            f"{where}: {len(wrong)} of {close.numel()} values differ, first at {list(at)}: {float(actual[at])!r}, "
            f"expected {float(expected[at])!r} ± {float(allowed[at]):.3g}"
        )


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.complex128 if dtype.is_complex else torch.float64 if dtype.is_floating_point else dtype


def _narrow(reference: torch.dtype, dtype: torch.dtype) -> torch.dtype:
    """What a reference's dtype stands for when `dtype` is under test."""
    if reference == torch.float64:
        return dtype
    if reference == torch.complex128 and dtype in FLOATS:
        return torch.complex64
    return reference


def _round(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return place(tensor, dtype, "cpu") if tensor.is_floating_point() else tensor


def _leaf(tensor: torch.Tensor, grad: bool) -> torch.Tensor:
    return tensor.requires_grad_(grad and tensor.is_floating_point())


def _map(value: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, list | tuple):
        return type(value)(_map(one, function) for one in value)
    return value


def _tensors(value: Any) -> list[Any]:
    """The results in a flat list: tensors, and numbers as they are."""
    if isinstance(value, list | tuple):
        return [one for each in value for one in _tensors(each)]
    return [value]


def _source(function: Callable[..., Any]) -> str:
    try:
        return " ".join(inspect.getsource(function).split())[:160]
    except (OSError, TypeError):
        return str(function)
