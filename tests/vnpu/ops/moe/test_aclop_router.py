"""moe/aclop_router.cpp against loops, and refused calls."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from aclop import check_refused, ran

I32 = torch.int32


@pytest.mark.parametrize("by_choice", [0, 1])
def test_routing_with_room_for_some(by_choice: int) -> None:
    """Places from 1 on; a dropped token gets its expert's place 0."""
    experts = torch.tensor([[[0, 1], [1, 2], [1, 0], [1, 2]], [[2, 2], [2, 1], [0, 1], [2, 0]]], dtype=I32)
    dispatch, combine = ran("CustTopKRouter", [experts, [2], [3], [by_choice]], (2, 3, 2, I32), (2, 4, 2, I32))
    for batch, rows in enumerate(experts.tolist()):
        order = [(t, j) for t in range(4) for j in range(2)]
        taken: dict[int, list[int]] = {e: [] for e in range(3)}
        for t, j in sorted(order, key=lambda at: (at[1], at[0])) if by_choice else order:
            of = taken[rows[t][j]]
            fits = len(of) < 2
            if fits:
                of.append(t + 1)
            assert combine[batch, t, j] == rows[t][j] * 3 + (len(of) if fits else 0)
        assert dispatch[batch].tolist() == [[*of, 0, 0][:2] for of in taken.values()]


# Operator: inputs, the output's sizes, attributes; words of the message.
REFUSED: dict[str, tuple[list[Any], tuple[Any, ...], dict[str, Any], str]] = {
    "CustTopKRouter": ([torch.zeros(1, 2, 1, dtype=I32), [2], [3], [2]], (1, 3, 2, I32), {}, "drop_type 2")
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    inputs, size, attributes, words = REFUSED[name]
    check_refused(name, inputs, [size], attributes, words)
