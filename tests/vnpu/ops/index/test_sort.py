"""index/sort.cpp: sort, topk, nonzero, unique, searching, running sums and extremes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from aclnn import refused, run
from oracle import DEVICE, check, compare, layouts, random

DISTINCT = (torch.arange(24).double() * 5 % 24 / 8 - 1.5).view(2, 3, 4)
REPEATED = torch.tensor([3.0, 1.0, 1.0, 2.0, 3.0, 3.0], dtype=torch.float64)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: tuple(x.sort()),
        lambda x: tuple(x.sort(0, descending=True)),
        lambda x: tuple(x.sort(dim=1, stable=True)),
        lambda x: x.argsort(-1),
        lambda x: tuple(x.topk(2)),
        lambda x: tuple(x.topk(2, 1, largest=False)),
        lambda x: tuple(x.topk(2, 0, sorted=True)),
        lambda x: x.msort(),
    ],
)
def test_order(function: Callable[..., Any]) -> None:
    check(function, DISTINCT)
    check(function, (DISTINCT * 8).int(), grad=False)
    for view in layouts(DISTINCT):
        if 0 not in view.stride():
            check(function, view, dtypes=[torch.float32], grad=False)


def test_order_of_equal_values_is_kept_when_stable() -> None:
    check(lambda x: tuple(x.sort(stable=True)), REPEATED, grad=False)
    check(lambda x: tuple(x.sort(stable=True, descending=True)), REPEATED, grad=False)
    check(lambda x: tuple(x.sort()), random(), grad=False)
    check(lambda x: tuple(x.sort()), random(0, 3), grad=False)
    check(lambda x: x.topk(0).values, random(3), grad=False)


def test_nonzero() -> None:
    x = torch.tensor([[0.0, 1.0, 0.0], [2.0, 0.0, 3.0]], dtype=torch.float64)
    for view in layouts(x):
        check(torch.nonzero, view, grad=False)
        check(lambda t: torch.nonzero(t, as_tuple=True), view, grad=False)
        check(torch.nonzero, view > 0, grad=False)
    check(torch.nonzero, torch.zeros(3), grad=False)
    check(torch.nonzero, torch.zeros(0, 3), grad=False)
    check(torch.count_nonzero, x, grad=False)
    check(lambda t: t.nonzero().sum(), random(50), grad=False)


def test_unique() -> None:
    x = REPEATED
    check(lambda t: torch.unique(t), x, grad=False)
    check(lambda t: torch.unique(t, return_inverse=True, return_counts=True), x, grad=False)
    check(lambda t: torch.unique(t, return_inverse=True), x.int().view(2, 3), grad=False)
    check(lambda t: torch.unique_consecutive(t), x, grad=False)
    check(lambda t: torch.unique_consecutive(t, return_inverse=True, return_counts=True), x, grad=False)
    rows = torch.tensor([[1.0, 2.0], [0.0, 5.0], [1.0, 2.0]], dtype=torch.float64)
    check(lambda t: torch.unique(t, dim=0, return_inverse=True, return_counts=True), rows, grad=False)
    values, inverse = torch.empty(6, device=DEVICE), torch.empty(6, dtype=torch.int64, device=DEVICE)
    run("aclnnUnique", x.float().to(DEVICE), True, True, values, inverse)
    assert values[:3].tolist() == [1, 2, 3]
    assert inverse.tolist() == [2, 0, 0, 1, 2, 2]


def test_searching() -> None:
    boundaries = torch.tensor([-1.0, 0.0, 0.5, 1.0], dtype=torch.float64)
    x = torch.tensor([[-2.0, 0.0], [0.75, 3.0]], dtype=torch.float64)
    for right in (False, True):
        check(
            lambda b, t: torch.searchsorted(b, t, right=right),
            boundaries,
            x,
            dtypes=[torch.float32, torch.float16],
            grad=False,
        )
        check(
            lambda b, t: torch.bucketize(t, b, right=right),
            boundaries,
            x,
            dtypes=[torch.float32, torch.float16],
            grad=False,
        )
    check(lambda b, t: torch.searchsorted(b, t, out_int32=True), boundaries, x, dtypes=[torch.float32], grad=False)
    check(lambda b: torch.searchsorted(b, 0.25), boundaries, dtypes=[torch.float32], grad=False)
    check(
        lambda b, t: torch.searchsorted(b.expand(2, 4).contiguous(), t),
        boundaries,
        x,
        dtypes=[torch.float32],
        grad=False,
    )
    order = torch.tensor([3, 1, 0, 2])
    check(
        lambda b, t: torch.searchsorted(b, t, sorter=order.to(b.device)),
        boundaries,
        x,
        dtypes=[torch.float32],
        grad=False,
    )


def test_membership() -> None:
    check(lambda t: torch.isin(t, 3.0), REPEATED, dtypes=[torch.float32], grad=False)
    check(lambda t: torch.isin(t, 3, invert=True), REPEATED.int(), grad=False)
    check(lambda t: torch.isin(3, t), REPEATED.int(), grad=False)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_running(dim: int) -> None:
    x = random(3, 5, low=0.5, high=1.5)
    check(lambda t: t.cumsum(dim), x)
    check(lambda t: t.cumprod(dim), x, ulps=8)
    check(lambda t: tuple(t.cummax(dim)), DISTINCT)
    check(lambda t: tuple(t.cummin(dim)), DISTINCT)
    check(lambda t: t.cumsum(dim), torch.tensor([[1, 2], [3, 4]]), grad=False)
    check(lambda t: t.cumsum(dim, dtype=torch.float32), x, dtypes=[torch.float16])
    check(lambda t: t.cumsum(dim), torch.tensor([[True, False], [True, True]]), grad=False)  # transformers does that
    for view in layouts(x):
        check(lambda t: t.cumsum(dim), view, dtypes=[torch.float32], grad=False)
    check(lambda t: t.cumsum(0), random())
    check(lambda t: t.cumsum(dim), random(0, 3))


@pytest.mark.parametrize("name", ["Cummax", "Cummin"])
def test_running_extremes_with_int32_positions(name: str) -> None:
    x = DISTINCT.float()
    found = torch.zeros(2, 3, 4, device=DEVICE)
    where = torch.full((2, 3, 4), 9, dtype=torch.int32, device=DEVICE)
    run(f"aclnn{name}", x.to(DEVICE), 1, found, where)
    values, indices = getattr(torch, name.lower())(x, 1)
    assert torch.equal(found.cpu(), values) and torch.equal(where.cpu(), indices.int())


def test_by_c_name() -> None:
    x = DISTINCT.float().to(DEVICE)
    values, where = (torch.empty(2, 3, 2, device=DEVICE), torch.empty(2, 3, 2, dtype=torch.int64, device=DEVICE))
    run("aclnnTopk", x, 2, -1, True, True, values, where)
    compare(values, DISTINCT.topk(2).values, torch.float32)
    assert torch.equal(where.cpu(), DISTINCT.topk(2).indices)
    out = torch.empty(3, dtype=torch.bool, device=DEVICE)
    run("aclnnIsInTensorScalar", torch.tensor([1, 3, 5], device=DEVICE), 3, False, False, out)
    assert out.tolist() == [False, True, False]
    yes = torch.empty((), dtype=torch.bool, device=DEVICE)
    run("aclnnIsInScalarTensor", 3, torch.tensor([1, 3, 5], device=DEVICE), False, False, yes)
    assert yes.item()


def test_refused() -> None:
    x, where = torch.ones(2, 3, device=DEVICE), torch.zeros(2, 3, dtype=torch.int64, device=DEVICE)
    assert "k is 4, allowed is [0, 3]" in refused("aclnnTopk", x, 4, 1, True, True, x, where)
    assert "indicesOut has dtype float32" in refused("aclnnSort", x, True, 1, False, x, x)
    assert "dim is 2" in refused("aclnnCumsum", x, 2, torch.float32, x)
    assert "out has dtype float32, allowed are float16" in refused("aclnnCumsum", x, 1, torch.float16, x)
    assert "up to 12 are needed" in refused("aclnnNonzero", x, where)
    assert "up to 6 are needed" in refused("aclnnUnique", x, True, True, torch.empty(5, device=DEVICE), where)
