"""Rows that are put together, filled and looked up, and maxima back in their places, against loops in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from aclop import check_refused, drawn, near, ran

X = drawn(4, 3)


def test_products_of_segments() -> None:
    (y,) = ran("UnsortedSegmentProd", [X, torch.tensor([1, 0, 1, -1]), [3]], (3, 3))
    near(y, torch.stack([X[1].double(), X[0].double() * X[2].double(), torch.ones(3).double()]))


def test_sums_of_segments_in_order() -> None:
    (y,) = ran("SegmentSum", [X, torch.tensor([0, 0, 2, 2])], (3, 3))
    wide = X.double()
    near(y, torch.stack([wide[0] + wide[1], torch.zeros(3).double(), wide[2] + wide[3]]))


@pytest.mark.parametrize("dim", [0, -1])
def test_filled_rows(dim: int) -> None:
    rows = torch.tensor([2, -3], dtype=torch.int32)
    (y,) = ran("CustIndexFill", [X, torch.tensor(dim, dtype=torch.int32), rows, torch.tensor(9.0)], (4, 3))
    expected = X.clone()
    for row in rows.tolist():
        expected[(row, slice(None)) if dim == 0 else (slice(None), row)] = 9
    near(y, expected)


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


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dims", [2, 3])
def test_maxima_back_in_their_places(dims: int, last: bool) -> None:
    x = drawn(2, 3, *(4, 6, 2)[:dims]).double().requires_grad_()
    pool, unpool = (F.max_pool2d, F.max_unpool2d) if dims == 2 else (F.max_pool3d, F.max_unpool3d)
    small, where = pool(x.detach(), 2, return_indices=True)
    small.requires_grad_()
    expected = unpool(small, where, 2)
    slope = drawn(*expected.shape)
    expected.backward(slope.double())
    assert small.grad is not None

    def laid(value: torch.Tensor) -> torch.Tensor:
        return (value.movedim(1, -1) if last else value).contiguous()

    form = {2: "NHWC", 3: "NDHWC"}[dims] if last else {2: "NCHW", 3: "NCDHW"}[dims]
    given, places, out = laid(small.detach().float()), laid(where), laid(expected.detach())
    (y,) = ran(f"CustMaxUnpool{dims}D", [given, places], out.shape, data_format=form)
    near(y, out)
    (y,) = ran(f"CustMaxUnpool{dims}DGrad", [given, laid(slope), places], given.shape, data_format=form)
    near(y, laid(small.grad))


def starts(sample: float, size: int, count: int, window: int) -> list[int]:
    """Where `count` windows begin: the first at 0 and the last at the end, those between by the number that was drawn."""
    alpha = (size - window) / (count - 1) if count > 1 else 0
    return [int((i + sample) * alpha) - int(sample * alpha) for i in range(count - 1)] + [size - window]


@pytest.mark.parametrize("last", [False, True])
def test_maxima_of_windows_at_drawn_places(last: bool) -> None:
    x, samples = drawn(2, 3, 5, 6, 7), torch.rand(2, 3, 3)
    window, count = (2, 1, 3), (3, 4, 2)
    wide = x.double().requires_grad_()
    rows = []
    for n in range(2):
        for c in range(3):
            at = [starts(float(samples[n, c, i]), (5, 6, 7)[i], count[i], window[i]) for i in range(3)]
            rows += [
                wide[n, c, t : t + 2, h : h + 1, w : w + 3].amax()
                for t in at[0]
                for h in at[1]
                for w in at[2]
            ]
    expected = torch.stack(rows).view(2, 3, *count)
    slope = drawn(2, 3, *count)
    expected.backward(slope.double())
    assert wide.grad is not None

    def laid(value: torch.Tensor) -> torch.Tensor:
        return (value.movedim(1, -1) if last else value).contiguous()

    form, out = "NDHWC" if last else "NCDHW", laid(expected.detach())
    y, where = ran(
        "CustFractionalMaxPool3DWithFixedKsize", [laid(x), samples], out.shape, (*out.shape, torch.int64),
        ksize=list(window), output_shape=list(count), data_format=form,
    )  # fmt: skip
    near(y, out)
    places = where.movedim(-1, 1) if last else where
    near(x.double().flatten(2).gather(2, places.long().flatten(2)), expected.detach().flatten(2))
    (grad,) = ran(
        "CustFractionalMaxPool3DGradWithFixedKsize",
        [laid(x), laid(slope), where.long()],
        laid(x).shape,
        data_format=form,
    )
    near(grad, laid(wide.grad))


I32, I64 = torch.int32, torch.int64
# Operator: inputs, outputs, attributes and words of its refusal.
REFUSED: dict[str, tuple[list[Any], list[tuple[Any, ...]], dict[str, Any], str]] = {
    "SegmentSum": ([X, torch.zeros(3, dtype=I32)], [(2, 3)], {}, "the segments is"),
    "CustCoalesce": ([torch.zeros(2, 3, dtype=I64), drawn(2), torch.ones(2, dtype=I64)], [(2, 3, I64), (2,), (2, I64)], {}, "the values is"),
    "CustConcatOffset": ([X, drawn(4, 2)], [(2, 2, I64)], {"axis": 0}, "an input is"),
    "EmbeddingLookup": ([X, torch.zeros(2, dtype=I32), torch.zeros(1, dtype=I64)], [(2, 2)], {}, "the output is"),
    "LowerBound": ([X, drawn(3, 2)], [(3, 2, I32)], {}, "the values is"),
    "UpperBound": ([X, drawn(4, 2)], [(4, 2)], {}, "the output is"),
    "PopulationCount": ([X], [(4, 3, torch.uint8)], {}, "x is"),
    "CustFractionalMaxPool3DWithFixedKsize": ([drawn(1, 4, 4, 4), torch.rand(1, 1, 3)], [(1, 4, 2, 2), (1, 4, 2, 2, I64)], {"ksize": [1, 2, 2], "output_shape": [4, 2, 2]}, "4 windows of 1"),
    "CustFractionalMaxPool3DGradWithFixedKsize": ([drawn(1, 4, 4, 4), drawn(2, 2, 2, 2), torch.zeros(2, 2, 2, 2, dtype=I64)], [(1, 4, 4, 4)], {}, "the gradient is"),
    "CustMaxUnpool2D": ([drawn(1, 2, 2, 2), torch.zeros(1, 2, 2, 1, dtype=I64)], [(1, 2, 4, 4)], {}, "argmax is"),
    "CustMaxUnpool3D": ([drawn(1, 2, 2, 2), torch.zeros(1, 2, 2, 2, dtype=I64)], [(1, 2, 4, 4)], {}, "expected 5 dimensions"),
    "CustMaxUnpool2DGrad": ([drawn(1, 2, 2, 2), drawn(1, 3, 4, 4), torch.zeros(1, 2, 2, 2, dtype=I64)], [(1, 2, 2, 2)], {}, "N and C"),
    "CustMaxUnpool3DGrad": ([drawn(1, 1, 2, 2, 2), drawn(1, 1, 4, 4, 4), torch.zeros(1, 1, 2, 2, 2, dtype=I64)], [(1, 1, 2, 2, 2)], {"data_format": "NCWHD"}, "data_format"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    inputs, sizes, attributes, words = REFUSED[name]
    check_refused(name, inputs, sizes, attributes, words)
