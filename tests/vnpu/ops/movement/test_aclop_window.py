"""movement/aclop_window.cpp: windows and places of triangles against NumPy, and refused calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from aclop import check_refused, near, ran

I32, I64 = torch.int32, torch.int64
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
    for name, places in (
        ("CustTrilIndices", np.tril_indices(3, offset, 5)),
        ("CustTriuIndices", np.triu_indices(3, offset, 5)),
    ):
        (y,) = ran(name, [], (2, len(places[0]), I64), row=3, col=5, offset=offset)
        assert np.array_equal(y.numpy(), np.stack(places))


# Operator: inputs, outputs, attributes; words of the message.
REFUSED: dict[str, tuple[list[Any], list[Any], dict[str, Any], str]] = {
    "CustBartlettWindow": ([[4]], [(5,)], {}, "expected [4]"),
    "CustBlackmanWindow": ([[-1]], [(1,)], {}, "the length is -1"),
    "CustHammingWindow": ([[4]], [(4, I32)], {}, "no dtype"),
    "CustTrilIndices": ([], [(2, 5, I64)], {"row": 3, "col": 3}, "the output is"),
    "CustTriuIndices": ([], [(2, 5, I64)], {"row": -3, "col": 3}, "row and col are -3"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name: str) -> None:
    inputs, sizes, attributes, words = REFUSED[name]
    check_refused(name, inputs, sizes, attributes, words)
