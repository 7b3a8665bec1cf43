"""movement/aclop_split.cpp: parts and unique values, and refused calls."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from aclop import check_refused, drawn, near, ran

X = drawn(2, 6, 4)


def test_parts() -> None:
    for found, part in zip(ran("Split", [[-2], X], *[(2, 2, 4)] * 3, num_split=3), X.split(2, 1), strict=True):
        near(found, part)
    for found, part in zip(ran("Unpack", [X], *[(2, 6)] * 4, axis=-1, num=4), X.unbind(-1), strict=True):
        near(found, part)


def test_values_come_in_the_order_of_their_first() -> None:
    x = torch.tensor([5, 2, 5, 9, 2, 1])
    values, places = ran("Unique", [x], (6, torch.int64), (6, torch.int64))
    assert values[:4].tolist() == [5, 2, 9, 1] and places.tolist() == [0, 1, 0, 2, 1, 3]


def test_values_that_come_first_and_what_fills_the_rest() -> None:
    y, places = ran("UniqueWithPad", [torch.tensor([5, 2, 5, 9, 2]), torch.tensor(-1)], *[(5, torch.int64)] * 2)
    assert y.tolist() == [5, 2, 9, -1, -1] and places.tolist() == [0, 1, 0, 2, 1]


def test_zeros_behind_one_element() -> None:
    x = drawn(2, 3, 1)
    (y,) = ran("CustPadding", [x], (2, 3, 4), pad_dim_size=4)
    assert torch.equal(y, F.pad(x.double(), (0, 3)))


# Operator: inputs, outputs, attributes and words of its refusal.
REFUSED: dict[str, tuple[list[Any], list[tuple[int, ...]], dict[str, Any], str]] = {
    "Split": ([[1], X], [(2, 3, 4)] * 2, {"num_split": 4}, "num_split is 4"),
    "Unpack": ([X], [(2, 6)] * 3, {"axis": 2, "num": 4}, "there are 3 outputs"),
    "Unique": ([drawn(3)], [(3,), (3,)], {}, "the places is"),
    "CustPadding": ([drawn(2, 2)], [(2, 4)], {"pad_dim_size": 4}, "a last dimension of 1"),
    "UniqueWithPad": ([drawn(2), torch.tensor(0)], [(2,), (2,)], {}, "the places is"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    inputs, sizes, attributes, words = REFUSED[name]
    check_refused(name, inputs, sizes, attributes, words)
