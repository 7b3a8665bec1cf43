"""spatial/aclop_blocks.cpp: shuffled channels, and refused calls. The other values are in tests/mindspore."""

from __future__ import annotations

import pytest
import torch
from aclop import INVALID_ARGUMENT, drawn, launch, ran


def test_channels_are_shuffled() -> None:
    x = drawn(2, 6, 3, 2)
    (y,) = ran("ShuffleChannel", [x], x.shape, group=3)
    assert torch.equal(y, x.double().reshape(2, 3, 2, 3, 2).transpose(1, 2).reshape(x.shape))


# Operator: inputs, the output's sizes, attributes; words of the message.
REFUSED = {
    "SpaceToBatchND": ([drawn(1, 2, 4, 4), [2, 3], [0, 0, 0, 0]], (6, 2, 2, 1), {}, "no multiple"),
    "BatchToSpaceND": ([drawn(4, 2, 2, 2), [2, 2], [0, 0, 0, -1]], (1, 2, 4, 4), {}, "an edge of -1"),
    "SpaceToBatchD": ([drawn(1, 2, 4, 4)], (4, 2, 2, 3), {"block_size": 2, "paddings": [0] * 4}, "the output is"),
    "BatchToSpaceD": ([drawn(4, 2, 2, 2)], (1, 2, 4, 4), {"block_size": 0, "crops": [0] * 4}, "is 0 long"),
    "SpaceToDepth": ([drawn(1, 2, 4, 5)], (1, 8, 2, 2), {"block_size": 2}, "do not fit"),
    "DepthToSpace": ([drawn(1, 7, 2, 2)], (1, 2, 4, 4), {"block_size": 2}, "the smaller tensor is"),
    "ShuffleChannel": ([drawn(1, 7, 2, 2)], (1, 7, 2, 2), {"group": 2}, "group is 2"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_call_that_does_not_fit_is_refused(name: str) -> None:
    inputs, size, attributes, words = REFUSED[name]
    operands = [each.npu() if isinstance(each, torch.Tensor) else each for each in inputs]
    outputs = [torch.zeros(size).npu() for _ in range(8)]
    status, message = launch(name, operands, outputs, **attributes)
    assert status == INVALID_ARGUMENT and words in message and name in message, (status, message)
