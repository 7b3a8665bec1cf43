"""movement/aclop_pad.cpp: borders by pairs and in other orders, and refused calls."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from aclop import INVALID_ARGUMENT, drawn, launch, near, ran


def test_padding_goes_around() -> None:
    x, slope = drawn(2, 4), drawn(2, 9)
    wide = x.double().requires_grad_()
    expected = torch.nn.functional.pad(wide[None], (3, 2), mode="circular")[0]
    near(ran("PadV3", [x, [0, 0, 3, 2]], (2, 9), mode="circular")[0], expected.detach())
    expected.backward(slope.double())
    near(ran("PadV3Grad", [slope, [0, 0, 3, 2]], (2, 4), mode="circular")[0], wide.grad)


def test_padding_takes_pairs_or_all_that_go_before() -> None:
    x = drawn(3, 4)
    (pairs,) = ran("PadV3", [x, [1, 2, 0, 3], torch.tensor(5.0)], (6, 7), mode="constant", paddings_contiguous=True)
    (apart,) = ran("PadV3", [x, [1, 0, 2, 3], torch.tensor(5.0)], (6, 7), mode="constant", paddings_contiguous=False)
    assert torch.equal(pairs, apart) and torch.equal(pairs, F.pad(x.double(), (0, 3, 1, 2), value=5.0))


# Operator: inputs, the output's sizes, attributes; words of the message.
REFUSED = {
    "PadV3": ([drawn(3), [1, 3], drawn(1)], (7,), {"mode": "reflect"}, "more than a side"),
    "PadV3Grad": ([drawn(7), [1, 1]], (6,), {"mode": "edge"}, "the padded tensor is"),
    "MirrorPad": ([drawn(3), [1, 1]], (5,), {"mode": "WRAP"}, '"WRAP"'),
    "MirrorPadGrad": ([drawn(5), [1]], (3,), {"mode": "SYMMETRIC"}, "1 paddings"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_call_that_does_not_fit_is_refused(name: str) -> None:
    inputs, size, attributes, words = REFUSED[name]
    operands = [each.npu() if isinstance(each, torch.Tensor) else each for each in inputs]
    outputs = [torch.zeros(size).npu() for _ in range(8)]
    status, message = launch(name, operands, outputs, **attributes)
    assert status == INVALID_ARGUMENT and words in message and name in message, (status, message)
