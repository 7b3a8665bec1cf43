"""Attention to a few points between the pixels of several maps, against its definition in float64 and that one's slopes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from aclnn import INVALID_ARGUMENT, NULL_ARGUMENT, first_phase, run

FORWARD, BACKWARD = "aclnnMultiScaleDeformableAttnFunction", "aclnnMultiScaleDeformableAttentionGrad"
BATCH, QUERIES, HEADS, CHANNELS, POINTS = 2, 33, 3, 8, 4
MAPS = [(5, 7), (3, 2), (1, 1)]
STARTS = [0, 35, 41]


def drawn(dtype: torch.dtype, outside: float = 0.2) -> list[torch.Tensor]:
    """Values, places, some beyond the edges, and weights."""
    value = torch.rand(BATCH, sum(a * b for a, b in MAPS), HEADS, CHANNELS) - 0.5
    places = torch.rand(BATCH, QUERIES, HEADS, len(MAPS), POINTS, 2) * (1 + 2 * outside) - outside
    weights = torch.rand(BATCH, QUERIES, HEADS, len(MAPS), POINTS)
    return [each.to(dtype) for each in (value, places, weights)]


def attended(value: torch.Tensor, places: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """By the definition: four pixels around each point, each by how near it is; beyond the edges lie zeros."""
    out = torch.zeros(BATCH, QUERIES, HEADS, CHANNELS, dtype=torch.float64)
    image, head = torch.arange(BATCH).view(-1, 1, 1, 1), torch.arange(HEADS).view(1, 1, -1, 1)
    for level, ((rows, columns), start) in enumerate(zip(MAPS, STARTS, strict=True)):
        x, y = places[:, :, :, level, :, 0] * columns - 0.5, places[:, :, :, level, :, 1] * rows - 0.5
        for right in (0, 1):
            for below in (0, 1):
                column, row = x.detach().floor().long() + right, y.detach().floor().long() + below
                share = ((x - column + 1) if right else (column + 1 - x)) * ((y - row + 1) if below else (row + 1 - y))
                inside = (column >= 0) & (column < columns) & (row >= 0) & (row < rows)
                pixel = start + row.clamp(0, rows - 1) * columns + column.clamp(0, columns - 1)
                part = value[image, pixel, head] * (share * inside * weights[:, :, :, level])[..., None]
                out = out + part.sum(3)
    return out.flatten(2)


def numbers(kind: torch.dtype) -> list[torch.Tensor]:
    return [torch.tensor(MAPS, dtype=kind).npu(), torch.tensor(STARTS, dtype=kind).npu()]


LIMITS = {torch.float32: 2e-6, torch.float16: 4e-3, torch.bfloat16: 4e-2}


@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
@pytest.mark.parametrize("dtype", LIMITS)
def test_values_and_slopes(dtype: torch.dtype, kind: torch.dtype) -> None:
    given = drawn(dtype)
    wide = [each.double().requires_grad_() for each in given]
    expected = attended(*wide)
    out = torch.full((BATCH, QUERIES, HEADS * CHANNELS), 7.0, dtype=dtype).npu()
    value, places, weights = (each.npu() for each in given)
    run(FORWARD, value, *numbers(kind), places, weights, out)
    torch.testing.assert_close(out.cpu().double(), expected, rtol=LIMITS[dtype], atol=LIMITS[dtype])

    back = (torch.rand(expected.shape) - 0.5).to(dtype)
    slopes = torch.autograd.grad(expected, wide, back.double())
    found = [torch.full(each.shape, 7.0, dtype=dtype).npu() for each in given]
    run(BACKWARD, value, *numbers(kind), places, weights, back.npu(), *found)
    for mine, slope in zip(found, slopes, strict=True):
        largest = float(slope.abs().max())
        torch.testing.assert_close(mine.cpu().double(), slope, rtol=LIMITS[dtype], atol=LIMITS[dtype] * largest)
    assert float(slopes[1].abs().max()) > 0.1  # places matter


def test_operands_that_do_not_lie_in_order() -> None:
    value, places, weights = drawn(torch.float32)
    out = torch.empty(HEADS * CHANNELS, QUERIES, BATCH).npu().permute(2, 1, 0)
    turned = [each.transpose(0, 1).contiguous().npu().transpose(0, 1) for each in (value, places, weights)]
    run(FORWARD, turned[0], *numbers(torch.int32), *turned[1:], out)
    expected = attended(value.double(), places.double(), weights.double())
    torch.testing.assert_close(out.cpu().double(), expected, rtol=2e-6, atol=2e-6)


def test_nothing_is_done_where_there_is_nothing() -> None:
    value, places, weights = (each[:0] for each in drawn(torch.float32))
    out = torch.empty(0, QUERIES, HEADS * CHANNELS).npu()
    run(FORWARD, value.npu(), *numbers(torch.int32), places.npu(), weights.npu(), out)
    found = [each.npu() for each in (value, places, weights)]
    run(BACKWARD, value.npu(), *numbers(torch.int32), places.npu(), weights.npu(), out, *found)
    assert out.numel() == 0


@pytest.mark.parametrize("name", [FORWARD, BACKWARD])
def test_what_is_refused(name: str) -> None:
    def said(**changed: Any) -> tuple[int, str]:
        value, places, weights = (each.npu() for each in drawn(torch.float32))
        maps, starts = numbers(torch.int32)
        out = torch.empty(BATCH, QUERIES, HEADS * CHANNELS).npu()
        arguments: dict[str, Any] = {"value": value, "maps": maps, "starts": starts, "places": places}
        arguments |= {"weights": weights, "out": out}
        if name == BACKWARD:
            arguments |= {"a": value.clone(), "b": places.clone(), "c": weights.clone()}
        return first_phase(name, *(arguments | changed).values())

    assert said()[0] == 0
    pixels = sum(a * b for a, b in MAPS)
    few = {
        "places": torch.rand(BATCH, 31, HEADS, 3, POINTS, 2).npu(),
        "weights": torch.rand(BATCH, 31, HEADS, 3, POINTS).npu(),
        "out": torch.empty(BATCH, 31, HEADS * CHANNELS).npu(),
    }
    cases: list[tuple[dict[str, Any], int, str]] = [
        ({"value": None}, NULL_ARGUMENT, "value"),
        ({"value": torch.rand(BATCH, pixels, HEADS, CHANNELS).double().npu()}, INVALID_ARGUMENT, "value has dtype"),
        ({"maps": torch.rand(3, 2).npu()}, INVALID_ARGUMENT, "spatialShape has dtype"),
        ({"maps": torch.ones(3, 3, dtype=torch.int32).npu()}, INVALID_ARGUMENT, "spatialShape has shape"),
        ({"starts": torch.ones(2, dtype=torch.int32).npu()}, INVALID_ARGUMENT, "levelStartIndex has shape"),
        ({"places": torch.rand(BATCH, QUERIES, HEADS, 3, POINTS, 3).npu()}, INVALID_ARGUMENT, "location has shape"),
        ({"weights": torch.rand(BATCH, QUERIES, HEADS, 3, 1).npu()}, INVALID_ARGUMENT, "attnWeight has shape"),
        ({"out": torch.empty(BATCH, QUERIES, CHANNELS).npu()}, INVALID_ARGUMENT, "has shape"),
        (
            {"value": torch.rand(BATCH, pixels, HEADS, 12).npu(), "out": torch.empty(BATCH, QUERIES, HEADS * 12).npu()},
            INVALID_ARGUMENT,
            "multiples of 8 channels",
        ),
        (
            {
                "places": torch.rand(BATCH, QUERIES, HEADS, 3, 17, 2).npu(),
                "weights": torch.rand(BATCH, QUERIES, HEADS, 3, 17).npu(),
            },
            INVALID_ARGUMENT,
            "16 heads, levels and points",
        ),
    ]
    if name == FORWARD:
        cases.append((few, INVALID_ARGUMENT, "32 queries"))
    else:
        cases.append(({"a": torch.rand(2).npu()}, INVALID_ARGUMENT, "gradValue has shape"))
    for changed, code, words in cases:
        status, message = said(**changed)
        assert status == code and words in message, (list(changed), status, message)
