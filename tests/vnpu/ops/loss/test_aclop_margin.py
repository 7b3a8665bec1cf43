"""loss/aclop_margin.cpp: margins between classes against torch in float64, and refused calls."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from aclop import check_refused, drawn, near, ran

I32, I64 = torch.int32, torch.int64


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("p", [1, 2])
def test_margins_between_classes(reduction: str, p: int) -> None:
    x, weight, target = drawn(4, 5), drawn(5).abs(), torch.tensor([1, 0, 4, 2])
    wide = x.double().requires_grad_()
    expected = F.multi_margin_loss(wide, target, p=p, margin=0.7, weight=weight.double(), reduction=reduction)
    how: dict[str, Any] = {"p": p, "margin": 0.7, "reduction": reduction}
    size = (4,) if reduction == "none" else (1,)
    near(ran("CustMultiMarginLoss", [x, target, weight], size, **how)[0].view(expected.shape), expected.detach())
    slope = drawn(*size)
    expected.backward(slope.double().view(expected.shape))
    near(ran("CustMultiMarginLossGrad", [slope, x, target, weight], x.shape, **how)[0], wide.grad)


ROW, TARGET = drawn(4, 5), torch.zeros(4, dtype=I64)
# Operator: inputs, outputs, attributes; words of the message.
REFUSED: dict[str, tuple[list[Any], list[Any], dict[str, Any], str]] = {
    "CustMultiMarginLoss": ([ROW, TARGET, drawn(5)], [(1,)], {"p": 3}, "p is 3"),
    "CustMultiMarginLoss 2": ([ROW, TARGET, drawn(4)], [(1,)], {}, "weight is"),
    "CustMultiMarginLossGrad": ([drawn(1), ROW, TARGET, drawn(5)], [(4, 5)], {"reduction": "none"}, "the gradient is"),
    "MultilabelMarginLoss": ([ROW, torch.zeros(4, 5, dtype=I64)], [(1,), (4, 5, I32)], {}, "target or is_target is"),
    "CustMultilabelMarginLossGrad": (
        [drawn(1), ROW, torch.zeros(4, 5, dtype=I32), torch.zeros(4, 4, dtype=I32)],
        [(4, 5)],
        {},
        "target or is_target is",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name: str) -> None:
    inputs, sizes, attributes, words = REFUSED[name]
    check_refused(name.split()[0], inputs, sizes, attributes, words)
