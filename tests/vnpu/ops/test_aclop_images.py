"""Operators of the old API that cut, resize and drop parts of images, where MindSpore's functions do not reach (their values
and gradients are in tests/mindspore/test_mindspore_images.py), and what they refuse."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from aclop import check_refused, drawn, near, ran

I32, I64, BOOL = torch.int32, torch.int64, torch.bool
IMAGE, LAST = drawn(2, 3, 6, 8), drawn(2, 6, 8, 3)
COLUMNS: dict[str, Any] = {"kernel_size": [2, 2], "dilation": [1, 1], "padding": [0, 0], "stride": [1, 1]}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, I32])
def test_columns_of_any_dtype(dtype: torch.dtype) -> None:
    x = (IMAGE * 10).to(dtype)
    (y,) = ran("CustIm2col", [x], (2, 3, 4, 35, dtype), ksizes=[2], strides=[1], dilations=[1], pads=[0])
    assert torch.equal(y.flatten(1, 2), F.unfold(x.double(), 2))


def test_padding_to_the_same_size() -> None:
    how: dict[str, Any] = {"ksizes": [3, 2], "strides": [2, 2], "dilations": [1, 1]}
    (y,) = ran("CustIm2col", [IMAGE], (2, 3, 6, 12), padding_mode="SAME", **how)
    near(y.flatten(1, 2), F.unfold(F.pad(IMAGE.double(), (0, 0, 0, 1)), (3, 2), stride=2))
    (y,) = ran("CustIm2col", [IMAGE], (2, 3, 6, 8), padding_mode="VALID", pads=[5, 5], **how)
    near(y.flatten(1, 2), F.unfold(IMAGE.double(), (3, 2), stride=2))
    attributes = {"ksizes": [1, 1, 3, 2], "strides": [1, 1, 2, 2], "rates": [1, 1, 1, 1], "padding": "SAME"}
    (y,) = ran("ExtractImagePatches", [IMAGE], (2, 18, 3, 4), **attributes)
    expected = F.unfold(F.pad(IMAGE.double(), (0, 0, 0, 1)), (3, 2), stride=2).view(2, 3, 6, 3, 4)
    near(y, expected.transpose(1, 2).reshape(y.shape))


@pytest.mark.parametrize("corners", [True, False])
@pytest.mark.parametrize("size", [(4, 12), (6, 8), (1, 1)])
def test_cubic_by_attributes_is_torchs(corners: bool, size: tuple[int, int]) -> None:
    how: dict[str, Any] = {"mode": "cubic", "coordinate_transformation_mode": "align_corners" if corners else "half_pixel"}  # fmt: skip
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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_columns_become_an_image(dtype: torch.dtype) -> None:
    """Overlapping ones are added up in float32 and rounded once."""
    x = drawn(2, 3, 4, 35).to(dtype)
    (y,) = ran("Col2im", [x, [6, 8]], (2, 3, 6, 8, dtype), **COLUMNS)
    exact = F.fold(x.double().flatten(1, 2), (6, 8), 2)
    assert (
        torch.equal(y, exact.to(dtype).double())
        if dtype == torch.float16
        else torch.allclose(y, exact, atol=1e-6)
    )


@pytest.mark.parametrize("corners", [None, False, True])
@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 3, 2, 4, 5)])
def test_affine_grids(corners: bool | None, shape: tuple[int, ...]) -> None:
    axes = len(shape) - 2
    theta, how = drawn(2, axes, axes + 1), {} if corners is None else {"align_corners": corners}
    wide = theta.double().requires_grad_()
    expected = F.affine_grid(wide, list(shape), align_corners=bool(corners))
    near(ran("CustAffineGrid", [theta, list(shape)], expected.shape, **how)[0], expected.detach())
    slope = drawn(*expected.shape)
    expected.backward(slope.double())
    near(ran("CustAffineGridGrad", [slope, list(shape)], theta.shape, **how)[0], wide.grad)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("p", [1, 2])
def test_margins_between_classes(reduction: str, p: int) -> None:
    x, weight, target = drawn(4, 5), drawn(5).abs(), torch.tensor([1, 0, 4, 2])
    wide = x.double().requires_grad_()
    expected = F.multi_margin_loss(wide, target, p=p, margin=0.7, weight=weight.double(), reduction=reduction)
    how: dict[str, Any] = {"p": p, "margin": 0.7, "reduction": reduction}
    size = (4,) if reduction == "none" else (1,)
    near(
        ran("CustMultiMarginLoss", [x, target, weight], size, **how)[0].view(expected.shape),
        expected.detach(),
    )
    slope = drawn(*size)
    expected.backward(slope.double().view(expected.shape))
    near(ran("CustMultiMarginLossGrad", [slope, x, target, weight], x.shape, **how)[0], wide.grad)


def test_a_line_from_its_first_pixels() -> None:
    x = torch.arange(4.0).view(1, 1, 1, 4)
    how: dict[str, Any] = {"mode": "linear", "coordinate_transformation_mode": "asymmetric"}
    (y,) = ran("ResizeD", [x], (1, 1, 1, 8), sizes=[8], **how)
    assert y.flatten().tolist() == [0, 0.5, 1, 1.5, 2, 2.5, 3, 3]
    (slope,) = ran("ResizeGradD", [torch.ones(1, 1, 1, 8)], (1, 1, 1, 4), original_size=[4], **how)
    assert slope.flatten().tolist() == [1.5, 2, 2, 2.5]


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


@pytest.mark.parametrize("end", [0, 1, 2, 3])
def test_regions_end_as_they_say(end: int) -> None:
    rois = torch.tensor([[0, 1.0, 2, 9, 7], [1, 4, 1, 12, 10]])
    ramp = torch.arange(8.0).expand(2, 1, 6, 8).contiguous()
    how: dict[str, Any] = {"pooled_height": 1, "pooled_width": 2, "spatial_scale": 0.5, "sample_num": 2, "roi_end_mode": end}  # fmt: skip
    (y,) = ran("ROIAlign", [ramp, rois], (2, 1, 1, 2), **how)
    # The mean of a ramp is its value in the middle of a cell.
    first, last = (
        rois[:, 1] * 0.5 - (0.5 if end > 1 else 0),
        (rois[:, 3] + (end == 1)) * 0.5 - (0.5 if end > 1 else 0),
    )
    near(y.flatten(1), torch.stack([first + (last - first) / 4, first + (last - first) * 3 / 4], 1).double())
    (slope,) = ran(
        "ROIAlignGrad", [torch.ones(2, 1, 1, 2), rois], ramp.shape, xdiff_shape=[2, 1, 6, 8], **how
    )
    near((slope * ramp.double()).sum((1, 2, 3)), y.sum((1, 2, 3)))


@pytest.mark.parametrize("rank", [4, 5])
@pytest.mark.parametrize("keep", [0.0, 0.25, 0.8, 1.0])
def test_whole_channels_are_dropped(rank: int, keep: float) -> None:
    x = drawn(40, 25, *[3] * (rank - 2)).abs() + 1
    y, mask = ran(f"CustDropout{rank - 2}D", [x], x.shape, (*x.shape, BOOL), keep_prob=keep)
    kept = mask.flatten(2)
    assert torch.equal(kept.amax(2), kept.amin(2))
    near(y, torch.where(mask != 0, x.double() / max(keep, 1e-9), 0.0))
    # 1000 channels: within 5 standard deviations.
    assert abs(float(kept.amax(2).mean()) - keep) <= 5 * (keep * (1 - keep) / 1000) ** 0.5
    other = ran(f"CustDropout{rank - 2}D", [x], x.shape, (*x.shape, BOOL), keep_prob=keep)[1]
    assert torch.equal(other, mask) == (keep in (0, 1))


def test_halves_are_divided_by_a_half() -> None:
    x = drawn(8, 8, 5, 5).half()
    y, mask = ran("CustDropout2D", [x], (*x.shape, torch.float16), (*x.shape, BOOL), keep_prob=0.7)
    assert torch.equal(y, (x.float() / torch.tensor(0.7).half().float()).half().double() * mask)


def test_integers_are_truncated() -> None:
    x = torch.full((8, 8, 2, 2), 7, dtype=I32)
    (y, mask) = ran("CustDropout2D", [x], (*x.shape, I32), (*x.shape, BOOL), keep_prob=0.4)
    assert torch.equal(y, mask * 17)


PATCHES: dict[str, Any] = {
    "ksizes": [1, 1, 2, 2],
    "strides": [1, 1, 1, 1],
    "rates": [1, 1, 1, 1],
    "padding": "VALID",
}
POOL: dict[str, Any] = {"pooled_height": 2, "pooled_width": 2, "spatial_scale": 1.0}
ROW, TARGET = drawn(4, 5), torch.zeros(4, dtype=I64)
# Operator: inputs, outputs, attributes; words of the message.
REFUSED: dict[str, tuple[list[Any], list[Any], dict[str, Any], str]] = {
    "CustIm2col": ([IMAGE], [(2, 3, 4, 35)], {"ksizes": [2, 9]}, "reaches over 9 pixels"),
    "CustIm2col 2": ([IMAGE], [(2, 3, 4, 34)], {"ksizes": [2]}, "the output is"),
    "CustIm2col 3": ([IMAGE], [(2, 3, 4, 35)], {"ksizes": [2], "padding_mode": "FULL"}, '"FULL"'),
    "Col2im": ([drawn(2, 3, 4, 20), [6, 6]], [(2, 3, 6, 6)], COLUMNS, "x is"),
    "Col2im 2": ([drawn(2, 3, 4, 20), [6, 5]], [(2, 3, 6, 5)], {**COLUMNS, "stride": [0, 1]}, "stride has the value 0"),
    "ExtractImagePatches": ([IMAGE], [(2, 12, 5, 7)], {**PATCHES, "ksizes": [1, 2, 2, 1]}, "ksizes is not 1, 1"),
    "ExtractImagePatches 2": ([IMAGE], [(2, 12, 5, 7)], {**PATCHES, "padding": "FULL"}, "SAME and VALID"),
    "CustResizeBicubic": ([IMAGE, [4, 4]], [(2, 3, 4, 5)], {}, "the output is"),
    "CustResizeBicubic 2": ([IMAGE, [4, 4]], [(2, 3, 4, 4)], {"align_corners": True, "half_pixel_centers": True}, "both true"),
    "ResizeBicubicGrad": ([drawn(2, 2, 4, 4), IMAGE], [(2, 3, 6, 8)], {}, "the resized image is"),
    "ResizeD": ([IMAGE], [(2, 3, 4, 4)], {"sizes": [4, 4], "mode": "nearest"}, "linear and cubic"),
    "ResizeD 2": ([IMAGE], [(2, 3, 6, 4)], {"sizes": [4], "mode": "linear"}, "a height of 1"),
    "ResizeD 3": ([IMAGE], [(2, 3, 4, 4)], {"sizes": [4, 5], "mode": "cubic"}, "sizes is [4, 5]"),
    "ResizeGradD": ([IMAGE], [(2, 3, 4, 4)], {"original_size": [4, 5], "mode": "cubic"}, "original_size is [4, 5]"),
    "CustCropAndResize": ([LAST, BOXES, TARGET[:2].int(), [4, 3]], [(2, 4, 3, 3)], {"method": "cubic"}, '"cubic"'),
    "CustCropAndResize 2": ([LAST, BOXES, TARGET.int(), [4, 3]], [(2, 4, 3, 3)], {}, "box_index is"),
    "CustCropAndResize 3": ([LAST, BOXES, TARGET[:2].int(), [4, 4]], [(2, 4, 3, 3)], {}, "the output is"),
    "CustCropAndResizeGradImage": ([drawn(2, 4, 3, 3), BOXES, TARGET[:2].int(), [2, 6, 8, 4]], [(2, 6, 8, 4)], {}, "image_size"),
    "CustCropAndResizeGradBoxes": ([drawn(2, 4, 3, 3), LAST, BOXES, TARGET[:2].int()], [(2, 4)], {"method": "nearest"}, "not bilinear"),
    "ROIAlign": ([IMAGE, drawn(3, 5)], [(3, 3, 2, 2)], {**POOL, "roi_end_mode": 4}, "roi_end_mode 4"),
    "ROIAlign 2": ([IMAGE, drawn(3, 4)], [(3, 3, 2, 2)], POOL, "rois is"),
    "ROIAlignGrad": ([drawn(2, 3, 2, 2), drawn(3, 5)], [(2, 3, 6, 8)], POOL, "what is pooled is"),
    "CustAffineGrid": ([drawn(2, 3, 3), [2, 3, 4, 5]], [(2, 4, 5, 2)], {}, "theta is"),
    "CustAffineGridGrad": ([drawn(2, 4, 4, 2), [2, 3, 4, 5]], [(2, 2, 3)], {}, "the grid is"),
    "CustDropout2D": ([drawn(2, 3, 4)], [(2, 3, 4), (2, 3, 4, BOOL)], {"keep_prob": 0.5}, "expected 4 dimensions"),
    "CustDropout3D": ([drawn(2, 3, 4, 1, 1)], [(2, 3, 4, 1, 1), (2, 3, 4, 1, 1, BOOL)], {"keep_prob": 1.5}, "keep_prob is 1.5"),
    "CustMultiMarginLoss": ([ROW, TARGET, drawn(5)], [(1,)], {"p": 3}, "p is 3"),
    "CustMultiMarginLoss 2": ([ROW, TARGET, drawn(4)], [(1,)], {}, "weight is"),
    "CustMultiMarginLossGrad": ([drawn(1), ROW, TARGET, drawn(5)], [(4, 5)], {"reduction": "none"}, "the gradient is"),
    "MultilabelMarginLoss": ([ROW, torch.zeros(4, 5, dtype=I64)], [(1,), (4, 5, I32)], {}, "target or is_target is"),
    "CustMultilabelMarginLossGrad": ([drawn(1), ROW, torch.zeros(4, 5, dtype=I32), torch.zeros(4, 4, dtype=I32)], [(4, 5)], {}, "target or is_target is"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name: str) -> None:
    inputs, sizes, attributes, words = REFUSED[name]
    check_refused(name.split()[0], inputs, sizes, attributes, words)
