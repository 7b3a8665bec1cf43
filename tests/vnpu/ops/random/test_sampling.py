"""Top-k and top-p, against plain loops."""

import math

import pytest
import torch
import torch_npu
from aclnn import INVALID_ARGUMENT, first_phase, run
from oracle import FLOATS, random


def allowed(row: torch.Tensor, p: float | None, k: int | None) -> torch.Tensor:
    """Where a row of logits may be chosen from."""
    value, index = row.double().sort()
    keep = torch.ones(len(row), dtype=torch.bool)
    if k is not None:
        keep &= value >= value[len(row) - k]
    if p is not None:
        share = torch.softmax(value.masked_fill(~keep, -torch.inf), 0)
        keep &= share.cumsum(0) > 1 - p
        keep[-1] = True
    return torch.zeros(len(row), dtype=torch.bool).scatter_(0, index, keep)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("by", ["p", "k", "both"])
def test_top_k_top_p(dtype: torch.dtype, by: str) -> None:
    logits = torch.randperm(4 * 9, generator=torch.Generator().manual_seed(0)).view(4, 9).to(dtype) / 8
    p = torch.tensor([0.3, 0.9, 1.0, 0.0]).to(dtype) if by != "k" else None
    k = torch.tensor([1, 3, 9, 5], dtype=torch.int32) if by != "p" else None
    out = torch.empty_like(logits, device="npu")
    run("aclnnApplyTopKTopP", logits.npu(), *(None if t is None else t.npu() for t in (p, k)), out)
    for i in range(4):
        keep = allowed(logits[i], None if p is None else float(p[i]), None if k is None else int(k[i]))
        assert torch.equal(out[i].cpu(), logits[i].masked_fill(~keep, -torch.inf)), (i, keep)


def test_top_k_top_p_of_torch_npu() -> None:
    logits, p, k = (random(3, 12).float(), torch.tensor([0.5, 0.9, 0.2]), torch.tensor([3, 5, 7], dtype=torch.int32))
    out = torch_npu.npu_top_k_top_p(logits.npu(), p.npu(), k.npu())
    for i in range(3):
        keep = allowed(logits[i], float(p[i]), int(k[i]))
        assert torch.equal(out[i].cpu(), logits[i].masked_fill(~keep, -torch.inf))


def test_at_least_one_stays() -> None:
    logits, out = torch.tensor([[1.0, 4.0, 2.0], [3.0, 1.0, 2.0]]), torch.zeros(2, 3, device="npu")
    run("aclnnApplyTopKTopP", logits.npu(), None, torch.tensor([0, 7], dtype=torch.int32, device="npu"), out)
    assert out.tolist() == [[-math.inf, 4.0, -math.inf], [3.0, 1.0, 2.0]]


def test_refusals() -> None:
    x = torch.ones(2, 4, device="npu")
    status, message = first_phase("aclnnApplyTopKTopP", x, x[0], None, x)
    assert status == INVALID_ARGUMENT and "shape [4], expected [2]" in message, message
