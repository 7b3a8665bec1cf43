"""movement/aclop_array.cpp: what torch_npu still sends through aclopCompileAndExecute."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
import torch_npu
from oracle import DEVICE, check, layouts, place, random

X = random(3, 4, 5)


def legacy_calls() -> int:
    torch.npu.synchronize()
    return Path(os.environ["VNPU_TRACE"]).read_text(encoding="utf-8").count("call aclopCompileAndExecute")


def test_a_number_before_a_tensor() -> None:
    """CANN has no aclnn call for `number >= tensor`; see unexported.toml."""
    before = legacy_calls()
    x = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    check(lambda t: torch.tensor(2.0).to(t.dtype) >= t, x, dtypes=[torch.float32, torch.float16], grad=False)
    assert legacy_calls() > before


def test_transpose_slice_and_broadcast() -> None:
    for view in layouts(X.float()):
        x = place(view)
        assert torch.equal(torch_npu.npu_transpose(x, (2, 0, 1)).cpu(), view.permute(2, 0, 1))
        assert torch.equal(torch_npu.npu_slice(x, (1, 0, 2), (2, 4, 3)).cpu(), view[1:, :, 2:])
        assert torch.equal(torch_npu.npu_broadcast(x[:1], (3, 4, 5)).cpu(), view[:1].expand(3, 4, 5))


def test_strided_slice() -> None:
    for view in layouts(X.float()):
        x = place(view)
        assert torch.equal(
            torch_npu.npu_indexing(x, [0, 1, 0], [3, 4, 5], [2, 1, 3]).cpu(), view[::2, 1:, ::3]
        )


def test_format_cast_of_base_formats_copies() -> None:
    x = random(2, 3, 4, 5).float()
    assert torch.equal(torch_npu.npu_format_cast(x.to(DEVICE), 0).cpu(), x)
    assert torch.equal(torch_npu.npu_format_cast(x.to(DEVICE), 2).cpu(), x)


@pytest.mark.parametrize("order", [0.5, float("inf"), -float("inf"), 4])
def test_norms_of_unusual_order(order: float) -> None:
    x = X + 0.01
    check(
        lambda t: torch.linalg.vector_norm(t, order, dim=(0, 2)),
        x,
        dtypes=[torch.float32],
        grad=False,
        ulps=16,
    )
