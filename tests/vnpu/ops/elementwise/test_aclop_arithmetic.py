"""elementwise/aclop_arithmetic.cpp: biases, factors of another dtype, gradients, and refused calls."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from aclop import INVALID_ARGUMENT, check_refused, drawn, launch, near, ran


def test_a_factor_of_another_dtype() -> None:
    x, y, z = drawn(3), drawn(3), drawn(3)
    near(ran("Addcmul", [x, y, z, torch.tensor(3)], (3,))[0], x.double() + 3 * y.double() * z.double())
    near(ran("Addcdiv", [x, y, z, torch.tensor(3)], (3,))[0], x.double() + 3 * y.double() / z.double(), 1e-5)


def test_the_gradient_of_a_root() -> None:
    root, slope = drawn(3, 4).abs() + 1, drawn(3, 4)
    near(ran("SqrtGrad", [root, slope], (3, 4))[0], slope.double() / (2 * root.double()))


X = drawn(3, 4, 5, 6)


@pytest.mark.parametrize("bias", [True, False])
def test_bias(bias: bool) -> None:
    values = drawn(4)
    (y,) = ran("BiasAdd", [X, values], X.shape, data_format="NCHW")
    near(y, X.double() + values.double().view(1, 4, 1, 1))
    (last,) = ran("BiasAdd", [X, drawn(6)], X.shape, data_format="NHWC")
    assert not torch.equal(last, y)
    (slope,) = ran("BiasAddGrad", [X], (4,), data_format="NCHW")
    near(slope, X.double().sum((0, 2, 3)))


MATRIX = drawn(3, 4) * 3


def test_the_value_may_be_an_integer() -> None:
    near(
        ran("Addcmul", [MATRIX, MATRIX, MATRIX, torch.tensor(3)], MATRIX.shape)[0],
        MATRIX.double() + 3 * MATRIX.double() ** 2,
    )
    near(
        ran("Addcdiv", [MATRIX, MATRIX, MATRIX.abs() + 1, torch.tensor(3)], MATRIX.shape)[0],
        MATRIX.double() + 3 * MATRIX.double() / (MATRIX.double().abs() + 1),
    )


# Operator: inputs, the output's sizes, attributes; words of the message.
UNFIT_CALLS = {"SqrtGrad": ([drawn(3), drawn(4)], (3,), {}, "expected shape")}


@pytest.mark.parametrize("name", UNFIT_CALLS)
def test_a_call_that_does_not_fit_is_refused(name: str) -> None:
    inputs, size, attributes, words = UNFIT_CALLS[name]
    operands = [each.npu() if isinstance(each, torch.Tensor) else each for each in inputs]
    outputs = [torch.zeros(size).npu() for _ in range(8)]
    status, message = launch(name, operands, outputs, **attributes)
    assert status == INVALID_ARGUMENT and words in message and name in message, (status, message)


UNFIT: dict[str, tuple[list[Any], tuple[Any, ...], dict[str, Any], str]] = {
    "BiasAdd": ([X, drawn(5)], (X.shape,), {"data_format": "NCHW"}, "the bias is")
}


@pytest.mark.parametrize("name", UNFIT)
def test_what_does_not_fit_is_refused(name: str) -> None:
    inputs, sizes, attributes, words = UNFIT[name]
    check_refused(name, inputs, sizes, attributes, words)
