"""linalg/aclop_correlate.cpp against NumPy in float64, and refused calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from aclop import check_refused, drawn, near, ran


@pytest.mark.parametrize("mode", ["valid", "same", "full"])
@pytest.mark.parametrize("lengths", [(6, 3), (6, 4), (3, 6), (4, 7), (5, 5)])
def test_sequences_at_each_distance(mode: str, lengths: tuple[int, int]) -> None:
    a, v = drawn(lengths[0]), drawn(lengths[1])
    expected = torch.from_numpy(np.correlate(a.double().numpy(), v.double().numpy(), mode))
    near(ran("CustCorrelate", [a, v], expected.shape, mode=mode)[0], expected)


# Operator: inputs, the output's sizes, attributes; words of the message.
REFUSED: dict[str, tuple[list[Any], tuple[Any, ...], dict[str, Any], str]] = {
    "CustCorrelate": ([drawn(3), drawn(2)], (2,), {"mode": "half"}, "attribute mode")
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    inputs, size, attributes, words = REFUSED[name]
    check_refused(name, inputs, [size], attributes, words)
