"""Windows, triangles, distances between rows, products of segments and filled axes by MindSpore's types, against NumPy and torch
in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from aclop import check_refused, drawn, near, ran

I32, I64, BOOL = torch.int32, torch.int64, torch.bool
X = drawn(3, 4) * 3

WINDOWS: dict[str, tuple[Callable[[int], Any], dict[str, Any]]] = {
    "CustBartlettWindow": (np.bartlett, {}),
    "CustBlackmanWindow": (np.blackman, {}),
    "CustHammingWindow": (np.hamming, {"alpha": 0.54, "beta": 0.46}),
}


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("length", [0, 1, 2, 7])
def test_windows(name: str, length: int) -> None:
    function, attributes = WINDOWS[name]
    (y,) = ran(name, [[length]], (length,), periodic=False, **attributes)
    near(y, torch.from_numpy(function(length)).double())
    (y,) = ran(name, [[length]], (length,), periodic=True, **attributes)
    near(y, torch.from_numpy(function(length + 1)[:-1] if length > 1 else np.ones(length)).double())


@pytest.mark.parametrize("offset", [-1, 0, 2])
def test_places_of_triangles(offset: int) -> None:
    for name, places in (("CustTrilIndices", np.tril_indices(3, offset, 5)), ("CustTriuIndices", np.triu_indices(3, offset, 5))):  # fmt: skip
        (y,) = ran(name, [], (2, len(places[0]), I64), row=3, col=5, offset=offset)
        assert np.array_equal(y.numpy(), np.stack(places))


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.5, float("inf")])
def test_distances_between_rows(p: float) -> None:
    x = drawn(5, 4)
    wide = x.double().requires_grad_()
    expected = torch.stack(
        [torch.linalg.vector_norm(wide[i] - wide[j], p) for i in range(5) for j in range(i + 1, 5)]
    )
    (y,) = ran("Pdist", [x], (10,), p=p)
    near(y, expected.detach())
    if p:
        slope = drawn(10)
        expected.backward(slope.double())
        assert wide.grad is not None
        near(ran("CustPdistGrad", [slope, x, y.float()], x.shape, p=p)[0], wide.grad)


def test_a_target_among_the_largest() -> None:
    x = torch.tensor([[1.0, 2, 2, 3], [1, 2, 2, 3], [torch.inf, 1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4]])
    (y,) = ran("InTopKD", [x, torch.tensor([2, 0, 0, 9, 2], dtype=I32)], (5, BOOL), k=2)
    assert y.tolist() == [1, 0, 0, 0, 1]


def test_the_value_may_be_an_integer() -> None:
    near(ran("Addcmul", [X, X, X, torch.tensor(3)], X.shape)[0], X.double() + 3 * X.double() ** 2)
    near(
        ran("Addcdiv", [X, X, X.abs() + 1, torch.tensor(3)], X.shape)[0],
        X.double() + 3 * X.double() / (X.double().abs() + 1),
    )


def test_products_of_segments_and_a_filled_axis() -> None:
    x, ids = drawn(4, 3), torch.tensor([2, 0, 2, -1])
    (y,) = ran("UnsortedSegmentProd", [x, ids, [3]], (3, 3))
    wide = x.double()
    near(y, torch.stack([wide[1], torch.ones(3).double(), wide[0] * wide[2]]))
    inputs = [x, [-1], torch.tensor([0, 2], dtype=I32), torch.tensor(5.0)]
    (y,) = ran("CustIndexFill", inputs, (4, 3))
    assert (y[:, [0, 2]] == 5).all() and torch.equal(y[:, 1], wide[:, 1])


ROWS = torch.tensor([0, 1])
# Operator: inputs, outputs, attributes; words of the message.
REFUSED: dict[str, tuple[list[Any], list[Any], dict[str, Any], str]] = {
    "CustBartlettWindow": ([[4]], [(5,)], {}, "expected [4]"),
    "CustBlackmanWindow": ([[-1]], [(1,)], {}, "the length is -1"),
    "CustHammingWindow": ([[4]], [(4, I32)], {}, "no dtype"),
    "CustTrilIndices": ([], [(2, 5, I64)], {"row": 3, "col": 3}, "the output is"),
    "CustTriuIndices": ([], [(2, 5, I64)], {"row": -3, "col": 3}, "row and col are -3"),
    "Pdist": ([drawn(4, 3)], [(5,)], {}, "the distances is"),
    "CustPdistGrad": ([drawn(6), drawn(4, 3), drawn(6)], [(4, 3)], {"p": -1.0}, "p is -1"),
    "InTopKD": ([X, torch.zeros(4, dtype=I32)], [(3, BOOL)], {"k": 1}, "the targets is"),
    "UnsortedSegmentProd": ([drawn(3, 2), ROWS, [2]], [(2, 2)], {}, "the segments"),
    "CustIndexFill": ([X, [1], torch.tensor([0], dtype=I32), drawn(2)], [(3, 4)], {}, "the value is"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name: str) -> None:
    inputs, sizes, attributes, words = REFUSED[name]
    check_refused(name, inputs, sizes, attributes, words)
