"""linalg/aclop_distance.cpp: distances between rows and targets among the largest, in float64, and refused calls."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from aclop import called, check_refused, drawn, ran
from solutions import near

I32, BOOL = torch.int32, torch.bool


@pytest.mark.parametrize("p", [0.0, 1.0, 1.5, 2.0, float("inf")])
def test_distances_and_their_gradient(p: float) -> None:
    x, slope = drawn(5, 3), drawn(10)
    wide = x.double().requires_grad_()
    differences = torch.stack([wide[i] - wide[j] for i in range(5) for j in range(i + 1, 5)])
    expected = (
        (differences != 0).sum(-1).double()
        if p == 0
        else differences.abs().pow(p).sum(-1).pow(1 / p)
        if p < 9
        else differences.abs().amax(-1)
    )
    (y,) = called("Pdist", [x], (10,), p=p)
    near(y, expected.detach())
    if p != 0:
        expected.backward(slope.double())
        assert wide.grad is not None
    near(
        called("CustPdistGrad", [slope, x, y], (5, 3), p=p)[0],
        wide.grad if wide.grad is not None else torch.zeros(5, 3),
    )


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.5, float("inf")])
def test_distances_between_rows(p: float) -> None:
    x = drawn(5, 4)
    wide = x.double().requires_grad_()
    expected = torch.stack([torch.linalg.vector_norm(wide[i] - wide[j], p) for i in range(5) for j in range(i + 1, 5)])
    (y,) = ran("Pdist", [x], (10,), p=p)
    near(y, expected.detach(), 2e-6)
    if p:
        slope = drawn(10)
        expected.backward(slope.double())
        assert wide.grad is not None
        near(ran("CustPdistGrad", [slope, x, y.float()], x.shape, p=p)[0], wide.grad, 2e-6)


def test_a_target_among_the_largest() -> None:
    x = torch.tensor([[1.0, 2, 2, 3], [1, 2, 2, 3], [torch.inf, 1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4]])
    (y,) = ran("InTopKD", [x, torch.tensor([2, 0, 0, 9, 2], dtype=I32)], (5, BOOL), k=2)
    assert y.tolist() == [1, 0, 0, 0, 1]


X = drawn(3, 4) * 3
# Operator: inputs, outputs, attributes; words of the message.
REFUSED: dict[str, tuple[list[Any], list[Any], dict[str, Any], str]] = {
    "Pdist": ([drawn(4, 3)], [(5,)], {}, "the distances is"),
    "CustPdistGrad": ([drawn(6), drawn(4, 3), drawn(6)], [(4, 3)], {"p": -1.0}, "p is -1"),
    "InTopKD": ([X, torch.zeros(4, dtype=I32)], [(3, BOOL)], {"k": 1}, "the targets is"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name: str) -> None:
    inputs, sizes, attributes, words = REFUSED[name]
    check_refused(name, inputs, sizes, attributes, words)
