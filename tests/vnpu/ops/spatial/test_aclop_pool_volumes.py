"""spatial/aclop_pool_volumes.cpp: refused calls. The values are in tests/mindspore."""

from __future__ import annotations

import pytest
import torch
from aclop import INVALID_ARGUMENT, drawn, launch

POOL = {"ksize": [1, 1, 2, 2, 2], "strides": [1, 1, 2, 2, 2], "pads": [0] * 6, "data_format": "NCDHW"}
# Operator: inputs, the output's sizes, attributes; words of the message.
REFUSED = {
    "MaxPool3D": ([drawn(1, 1, 4, 4, 4)], (1, 1, 2, 2, 3), POOL, "the output is"),
    "MaxPool3DGrad": (
        [drawn(1, 1, 4, 4, 4), drawn(1, 1, 2, 2, 2), drawn(1, 1, 2, 2, 1)],
        (1, 1, 4, 4, 4),
        POOL,
        "the gradient is",
    ),
    "AvgPool3D": ([drawn(1, 1, 4, 4, 1)], (1, 1, 2, 2, 1), POOL, "do not fit into 1"),
    "AvgPool3DGrad": ([[1, 1, 4, 4, 4], drawn(1, 1, 2, 2, 2)], (1, 1, 4, 4, 5), POOL, "the gradient of x is"),
    "CustAdaptiveAvgPool2DGrad": ([drawn(1, 2, 2, 2), [1, 3, 4, 4]], (1, 3, 4, 4), {}, "the gradient is"),
    "CustAdaptiveAvgPool3d": ([drawn(1, 2, 4, 4, 4)], (1, 2, 2, 2, 2), {"output_size": [2, 2]}, "2 values"),
    "CustAdaptiveAvgPool3dGrad": ([drawn(1, 2, 2, 2, 2), [1, 2, 4, 4, 4]], (1, 2, 4, 4, 3), {}, "the gradient of x is"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_call_that_does_not_fit_is_refused(name: str) -> None:
    inputs, size, attributes, words = REFUSED[name]
    operands = [each.npu() if isinstance(each, torch.Tensor) else each for each in inputs]
    outputs = [torch.zeros(size).npu() for _ in range(8)]
    status, message = launch(name, operands, outputs, **attributes)
    assert status == INVALID_ARGUMENT and words in message and name in message, (status, message)
