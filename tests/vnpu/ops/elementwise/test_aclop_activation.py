"""elementwise/aclop_activation.cpp: activations and their gradients against torch in float64, and refused calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
import torch_npu
from aclop import INVALID_ARGUMENT, check_refused, drawn, launch, near, ran
from oracle import FLOATS, check, layouts, place, random
from torch.nn import functional

X = drawn(3, 4, 5, 6)
G = drawn(3, 4, 5, 6)
POINTWISE: dict[str, tuple[str, Callable[[torch.Tensor], torch.Tensor], bool]] = {
    "Relu6": ("Relu6Grad", lambda x: F.relu6(x * 4), False),
    "Elu": ("EluGrad", F.elu, True),
    "Selu": ("SeluGrad", F.selu, True),
}


@pytest.mark.parametrize("name", POINTWISE)
def test_activations_and_their_gradients(name: str) -> None:
    gradient, function, by_result = POINTWISE[name]
    x = X * 4 if name == "Relu6" else X
    wide = X.double().requires_grad_()
    expected = function(wide)
    (y,) = ran(name, [x], x.shape)
    near(y, expected.detach())
    (slope,) = torch.autograd.grad(expected, wide, G.double())
    (found,) = ran(gradient, [G, y.float() if by_result else x], x.shape)
    near(found * (4 if name == "Relu6" else 1), slope)


def test_mish() -> None:
    for view in layouts(random(3, 5, low=-6, high=6)):
        check(torch_npu.npu_mish, view, reference=functional.mish, dtypes=FLOATS)
    check(torch_npu.npu_mish, torch.zeros(0, 3), reference=functional.mish)


def test_silu() -> None:
    check(torch_npu.npu_silu, random(4, 7, low=-6, high=6), reference=functional.silu, grad=False)
    x = place(random(4, 7), torch.float32)
    assert torch.equal(torch_npu.npu_silu_(x.clone()), torch_npu.npu_silu(x))


# Operator: inputs, the output's sizes, attributes; words of the message.
UNFIT_CALLS = {
    "Softplus": ([drawn(3)], (4,), {}, "expected shape"),
    "SoftplusGrad": ([drawn(3), drawn(4)], (3,), {}, "expected shape"),
    "Softsign": ([drawn(3)], (4,), {}, "expected shape"),
    "CeluV2": ([drawn(3)], (4,), {}, "expected shape"),
    "FastGelu": ([drawn(3)], (4,), {}, "expected shape"),
    "FastGeluGrad": ([drawn(3), drawn(4)], (3,), {}, "expected shape"),
}


@pytest.mark.parametrize("name", UNFIT_CALLS)
def test_a_call_that_does_not_fit_is_refused(name: str) -> None:
    inputs, size, attributes, words = UNFIT_CALLS[name]
    operands = [each.npu() if isinstance(each, torch.Tensor) else each for each in inputs]
    outputs = [torch.zeros(size).npu() for _ in range(8)]
    status, message = launch(name, operands, outputs, **attributes)
    assert status == INVALID_ARGUMENT and words in message and name in message, (status, message)


UNFIT: dict[str, tuple[list[Any], tuple[Any, ...], dict[str, Any], str]] = {
    "EluGrad": ([X, drawn(3)], (X.shape,), {}, "expected shape and dtype")
}


@pytest.mark.parametrize("name", UNFIT)
def test_what_does_not_fit_is_refused(name: str) -> None:
    inputs, sizes, attributes, words = UNFIT[name]
    check_refused(name, inputs, sizes, attributes, words)
