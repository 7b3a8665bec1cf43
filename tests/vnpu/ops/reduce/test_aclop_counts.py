"""reduce/aclop_counts.cpp: histograms, and factors that bring parts to a norm, in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from aclop import check_refused, drawn, near, ran

I32 = torch.int32


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, I32])
@pytest.mark.parametrize("ends", [(-5.0, 5.0), (0.0, 0.0)])
def test_how_many_are_in_each_bin(dtype: torch.dtype, ends: tuple[float, float]) -> None:
    x = (drawn(200) * 4).to(dtype)
    low, high = ends if ends != (0, 0) else (float(x.min()), float(x.max()))
    (y,) = ran("Histogram", [x], (7, I32 if dtype == I32 else torch.float32), bins=7, min=ends[0], max=ends[1])
    edges = torch.linspace(low, high, 8, dtype=torch.float64)
    inside = x.double()[(x >= low) & (x <= high)]
    place = torch.bucketize(inside, edges, right=True).clamp(max=7) - 1  # the last bin has its end
    expected = torch.bincount(place, minlength=7).tolist()
    assert y.tolist() == expected and sum(expected) > 100


@pytest.mark.parametrize("dtype", [torch.float32, I32])
def test_what_lies_outside_is_in_the_last_bins(dtype: torch.dtype) -> None:
    x = torch.tensor([-9, 0, 1, 2, 3, 4, 5, 99]).to(dtype)
    (y,) = ran("HistogramFixedWidth", [x, torch.tensor([0, 5]).to(dtype), [5]], (5, I32), dtype=3)
    assert y.tolist() == [2, 1, 1, 1, 3]


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.5, float("inf")])
@pytest.mark.parametrize("dim", [0, -2])
def test_factors_that_bring_parts_to_a_norm(p: float, dim: int) -> None:
    x = drawn(4, 3, 5)
    most = float(torch.linalg.vector_norm(x.double(), p, [i for i in range(3) if i != dim % 3]).median()) if p else 10.0
    (y,) = ran("Renorm", [x], (4, 1, 1) if dim == 0 else (1, 3, 1), p=p, dim=dim, maxnorm=most)
    norms = torch.linalg.vector_norm(x.double(), p, [i for i in range(3) if i != dim % 3], keepdim=True)
    near(y, torch.where(norms > most, most / (norms + 1e-7), 1.0))
    assert (y < 1).any() and ((y == 1).any() or p == 0)


X = drawn(4, 5)
# Operator: inputs, outputs, attributes; words of the message.
REFUSED: dict[str, tuple[list[Any], list[Any], dict[str, Any], str]] = {
    "Histogram": ([X], [(5,)], {"bins": 4, "max": 1.0}, "the output is"),
    "Histogram 2": ([X], [(5,)], {"bins": 5, "min": 2.0, "max": 1.0}, "min and max are 2 and 1"),
    "HistogramFixedWidth": ([X, drawn(2), [4]], [(5, I32)], {}, "the output is"),
    "HistogramFixedWidth 2": ([X, drawn(2), [0]], [(0, I32)], {}, "nbins is 0"),
    "Renorm": ([X], [(4, 5)], {"p": 2.0, "dim": 0, "maxnorm": 1.0}, "the output is"),
    "Renorm 2": ([X], [(4, 1)], {"p": -1.0, "dim": 0, "maxnorm": 1.0}, "p and maxnorm are -1"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name: str) -> None:
    inputs, sizes, attributes, words = REFUSED[name]
    check_refused(name.split()[0], inputs, sizes, attributes, words)
