"""index/aclop_index.cpp: rows and elements at indices, bands and segments, against loops in float64, and refused calls."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from aclop import INVALID_ARGUMENT, check_refused, drawn, launch, near, ran

I32 = torch.int32


@pytest.mark.parametrize("accumulate", [0, 1])
def test_putting_at_places(accumulate: int) -> None:
    x, values = drawn(3, 4), drawn(3)
    places = [torch.tensor([0, 2, 0], dtype=I32), torch.tensor([1, 3, 1 + 1 - accumulate], dtype=I32)]
    (found,) = ran("CustIndexPut", [x, values, *places], (3, 4), accumulate=accumulate)
    expected = x.double().clone()
    for value, i, j in zip(values.tolist(), *(place.tolist() for place in places), strict=True):
        expected[i, j] = value + (expected[i, j] if accumulate else 0)
    near(found, expected)


@pytest.mark.parametrize("axis", [0, -1])
def test_rows_are_added_along_an_axis(axis: int) -> None:
    data, places = drawn(4, 5), torch.tensor([3, 0, 3])
    updates = drawn(*((3, 5) if axis == 0 else (4, 3)))
    (found,) = ran("InplaceIndexAdd", [data, places, updates], (4, 5), axis=axis)
    expected = data.double()
    for i, place in enumerate(places):
        expected.select(axis, int(place)).add_(updates.double().select(axis, i))
    near(found, expected)


@pytest.mark.parametrize("reduction", ["none", "add", "mul"])
def test_elements_are_scattered_along_an_axis(reduction: str) -> None:
    data, updates, places = drawn(4, 5), drawn(2, 5), torch.tensor([[0, 1, 2, 3, 0], [-1, 3, 1, 2, 0]])
    (found,) = ran("ScatterElements", [data, places, updates], (4, 5), axis=0, reduction=reduction)
    expected = data.double()
    if reduction == "none":
        places, updates = places[:, :4], updates[:, :4]  # the last column writes one place twice
        found, expected = found[:, :4], expected[:, :4].clone()
    for i in range(places.shape[0]):
        for j in range(places.shape[1]):
            value, k = updates[i, j].double(), int(places[i, j])
            before = expected[k, j]
            expected[k, j] = {"none": value, "add": before + value, "mul": before * value}[reduction]
    near(found, expected)


X = drawn(4, 3)


def test_products_of_segments() -> None:
    (y,) = ran("UnsortedSegmentProd", [X, torch.tensor([1, 0, 1, -1]), [3]], (3, 3))
    near(y, torch.stack([X[1].double(), X[0].double() * X[2].double(), torch.ones(3).double()]))


@pytest.mark.parametrize("dim", [0, -1])
def test_filled_rows(dim: int) -> None:
    rows = torch.tensor([2, -3], dtype=torch.int32)
    (y,) = ran("CustIndexFill", [X, torch.tensor(dim, dtype=torch.int32), rows, torch.tensor(9.0)], (4, 3))
    expected = X.clone()
    for row in rows.tolist():
        expected[(row, slice(None)) if dim == 0 else (slice(None), row)] = 9
    near(y, expected)


@pytest.mark.parametrize(("below", "above"), [(1, 0), (0, 2), (-1, 1), (1, -1), (-1, -1)])
def test_a_band_of_a_matrix(below: int, above: int) -> None:
    x = drawn(2, 4, 5)
    (y,) = ran("MatrixBandPart", [x, [below], [above]], x.shape)
    rows, columns = torch.arange(4).view(-1, 1), torch.arange(5)
    kept = ((rows - columns <= below) | (below < 0)) & ((columns - rows <= above) | (above < 0))
    assert torch.equal(y, torch.where(kept, x.double(), 0.0))


def test_an_empty_segment_has_the_end_of_the_numbers() -> None:
    x, ids = drawn(3, 2), torch.tensor([2, -1, 2])
    for name, extreme in (("Max", torch.finfo(torch.float32).min), ("Min", torch.finfo(torch.float32).max)):
        (y,) = ran(f"UnsortedSegment{name}", [x, ids, [3]], (3, 2))
        assert (y[:2] == extreme).all() and (y[2] != extreme).all()


def test_indices_without_a_dimension_are_refused() -> None:
    """Their last size, which says how many dimensions they name, is not there."""
    operands = [torch.tensor(0).npu(), drawn(1).npu(), [3]]
    status, message = launch("ScatterNd", operands, [torch.zeros(3).npu()])
    assert status == INVALID_ARGUMENT and "the indices are" in message, (status, message)


def test_products_of_segments_and_a_filled_axis() -> None:
    x, ids = drawn(4, 3), torch.tensor([2, 0, 2, -1])
    (y,) = ran("UnsortedSegmentProd", [x, ids, [3]], (3, 3))
    wide = x.double()
    near(y, torch.stack([wide[1], torch.ones(3).double(), wide[0] * wide[2]]))
    inputs = [x, [-1], torch.tensor([0, 2], dtype=I32), torch.tensor(5.0)]
    (y,) = ran("CustIndexFill", inputs, (4, 3))
    assert (y[:, [0, 2]] == 5).all() and torch.equal(y[:, 1], wide[:, 1])


ROWS = torch.tensor([0, 1])
MATRIX = drawn(3, 4) * 3
VOLUME = drawn(3, 6, 5)
# Operator: inputs, the output's sizes, attributes; words of the message.
REFUSED_CALLS: dict[str, tuple[list[Any], tuple[Any, ...], dict[str, Any], str]] = {
    "CustIndexPut": ([drawn(3), drawn(1), torch.tensor([0.5])], (3,), {}, "no dtype")
}


@pytest.mark.parametrize("name", REFUSED_CALLS)
def test_refused(name: str) -> None:
    inputs, size, attributes, words = REFUSED_CALLS[name]
    check_refused(name, inputs, [size], attributes, words)


REFUSED: dict[str, tuple[list[Any], torch.Tensor, dict[str, Any], str]] = {
    "InplaceIndexAdd": ([VOLUME[0], VOLUME[0, 0].long(), VOLUME[0]], VOLUME[0], {"axis": 0}, "the updates is"),
    "ScatterElements": ([VOLUME, VOLUME.long(), VOLUME], VOLUME, {"reduction": "min"}, 'reduction is "min"'),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    inputs, out, attributes, words = REFUSED[name]
    operands = [each.npu() if isinstance(each, torch.Tensor) else each for each in inputs]
    status, message = launch(name, operands, [torch.zeros_like(out).npu()], **attributes)
    assert status == INVALID_ARGUMENT and words in message and name in message, (status, message)


# Operator: inputs, the output's sizes, attributes; words of the message.
UNFIT_CALLS = {
    "ScatterNd": ([torch.tensor([[0]]), drawn(2), [3]], (3,), {}, "the updates is"),
    "UnsortedSegmentMax": ([drawn(3, 2), torch.tensor([0, 1]), [2]], (2, 2), {}, "the segments"),
    "UnsortedSegmentMin": ([drawn(3, 2), torch.tensor([0, 1]), [2]], (2, 2), {}, "the segments"),
    "ReverseSequence": ([drawn(3, 2), torch.tensor([0, 1, 2])], (3, 2), {"seq_dim": 0, "batch_dim": 0}, "batch_dim 0"),
    "MatrixBandPart": ([drawn(3), [0], [0]], (3,), {}, "expected matrices"),
}


@pytest.mark.parametrize("name", UNFIT_CALLS)
def test_a_call_that_does_not_fit_is_refused(name: str) -> None:
    inputs, size, attributes, words = UNFIT_CALLS[name]
    operands = [each.npu() if isinstance(each, torch.Tensor) else each for each in inputs]
    outputs = [torch.zeros(size).npu() for _ in range(8)]
    status, message = launch(name, operands, outputs, **attributes)
    assert status == INVALID_ARGUMENT and words in message and name in message, (status, message)


UNFIT: dict[str, tuple[list[Any], tuple[Any, ...], dict[str, Any], str]] = {
    "OneHot": ([torch.tensor([0], dtype=torch.int32), [4], drawn(1), drawn(1)], ((1, 5),), {}, "the output"),
    "TopK": ([drawn(3), [4]], ((4,), (4, torch.int32)), {}, "k is 4"),
    "UnsortedSegmentSum": ([drawn(3, 2), torch.tensor([0, 1]), [2]], ((2, 2),), {}, "the segments"),
    "GatherNd": ([drawn(3), torch.tensor([[0, 1]])], ((1,),), {}, "the indices"),
    "UnsortedSegmentProd": ([drawn(3, 2), ROWS, [2]], [(2, 2)], {}, "the segments"),
    "CustIndexFill": ([MATRIX, [1], torch.tensor([0], dtype=I32), drawn(2)], [(3, 4)], {}, "the value is"),
}


@pytest.mark.parametrize("name", UNFIT)
def test_what_does_not_fit_is_refused(name: str) -> None:
    inputs, sizes, attributes, words = UNFIT[name]
    check_refused(name, inputs, sizes, attributes, words)
