"""Operators that MindSpore calls and torch_npu does not: signatures_mindspore.json."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from aclnn import INVALID_ARGUMENT, SIGNATURES, first_phase, run

X = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(3))


def outcome(name: str, x: torch.Tensor, arguments: list[Any], out: torch.Tensor) -> torch.Tensor:
    run(name, x.npu(), *arguments, target := out.npu())
    return target.cpu()


EXACT: dict[str, tuple[torch.Tensor, list[Any], torch.Tensor]] = {
    "aclnnPermute": (X.transpose(0, 1), [[2, 0, -2]], X.transpose(0, 1).permute(2, 0, 1)),
    "aclnnExpand": (X[:, :1], [[5, -1, 3, 4]], X[:, :1].expand(5, 2, 3, 4)),
    "aclnnSlice": (X, [2, 1, 4, 2], X[:, :, 1:4:2]),
    "aclnnDiag": (X[0], [1], torch.diag(X[0], 1)),
    "aclnnIsInf": (torch.tensor([1.0, float("inf"), float("nan")]), [], torch.tensor([False, True, False])),
    "aclnnSelu": (X, [], torch.selu(X)),
    "aclnnAllFinite": (torch.tensor([1.0, float("nan")]), [], torch.tensor([True])),
}


@pytest.mark.parametrize("name", EXACT)
def test_the_result_is_torchs(name: str) -> None:
    x, arguments, expected = EXACT[name]
    found = outcome(name, x, arguments, torch.empty_like(expected.contiguous()))
    if name == "aclnnAllFinite":
        assert found.item() is True  # an element is not finite
        assert outcome(name, X, arguments, torch.empty(1, dtype=torch.bool)).item() is False
    else:
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


def test_empty_and_zero_dimensional() -> None:
    assert outcome("aclnnPermute", torch.empty(0, 3), [[1, 0]], torch.empty(3, 0)).shape == (3, 0)
    assert outcome("aclnnExpand", torch.tensor(2.0), [[3]], torch.empty(3)).tolist() == [2, 2, 2]
    assert outcome("aclnnSlice", X, [0, 2, 2, 1], torch.empty(0, 3, 4)).numel() == 0


def test_the_slope_of_selu_is_taken_by_its_result() -> None:
    wide = X.double().requires_grad_()
    y = torch.selu(wide)
    (slope,) = torch.autograd.grad(y, wide, X.double())
    found = torch.empty_like(X).npu()
    run("aclnnSeluBackward", X.npu(), y.detach().float().npu(), found)
    torch.testing.assert_close(found.cpu().double(), slope, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_select_broadcasts_its_condition_and_values(dtype: torch.dtype) -> None:
    x, other = (10 * X).to(dtype), torch.tensor(7, dtype=dtype)
    condition = torch.tensor([[True], [False], [True]])
    found = torch.empty_like(x).npu()
    run("aclnnSelectV2", condition.npu(), x.npu(), other.npu(), found)
    assert torch.equal(found.cpu(), torch.where(condition, x, other))


def test_split() -> None:
    parts = [torch.empty(2, n, 4).npu() for n in (2, 1)]
    run("aclnnSplitTensor", X.npu(), 2, 1, parts)
    for part, expected in zip(parts, X.split(2, 1), strict=True):
        assert torch.equal(part.cpu(), expected)


@pytest.mark.parametrize("places", [[[0, 1], [1, 2]], [[1], [0]], [[0, 0, 3]]])
def test_gather_nd(places: list[list[int]]) -> None:
    indices = torch.tensor(places)
    expected = torch.stack([X[tuple(place)] for place in places])
    found = torch.empty_like(expected).npu()
    run("aclnnGatherNd", X.npu(), indices.npu(), False, found)
    assert torch.equal(found.cpu(), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32])
def test_added_at_rows_or_at_positions(dtype: torch.dtype) -> None:
    """One place several times, which is added up before it is rounded."""
    var = (torch.randn(4, 3) * 9).to(dtype)
    rows, updates = torch.tensor([[1, 1], [3, 1]]), (torch.randn(2, 2, 3) * 9).to(dtype)
    wide = torch.double if dtype.is_floating_point else torch.int64
    expected = var.to(wide).index_add(0, rows.flatten(), updates.to(wide).flatten(0, 1))
    found = var.npu()
    run("aclnnTfScatterAdd", found, rows.npu(), updates.npu())
    torch.testing.assert_close(found.cpu(), expected.to(dtype), rtol=1e-6, atol=1e-6)
    places, updates = torch.tensor([[1, 2], [0, 0], [1, 2]]), (torch.randn(3) * 9).to(dtype)
    expected = var.to(wide).index_put((places[:, 0], places[:, 1]), updates.to(wide), accumulate=True)
    found = var.npu()
    run("aclnnTfScatterAdd", found, places.npu(), updates.npu())
    torch.testing.assert_close(found.cpu(), expected.to(dtype), rtol=1e-6, atol=1e-6)


REFUSED: dict[str, tuple[list[Any], str]] = {
    "aclnnPermute": ([X, [0, 0, 1], X], "no order of 3 dimensions"),
    "aclnnExpand": ([X, [2, 5, 4], X], "does not expand"),
    "aclnnSlice": ([X, 0, 0, 1, 0, X], "step is 0"),
    "aclnnDiag": ([X, 0, X], "has 3 dimensions"),
    "aclnnIsInf": ([X, X], "has dtype float32"),
    "aclnnSelu": ([X, X[0]], "has shape"),
    "aclnnFFN": ([X[0], X[0], X[0], None, *[None] * 10, "relu", 0, X[0]], "parameter x"),
    "aclnnQuantMatmulV4": (
        [X[0], X[0], X[0, 0], None, None, None, False, False, X[0]],
        "parameter x1 has dtype float32",
    ),
    "aclnnSelectV2": ([X > 0, X, X.double(), X], "x2 has dtype float64"),
    "aclnnSeluBackward": ([X[0], X, X], "has shape"),
    "aclnnAllFinite": ([X, X], "expected one element"),
    "aclnnSplitTensor": ([X, 0, 1, [X]], "splitSections is 0"),
    "aclnnGatherNd": ([X, torch.tensor([[0, 1, 2, 3]]), False, X], "indices has shape"),
    "aclnnTfScatterAdd": ([X, torch.tensor([[0, 1]]), X], "updates is"),
    "aclnnMatmulAllReduceAddRmsNorm": (
        [X, X[0].T, None, X, X[0, 0], 1e-5, "", "sum", 0, 1, X, X],
        "expected 3 columns",
    ),
    "aclnnInplaceMatmulAllReduceAddRmsNorm": (
        [X, X[0].T, None, X, X[0, 0], 1e-5, "", "sum", 0, 1, X],
        "expected 3 columns",
    ),
    "aclnnMultiScaleDeformableAttnFunction": ([X, X, X, X, X, X], "spatialShape has dtype"),
    "aclnnMultiScaleDeformableAttentionGrad": ([X] * 9, "spatialShape has dtype"),
    "aclnnGroupedMatmulV2": ([[X[0]], [X[0]], None, None, None, None, None, [1], 3, 7, [X[0]]], "groupType is 7"),
    "aclnnGroupedMatmulV3": (
        [[X[0]], [X[0]], None, None, None, None, None, torch.tensor([1]), 3, 7, [X[0]]],
        "groupType is 7",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name: str) -> None:
    arguments, words = REFUSED[name]
    moved = [
        each.npu()
        if isinstance(each, torch.Tensor)
        else [one.npu() for one in each]
        if isinstance(each, list) and each and isinstance(each[0], torch.Tensor)
        else each
        for each in arguments
    ]
    status, message = first_phase(name, *moved)
    assert status == INVALID_ARGUMENT and words in message, (status, message)


# By test_ranks_batches, as a 910B has no kernel for them.
ELSEWHERE = {"aclnnAlltoAllAllGatherBatchMatMul", "aclnnBatchMatMulReduceScatterAlltoAll"}


def test_each_operator_of_mindspores_table_is_refused_somewhere() -> None:
    assert {name for name, row in SIGNATURES.items() if row["tier"] is None} == set(REFUSED) | ELSEWHERE
