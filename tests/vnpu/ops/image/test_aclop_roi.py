"""image/aclop_roi.cpp: affine grids and the ends of regions, in float64, and refused calls."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from aclop import check_refused, drawn, near, ran


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


@pytest.mark.parametrize("end", [0, 1, 2, 3])
def test_regions_end_as_they_say(end: int) -> None:
    rois = torch.tensor([[0, 1.0, 2, 9, 7], [1, 4, 1, 12, 10]])
    ramp = torch.arange(8.0).expand(2, 1, 6, 8).contiguous()
    how: dict[str, Any] = {
        "pooled_height": 1,
        "pooled_width": 2,
        "spatial_scale": 0.5,
        "sample_num": 2,
        "roi_end_mode": end,
    }
    (y,) = ran("ROIAlign", [ramp, rois], (2, 1, 1, 2), **how)
    # The mean of a ramp is its value in the middle of a cell.
    first, last = (
        rois[:, 1] * 0.5 - (0.5 if end > 1 else 0),
        (rois[:, 3] + (end == 1)) * 0.5 - (0.5 if end > 1 else 0),
    )
    near(y.flatten(1), torch.stack([first + (last - first) / 4, first + (last - first) * 3 / 4], 1).double())
    (slope,) = ran("ROIAlignGrad", [torch.ones(2, 1, 1, 2), rois], ramp.shape, xdiff_shape=[2, 1, 6, 8], **how)
    near((slope * ramp.double()).sum((1, 2, 3)), y.sum((1, 2, 3)))


POOL: dict[str, Any] = {"pooled_height": 2, "pooled_width": 2, "spatial_scale": 1.0}
IMAGE, LAST = drawn(2, 3, 6, 8), drawn(2, 6, 8, 3)
# Operator: inputs, outputs, attributes; words of the message.
REFUSED: dict[str, tuple[list[Any], list[Any], dict[str, Any], str]] = {
    "ROIAlign": ([IMAGE, drawn(3, 5)], [(3, 3, 2, 2)], {**POOL, "roi_end_mode": 4}, "roi_end_mode 4"),
    "ROIAlign 2": ([IMAGE, drawn(3, 4)], [(3, 3, 2, 2)], POOL, "rois is"),
    "ROIAlignGrad": ([drawn(2, 3, 2, 2), drawn(3, 5)], [(2, 3, 6, 8)], POOL, "what is pooled is"),
    "CustAffineGrid": ([drawn(2, 3, 3), [2, 3, 4, 5]], [(2, 4, 5, 2)], {}, "theta is"),
    "CustAffineGridGrad": ([drawn(2, 4, 4, 2), [2, 3, 4, 5]], [(2, 2, 3)], {}, "the grid is"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name: str) -> None:
    inputs, sizes, attributes, words = REFUSED[name]
    check_refused(name.split()[0], inputs, sizes, attributes, words)
