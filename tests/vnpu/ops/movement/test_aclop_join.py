"""movement/aclop_join.cpp: tensors put together, and refused calls."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from aclop import check_refused, drawn, near, ran


def test_the_gradient_of_a_slice_and_what_is_put_together() -> None:
    slope = drawn(2, 3)
    (found,) = ran("CustSliceGrad", [slope, drawn(3, 5), [1, 2], [2, -1]], (3, 5))
    expected = torch.zeros(3, 5)
    expected[1:, 2:] = slope
    near(found, expected)
    rows = [drawn(1, 3), drawn(1, 3)]
    parts = [drawn(2, 3), drawn(2, 1)]
    near(ran("Concat", [[-1], *parts], (2, 4), N=2)[0], torch.cat(parts, 1))
    near(ran("ParallelConcat", rows, (2, 3), shape=[2, 3], N=2)[0], torch.cat(rows))


# Operator: inputs, the output's sizes, attributes; words of the message.
REFUSED: dict[str, tuple[list[Any], tuple[Any, ...], dict[str, Any], str]] = {
    "ParallelConcat": ([drawn(1, 3), drawn(1, 3)], (2, 2), {"N": 2}, "expected 6 elements"),
    "Concat": ([[0], drawn(2, 3), drawn(2, 1)], (4, 3), {"N": 2}, "expected [any, 3]"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    inputs, size, attributes, words = REFUSED[name]
    check_refused(name, inputs, [size], attributes, words)
