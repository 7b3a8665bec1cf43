"""index/aclop_select.cpp: places that are not zero, and unique slices."""

from __future__ import annotations

import pytest
import torch
from aclop import by_name, launch

pytestmark = pytest.mark.usefixtures("compiled")


def test_places_by_dimension() -> None:
    """What torch_npu gives masks of indices to; the next operator, Index, is missing."""
    x = torch.tensor([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]])
    out = torch.full((2, 6), -1, device="npu")
    assert launch("NonZero", [x.npu()], [out], transpose=True) == (0, "")
    assert out.flatten()[:6].tolist() == x.nonzero().t().flatten().tolist()


@pytest.mark.parametrize("axis", [0, -1])
def test_unique_slices_their_places_and_counts(axis: int) -> None:
    x = torch.tensor([[2.0, 1, 2], [0, 1, 0], [2, 1, 2]])
    found = torch.unique(x.npu(), dim=axis, return_inverse=True, return_counts=True)
    for actual, expected in zip(found, torch.unique(x, dim=axis, return_inverse=True, return_counts=True), strict=True):
        assert torch.equal(actual.cpu(), expected)
    assert by_name("UniqueWithCountsExt2") > 0


def test_places_of_nothing_and_of_all() -> None:
    assert torch.zeros(2, 3).npu().nonzero().shape == (0, 2)
    assert torch.equal(torch.ones(2, 2).npu().nonzero().cpu(), torch.ones(2, 2).nonzero())
