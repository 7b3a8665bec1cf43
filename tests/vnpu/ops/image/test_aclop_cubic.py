"""image/aclop_cubic.cpp: torch's cubic weights and TensorFlow's, in float64, and refused calls."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from aclop import check_refused, drawn, near, ran

IMAGE, LAST = drawn(2, 3, 6, 8), drawn(2, 6, 8, 3)


@pytest.mark.parametrize("corners", [True, False])
@pytest.mark.parametrize("size", [(4, 12), (6, 8), (1, 1)])
def test_cubic_by_attributes_is_torchs(corners: bool, size: tuple[int, int]) -> None:
    how: dict[str, Any] = {
        "mode": "cubic",
        "coordinate_transformation_mode": "align_corners" if corners else "half_pixel",
    }
    wide = IMAGE.double().requires_grad_()
    expected = F.interpolate(wide, size, mode="bicubic", align_corners=corners)
    (y,) = ran("ResizeD", [IMAGE], (2, 3, *size), sizes=list(size), **how)
    near(y, expected.detach())
    slope = drawn(2, 3, *size)
    expected.backward(slope.double())
    assert wide.grad is not None
    near(ran("ResizeGradD", [slope], IMAGE.shape, original_size=[2, 3, 6, 8], **how)[0], wide.grad)


def bicubic(length: int, count: int, place: str) -> torch.Tensor:
    """TensorFlow's weights, [count, length]: a table of 1024 steps; with centres on each other Keys' own coefficient, and
    no weight for what lies outside."""
    centres = place == "half_pixel_centers"
    a = -0.5 if centres else -0.75
    made = torch.zeros(count, length, dtype=torch.float64)
    for i in range(count):
        if place == "align_corners":
            at = i * (length - 1) / max(count - 1, 1)
        else:
            at = (i + 0.5) * length / count - 0.5 if centres else i * length / count
        low = math.floor(at)
        share = round((at - low) * 1024) / 1024
        for k in range(-1, 3):
            d = abs(share - k)
            near_by = (a + 2) * d**3 - (a + 3) * d**2 + 1
            weight = near_by if d <= 1 else a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a if d < 2 else 0
            if not centres or 0 <= low + k < length:
                made[i, min(max(low + k, 0), length - 1)] += weight
        if centres:
            made[i] /= made[i].sum()
    return made


@pytest.mark.parametrize("place", ["align_corners", "half_pixel_centers", ""])
@pytest.mark.parametrize("size", [(4, 12), (9, 8)])
def test_cubic_by_type_is_tensorflows(place: str, size: tuple[int, int]) -> None:
    how = {place: True} if place else {}
    height, width = (bicubic(*each, place) for each in zip((6, 8), size, strict=True))
    (y,) = ran("CustResizeBicubic", [IMAGE, list(size)], (2, 3, *size), **how)
    near(y, height @ IMAGE.double() @ width.T)
    slope = drawn(2, 3, *size)
    near(ran("ResizeBicubicGrad", [slope, IMAGE], IMAGE.shape, **how)[0], height.T @ slope.double() @ width)


def test_a_line_from_its_first_pixels() -> None:
    x = torch.arange(4.0).view(1, 1, 1, 4)
    how: dict[str, Any] = {"mode": "linear", "coordinate_transformation_mode": "asymmetric"}
    (y,) = ran("ResizeD", [x], (1, 1, 1, 8), sizes=[8], **how)
    assert y.flatten().tolist() == [0, 0.5, 1, 1.5, 2, 2.5, 3, 3]
    (slope,) = ran("ResizeGradD", [torch.ones(1, 1, 1, 8)], (1, 1, 1, 4), original_size=[4], **how)
    assert slope.flatten().tolist() == [1.5, 2, 2, 2.5]


# Operator: inputs, outputs, attributes; words of the message.
REFUSED: dict[str, tuple[list[Any], list[Any], dict[str, Any], str]] = {
    "CustResizeBicubic": ([IMAGE, [4, 4]], [(2, 3, 4, 5)], {}, "the output is"),
    "CustResizeBicubic 2": (
        [IMAGE, [4, 4]],
        [(2, 3, 4, 4)],
        {"align_corners": True, "half_pixel_centers": True},
        "both true",
    ),
    "ResizeBicubicGrad": ([drawn(2, 2, 4, 4), IMAGE], [(2, 3, 6, 8)], {}, "the resized image is"),
    "ResizeD": ([IMAGE], [(2, 3, 4, 4)], {"sizes": [4, 4], "mode": "nearest"}, "linear and cubic"),
    "ResizeD 2": ([IMAGE], [(2, 3, 6, 4)], {"sizes": [4], "mode": "linear"}, "a height of 1"),
    "ResizeD 3": ([IMAGE], [(2, 3, 4, 4)], {"sizes": [4, 5], "mode": "cubic"}, "sizes is [4, 5]"),
    "ResizeGradD": ([IMAGE], [(2, 3, 4, 4)], {"original_size": [4, 5], "mode": "cubic"}, "original_size is [4, 5]"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name: str) -> None:
    inputs, sizes, attributes, words = REFUSED[name]
    check_refused(name.split()[0], inputs, sizes, attributes, words)
