"""image/aclop_crop.cpp where MindSpore's functions do not reach: nearest pixels, whole pixels, and refused calls."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from aclop import check_refused, drawn, near, ran

I32, I64 = torch.int32, torch.int64
IMAGE, LAST = drawn(2, 3, 6, 8), drawn(2, 6, 8, 3)
BOXES = torch.tensor([[0.12, 0.2, 0.7, 0.9], [-0.21, 0.3, 0.62, 1.3]])


def crops(method: str, size: tuple[int, int], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    x = LAST if dtype.is_floating_point else (LAST * 10).to(dtype)
    inputs = [x, BOXES, torch.tensor([1, 0], dtype=I32), list(size)]
    return ran("CustCropAndResize", inputs, (2, *size, 3), method=method, extrapolation_value=7.0)[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.int16])
def test_the_nearest_pixels_of_a_box_or_a_value(dtype: torch.dtype) -> None:
    y = crops("nearest", (4, 3), dtype)
    x = LAST if dtype.is_floating_point else (LAST * 10).to(dtype)
    for k, picture in enumerate((1, 0)):
        for i in range(4):
            for j in range(3):
                row = 5 * float(BOXES[k, 0] + i * (BOXES[k, 2] - BOXES[k, 0]) / 3)
                column = 7 * float(BOXES[k, 1] + j * (BOXES[k, 3] - BOXES[k, 1]) / 2)
                inside = 0 <= row <= 5 and 0 <= column <= 7
                expected = x[picture, round(row), round(column)] if inside else torch.full((3,), 7)
                assert torch.equal(y[k, i, j], expected.double()), (k, i, j)
    assert (y == 7).any() and (y != 7).any()


def test_whole_pixels_of_a_box() -> None:
    """bilinear_v2: the pixels from the box's first to its last, resized with the centres on each other."""
    y = crops("bilinear_v2", (3, 4))
    part = LAST[1, 0:5, 1:8].double().permute(2, 0, 1)[None]  # 0.12 * 6 to 0.7 * 6, 0.2 * 8 to 0.9 * 8
    near(y[0], F.interpolate(part, (3, 4), mode="bilinear")[0].permute(1, 2, 0), 1e-5)


def test_the_gradient_of_the_nearest_pixels() -> None:
    slope = drawn(2, 4, 3, 3)
    inputs = [slope, BOXES, torch.tensor([1, 0], dtype=I32), [2, 6, 8, 3]]
    (found,) = ran("CustCropAndResizeGradImage", inputs, LAST.shape, method="nearest")
    ones = crops("nearest", (4, 3))
    near(found.sum(), slope.double()[ones != 7].sum(), 1e-5)
    # What the gradient gives a pixel is what a crop that has it there gave.
    near((found * LAST.double()).sum(), (slope.double() * ones)[ones != 7].sum(), 1e-5)


def between_pixels(image: torch.Tensor, box: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    """A bilinear crop in float64, by the differences of neighbours, so that autograd gives the gradient of the box."""
    places = []
    for low, high, pixels, count in zip(box[:2], box[2:], image.shape, size, strict=False):
        steps = torch.arange(count, dtype=torch.float64) / (count - 1) if count > 1 else torch.tensor([0.5]).double()
        place = (low + (high - low) * steps) * (pixels - 1)
        first = place.detach().floor().long().clamp(max=pixels - 2)
        places.append((first, place - first))
    (i, down), (j, right) = places
    down, right = down[:, None, None], right[None, :, None]
    above = image[i][:, j] * (1 - right) + image[i][:, j + 1] * right
    below = image[i + 1][:, j] * (1 - right) + image[i + 1][:, j + 1] * right
    return above * (1 - down) + below * down


@pytest.mark.parametrize("size", [(4, 3), (1, 5)])
def test_the_gradient_of_the_boxes(size: tuple[int, int]) -> None:
    boxes = torch.tensor([[0.12, 0.2, 0.7, 0.9], [0.83, 0.05, 0.31, 0.62]])
    slope = drawn(2, *size, 3)
    (found,) = ran("CustCropAndResizeGradBoxes", [slope, LAST, boxes, torch.tensor([1, 0], dtype=I32)], (2, 4))
    exact = boxes.double().requires_grad_()
    for k, picture in enumerate((1, 0)):
        (between_pixels(LAST[picture].double(), exact[k], size) * slope[k].double()).sum().backward()
    near(found, exact.grad, 1e-5)


ROW, TARGET = drawn(4, 5), torch.zeros(4, dtype=I64)
# Operator: inputs, outputs, attributes; words of the message.
REFUSED: dict[str, tuple[list[Any], list[Any], dict[str, Any], str]] = {
    "CustCropAndResize": ([LAST, BOXES, TARGET[:2].int(), [4, 3]], [(2, 4, 3, 3)], {"method": "cubic"}, '"cubic"'),
    "CustCropAndResize 2": ([LAST, BOXES, TARGET.int(), [4, 3]], [(2, 4, 3, 3)], {}, "box_index is"),
    "CustCropAndResize 3": ([LAST, BOXES, TARGET[:2].int(), [4, 4]], [(2, 4, 3, 3)], {}, "the output is"),
    "CustCropAndResizeGradImage": (
        [drawn(2, 4, 3, 3), BOXES, TARGET[:2].int(), [2, 6, 8, 4]],
        [(2, 6, 8, 4)],
        {},
        "image_size",
    ),
    "CustCropAndResizeGradBoxes": (
        [drawn(2, 4, 3, 3), LAST, BOXES, TARGET[:2].int()],
        [(2, 4)],
        {"method": "nearest"},
        "not bilinear",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name: str) -> None:
    inputs, sizes, attributes, words = REFUSED[name]
    check_refused(name.split()[0], inputs, sizes, attributes, words)
