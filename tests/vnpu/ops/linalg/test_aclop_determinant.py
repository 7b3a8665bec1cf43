"""linalg/aclop_determinant.cpp: inverses, and refused calls. Other values are in tests/mindspore."""

from __future__ import annotations

import pytest
import torch
from aclop import INVALID_ARGUMENT, drawn, launch, near, ran


@pytest.mark.parametrize("adjoint", [False, True])
def test_an_inverse(adjoint: bool) -> None:
    x = drawn(2, 3, 3) + 3 * torch.eye(3)
    (found,) = ran("MatrixInverse", [x], (2, 3, 3), adjoint=adjoint)
    near(found, torch.linalg.inv(x.double().mT if adjoint else x.double()))


# Operator: inputs, the output's sizes, attributes; words of the message.
REFUSED = {
    "MatrixInverse": ([drawn(2, 3)], (2, 3), {}, "expected square matrices"),
    "MatrixDeterminant": ([drawn(2, 3, 3)], (3,), {}, "expected 2 elements"),
    "LogMatrixDeterminant": ([drawn(2, 3, 3)], (3,), {}, "expected 2 elements"),
    "Trace": ([drawn(2, 3, 3)], (1,), {}, "expected [any, any]"),
    "CustTraceGrad": ([drawn(1), [2, 3]], (3, 2), {}, "the gradient of x is"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_call_that_does_not_fit_is_refused(name: str) -> None:
    inputs, size, attributes, words = REFUSED[name]
    operands = [each.npu() if isinstance(each, torch.Tensor) else each for each in inputs]
    outputs = [torch.zeros(size).npu() for _ in range(8)]
    status, message = launch(name, operands, outputs, **attributes)
    assert status == INVALID_ARGUMENT and words in message and name in message, (status, message)
