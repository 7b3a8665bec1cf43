"""Tensors on the NPU for a call: floating-point ones hold ones, indices zeros."""

from __future__ import annotations

import torch

HALF, LONG, INT, BOOL, BYTE = torch.float16, torch.int64, torch.int32, torch.bool, torch.uint8
F32, CHAR = torch.float32, torch.int8


def f(*shape: int, dtype: torch.dtype = F32) -> torch.Tensor:
    """Ones on the NPU."""
    return torch.ones(shape, dtype=dtype, device="npu")


def z(*shape: int, dtype: torch.dtype = LONG) -> torch.Tensor:
    """Zeros on the NPU: indices, classes, counts."""
    return torch.zeros(shape, dtype=dtype, device="npu")


def b(*shape: int) -> torch.Tensor:
    return f(*shape, dtype=BOOL)


def several(*shapes: tuple[int, ...]) -> list[torch.Tensor]:
    return [f(*shape) for shape in shapes or ((2, 3), (4,))]
