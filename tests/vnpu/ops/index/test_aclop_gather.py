"""index/aclop_gather.cpp: rows that are put together and looked up, against loops in float64, and refused calls."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from aclop import check_refused, drawn, near, ran

I32, I64 = torch.int32, torch.int64
X = drawn(4, 3)


def test_sums_of_segments_in_order() -> None:
    (y,) = ran("SegmentSum", [X, torch.tensor([0, 0, 2, 2])], (3, 3))
    wide = X.double()
    near(y, torch.stack([wide[0] + wide[1], torch.zeros(3).double(), wide[2] + wide[3]]))


def test_each_place_once() -> None:
    places = torch.tensor([[1, 0, 1, 0], [0, 2, 0, 1]])
    values = drawn(4)
    found, sums, sizes = ran(
        "CustCoalesce", [places, values, torch.tensor([2, 3])], (2, 4, torch.int64), (4,), (2, torch.int64)
    )
    assert found.flatten()[:6].view(2, 3).tolist() == [[0, 0, 1], [1, 2, 0]] and sizes.tolist() == [2, 3]
    near(sums[:3], torch.stack([values[3], values[1], values[0] + values[2]]))


def test_where_parts_begin() -> None:
    parts = [drawn(2, n, 3) for n in (4, 1, 2)]
    (found,) = ran("CustConcatOffset", parts, (3, 3, torch.int64), axis=-2, N=3)
    assert found.tolist() == [[0, 0, 0], [0, 4, 0], [0, 5, 0]]


def test_looked_up_rows() -> None:
    places = torch.tensor([[5, 2], [6, 1]], dtype=torch.int32)
    (y,) = ran("EmbeddingLookup", [X, places, torch.tensor(2)], (2, 2, 3))
    zero = torch.zeros(3)
    near(y, torch.stack([torch.stack([X[3], X[0]]), torch.stack([zero, zero])]))


def test_bounds() -> None:
    rows, values = torch.tensor([[1.0, 2, 2, 4]]), torch.tensor([[2.0, 0, 5]])
    assert ran("LowerBound", [rows, values], (1, 3, torch.int32))[0].tolist() == [[1, 0, 4]]
    assert ran("UpperBound", [rows, values], (1, 3, torch.int64))[0].tolist() == [[3, 0, 4]]


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64])
def test_set_bits(dtype: torch.dtype) -> None:
    x = torch.tensor([[0, 1, 7], [-1, 96, 127]], dtype=dtype)
    bits = [[0, 1, 3], [torch.iinfo(dtype).bits, 2, 7]]
    assert ran("PopulationCount", [x], (2, 3, torch.uint8))[0].tolist() == bits


# Operator: inputs, outputs, attributes and words of its refusal.
REFUSED: dict[str, tuple[list[Any], list[tuple[Any, ...]], dict[str, Any], str]] = {
    "SegmentSum": ([X, torch.zeros(3, dtype=I32)], [(2, 3)], {}, "the segments is"),
    "CustCoalesce": (
        [torch.zeros(2, 3, dtype=I64), drawn(2), torch.ones(2, dtype=I64)],
        [(2, 3, I64), (2,), (2, I64)],
        {},
        "the values is",
    ),
    "CustConcatOffset": ([X, drawn(4, 2)], [(2, 2, I64)], {"axis": 0}, "an input is"),
    "EmbeddingLookup": ([X, torch.zeros(2, dtype=I32), torch.zeros(1, dtype=I64)], [(2, 2)], {}, "the output is"),
    "LowerBound": ([X, drawn(3, 2)], [(3, 2, I32)], {}, "the values is"),
    "UpperBound": ([X, drawn(4, 2)], [(4, 2)], {}, "the output is"),
    "PopulationCount": ([X], [(4, 3, torch.uint8)], {}, "x is"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    inputs, sizes, attributes, words = REFUSED[name]
    check_refused(name, inputs, sizes, attributes, words)
