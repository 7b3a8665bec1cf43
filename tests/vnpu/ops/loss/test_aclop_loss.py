"""loss/aclop_loss.cpp: divergences and soft labels against torch in float64, and refused calls."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
import torch_npu
from aclop import INVALID_ARGUMENT, check_refused, drawn, launch, near, ran
from oracle import FLOATS, compare, random


@pytest.mark.parametrize("reduction", ["none", "sum", "mean", "batchmean"])
@pytest.mark.parametrize("log_target", [False, True])
def test_the_gradient_of_a_divergence(reduction: str, log_target: bool) -> None:
    x, target = drawn(3, 4), drawn(3, 4)
    if not log_target:
        target = target.clamp_min(0)  # zeros of it have no gradient
    wide = x.double().requires_grad_()
    loss = F.kl_div(wide, target.double(), reduction=reduction, log_target=log_target)
    gradient = drawn(*loss.shape)
    (slope,) = ran("KlDivLossGrad", [gradient, x, target], x.shape, reduction=reduction, log_target=log_target)
    near(slope, torch.autograd.grad(loss, wide, gradient.double())[0])


def test_soft_labels() -> None:
    """The labels need not sum to 1."""
    logits, labels = random(5, 7, low=-9, high=9), random(5, 7, low=0, high=1)

    def expected(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return -(y * torch.log_softmax(x, -1)).sum(-1)

    for dtype in FLOATS:
        x, y = logits.to(dtype), labels.to(dtype)
        leaf = x.npu().requires_grad_()
        loss = torch_npu.npu_softmax_cross_entropy_with_logits(leaf, y.npu())
        compare(loss, expected(x.double(), y.double()), dtype)
        loss.sum().backward()
        compare(leaf.grad, torch.softmax(x.double(), -1) - y.double(), dtype, scale=1)


# Operator: inputs, the output's sizes, attributes; words of the message.
UNFIT_CALLS = {"KlDivLossGrad": ([drawn(2), drawn(3), drawn(3)], (3,), {}, "expected shape")}


@pytest.mark.parametrize("name", UNFIT_CALLS)
def test_a_call_that_does_not_fit_is_refused(name: str) -> None:
    inputs, size, attributes, words = UNFIT_CALLS[name]
    operands = [each.npu() if isinstance(each, torch.Tensor) else each for each in inputs]
    outputs = [torch.zeros(size).npu() for _ in range(8)]
    status, message = launch(name, operands, outputs, **attributes)
    assert status == INVALID_ARGUMENT and words in message and name in message, (status, message)


UNFIT: dict[str, tuple[list[Any], tuple[Any, ...], dict[str, Any], str]] = {
    "KLDiv": ([drawn(3), drawn(4)], ((),), {}, "the target")
}


@pytest.mark.parametrize("name", UNFIT)
def test_what_does_not_fit_is_refused(name: str) -> None:
    inputs, sizes, attributes, words = UNFIT[name]
    check_refused(name, inputs, sizes, attributes, words)
