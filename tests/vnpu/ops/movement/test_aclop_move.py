"""movement/aclop_move.cpp through torch_npu's functions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch_npu
from oracle import check, layouts, place, random
from torch.nn import functional


def test_views_of_storages() -> None:
    x = torch.arange(60, dtype=torch.float32).npu()
    for shape, stride, offset in (([3, 4], [5, 2], 7), ([2, 3], [0, 1], 0), ([3, 2, 2], [1, 7, 20], 4)):
        actual = torch_npu.npu_stride_copy(x, shape, stride, offset)
        assert torch.equal(actual.cpu(), x.cpu().as_strided(shape, stride, offset))
    for into, of in (((4, 6), (4, 6)), ((6, 4), (6, 4))):
        to, given = torch.zeros(into).npu().T, random(*of).float().npu().T
        torch_npu.npu_view_copy(to, given, False)
        assert torch.equal(to.cpu(), given.cpu())
    to = torch.zeros(5, 9).npu()
    torch_npu.npu_view_copy(to[1:4, 2::3], place(random(3, 3).float()), True)
    assert torch.equal(to[1:4, 2::3].cpu(), random(3, 3).float()) and int((to != 0).sum()) == 9


HALVES = (torch.float32, torch.float16)


def test_pad() -> None:
    for view in layouts(random(2, 3).float()):
        actual = torch_npu.npu_pad(place(view), (1, 0, 2, 3))
        assert torch.equal(actual.cpu(), functional.pad(view, (2, 3, 1, 0)))
    x = torch.arange(6, dtype=torch.int32).view(1, 2, 3)
    assert torch.equal(torch_npu.npu_pad(x.npu(), (0, 1)).cpu(), functional.pad(x, (0, 0, 0, 0, 0, 1)))


@pytest.mark.parametrize("first", [True, False])
def test_transpose_and_reshape(first: bool) -> None:
    x = random(2, 6, 4)
    perm, shape = ((1, 0, 2), (3, 16)) if first else ((1, 2, 0), (4, 6, 2))

    def expected(t: torch.Tensor) -> torch.Tensor:
        return t.permute(perm).reshape(shape) if first else t.reshape(shape).permute(perm)

    def actual(t: torch.Tensor) -> torch.Tensor:
        return torch_npu.npu_confusion_transpose(t, perm, shape, first)

    check(actual, x, reference=expected, dtypes=HALVES, ulps=0, grad=not first)


def test_largest_and_smallest() -> None:
    x = random(4, 5, 6)
    for name, reference in (("npu_max", torch.max), ("npu_min", torch.min)):
        function = getattr(torch_npu, name)
        for dim, keep in ((0, False), (1, True), (-1, False)):

            def actual(t: torch.Tensor, f: Any = function, d: int = dim, k: bool = keep) -> Any:
                values, indices = f(t, d, k)
                return values, indices.long()

            check(actual, x, reference=lambda t, f=reference, d=dim, k=keep: tuple(f(t, d, k)), dtypes=HALVES, ulps=0)
    values, indices = torch_npu.npu_max(torch.tensor([[3.0, 3.0]]).npu(), 1)
    assert (values.item(), indices.item(), indices.dtype) == (3, 0, torch.int32)  # the first of equal ones


def test_sums_of_blocks_of_channels() -> None:
    """16 channels to a block; those that are not there are zeros."""
    a, b = random(2, 40, 3, 2).float(), random(2, 32, 3, 2, seed=1).float()
    expected = functional.pad(a[:, 16:], (0, 0, 0, 0, 0, 8)) + b
    assert torch.equal(torch_npu.npu_stride_add(a.npu(), b.npu(), 1, 0, 2).cpu(), expected)
    one = torch_npu.npu_stride_add(torch.ones(1, 1, 1, 1, 1).npu(), torch.ones(1, 1, 1, 1, 1).npu(), 0, 0, 1)
    assert one.flatten().tolist() == [2.0] + [0.0] * 15


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_filled_ranges(axis: int) -> None:
    """Along the last axis a column of bounds for each row, else all rows alike."""
    x = torch.arange(3 * 4 * 7, dtype=torch.float32).view(3, 4, 7)
    start = torch.tensor([[0, 1, 2], [2, 3, 0]], dtype=torch.int32)
    end, value = start + torch.tensor([[1], [2]], dtype=torch.int32), torch.tensor([-1.0, -2.0])
    expected = x.clone()
    for i in range(2):
        for j in range(3):
            for k in range(int(start[i, j]), min(int(end[i, j]), x.shape[axis])):
                if axis == 2:
                    expected[j, :, k] = value[i]
                else:
                    expected.select(axis, k)[:] = value[i]
    actual = torch_npu.npu_masked_fill_range(x.npu(), start.npu(), end.npu(), value.npu(), axis)
    assert torch.equal(actual.cpu(), expected)


@pytest.mark.parametrize("descending", [True, False])
def test_sort_without_indices(descending: bool) -> None:
    for dtype in HALVES:
        x = random(3, 17).to(dtype)
        assert torch.equal(torch_npu.npu_sort_v2(x.npu(), -1, descending).cpu(), x.sort(-1, descending)[0])
