"""Attention in float64, one query at a time: what flash_attn's and xformers' stand-ins are measured by."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

DEVICES = ("cpu", "npu")
TOLERANCE = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def exact(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sees: Callable[[int, int], bool],
    scale: float | None = None,
    bias: Tensor | None = None,
    softcap: float = 0.0,
) -> Tensor:
    """(batch, sequence, heads, width) in float64; `sees(i, j)` says whether query i sees key j."""
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    group = query.shape[2] // key.shape[2]
    rows = []
    for i in range(query.shape[1]):
        seen = [j for j in range(key.shape[1]) if sees(i, j)]
        if not seen:
            rows.append(query[:, i] * 0)
            continue
        keys = key[:, seen].repeat_interleave(group, 2)
        values = value[:, seen].repeat_interleave(group, 2)
        scores = torch.einsum("bhd,bjhd->bhj", query[:, i], keys) * scale
        scores = softcap * (scores / softcap).tanh() if softcap else scores
        scores = scores if bias is None else scores + bias[:, :, i, seen]
        rows.append(torch.einsum("bhj,bjhd->bhd", scores.softmax(-1), values))
    return torch.stack(rows, 1)


def random(*shape: int, seed: int, dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(dtype)


def check(
    function: Callable[..., Tensor], reference: Callable[..., Tensor], operands: list[Tensor], device: str
) -> None:
    """Compare the results and the gradients of all operands, both with the same direction."""
    given = [tensor.to(device, copy=True).requires_grad_() for tensor in operands]
    leaves = [tensor.double().requires_grad_() for tensor in operands]
    output, want = function(*given), reference(*leaves)
    assert output.dtype == operands[0].dtype and output.shape == want.shape
    direction = torch.randn(want.shape, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    output.backward(direction.to(output.dtype).to(device))
    want.backward(direction)
    tolerance = TOLERANCE[operands[0].dtype]
    pairs: list[Any] = [(output, want), *((a.grad, b.grad) for a, b in zip(given, leaves, strict=True))]
    for got, right in pairs:
        right = torch.zeros_like(got, dtype=torch.float64, device="cpu") if right is None else right.detach()
        error = (got.detach().cpu().double() - right).abs().max()
        assert error <= tolerance * max(1.0, float(right.abs().max())), float(error)
