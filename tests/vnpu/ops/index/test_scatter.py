"""index/scatter.cpp: rows from a table, and blocks into lists."""

import pytest
import torch
import torch_npu
from aclnn import INVALID_ARGUMENT, first_phase, run
from oracle import random

TILING_REFUSED = 561002


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool])
def test_gather_rows(dtype: torch.dtype) -> None:
    table = (random(5, 3, 2) * 4).to(dtype)
    index = torch.tensor([[4, 0, 2], [2, 2, 1]])
    out = torch.empty(2, 3, 3, 2, dtype=dtype, device="npu")
    run("aclnnGatherV3", table.npu(), 0, index.npu(), 0, 1, out)
    assert torch.equal(out.cpu(), table[index])
    run("aclnnGatherV3", table.npu().mT.contiguous().mT, 0, index.int().npu(), 0, 1, out)
    assert torch.equal(out.cpu(), table[index])
    assert torch.equal(torch_npu.npu_gather_sparse_index(table.npu(), index.npu()).cpu(), table[index])


@pytest.mark.parametrize(("dim", "batch", "mode"), [(1, 0, 1), (0, 1, 1), (0, 0, 0)])
def test_other_gathers_are_of_other_chips(dim: int, batch: int, mode: int) -> None:
    table, index = torch.ones(2, 3).npu(), torch.zeros(2, dtype=torch.int64).npu()
    out = torch.empty(2, 3).npu()
    assert first_phase("aclnnGatherV3", table, 0, index, 0, 1, out)[0] == 0
    assert first_phase("aclnnGatherV3", table, dim, index, batch, mode, out)[0] == INVALID_ARGUMENT


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int8])
@pytest.mark.parametrize("axis", [-2, -1])
@pytest.mark.parametrize("lengths", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_scatter_list(dtype: torch.dtype, axis: int, lengths: bool, masked: bool) -> None:
    variables = [(random(2, 6, 8, seed=i) * 20).to(dtype) for i in range(3)]
    updates = (random(3, 2, 2, 8, seed=9) * 20).to(dtype)
    if axis == -1:
        updates = updates.mT.contiguous()
        variables = [each.mT.contiguous() for each in variables]
    starts, counts = torch.tensor([0, 4, 2]), torch.tensor([2, 1, 0])
    indices = torch.stack([starts, counts], 1) if lengths else starts
    mask = torch.tensor([1, 0, 1], dtype=torch.uint8) if masked else None
    expected = [each.clone() for each in variables]
    for i, each in enumerate(expected):
        if mask is None or mask[i]:
            count = int(counts[i]) if lengths else 2
            each.narrow(axis, int(starts[i]), count).copy_(updates[i].narrow(axis, 0, count))
    device = [each.npu() for each in variables]
    where = None if mask is None else mask.npu()
    found = torch_npu.npu_scatter_list(device, indices.npu(), updates.npu(), where, "update", axis)
    assert all(torch.equal(each.cpu(), right) for each, right in zip(found, expected, strict=True))
    torch_npu.npu_scatter_list_(device, indices.npu(), updates.npu(), where, "update", axis)
    assert all(torch.equal(each.cpu(), right) for each, right in zip(device, expected, strict=True))


def test_a_list_that_does_not_fit() -> None:
    def said(rows: int, axis: int, reduce: str = "update") -> int:
        lists = [torch.ones(2, 4, 8).npu() for _ in range(rows)]
        index, updates = torch.zeros(3, dtype=torch.int64).npu(), torch.ones(3, 2, 1, 8).npu()
        return first_phase("aclnnScatterList", lists, index, updates, None, reduce, axis)[0]

    assert said(3, -2) == 0
    assert said(2, -2) == TILING_REFUSED and said(3, 0) == TILING_REFUSED
    assert said(3, -2, "add") == INVALID_ARGUMENT
