"""spatial/aclop_pool.cpp: means and maxima and their gradients, against torch in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from aclop import check_refused, drawn, near, ran


@pytest.mark.parametrize("padding", ["VALID", "SAME"])
def test_pools_and_their_gradients(padding: str) -> None:
    attributes = {"ksize": [1, 1, 3, 3], "strides": [1, 1, 2, 2], "padding": padding, "data_format": "NCHW"}
    x = drawn(2, 3, 7, 8)
    wide = x.double().requires_grad_()
    # SAME: rows 7 -> 4 windows, 9 wanted: one above and one below; columns 8 -> 4 windows, 9 wanted: one to the right.
    pads = (0, 1, 1, 1) if padding == "SAME" else (0, 0, 0, 0)
    best = F.max_pool2d(F.pad(wide, pads, value=float("-inf")), 3, 2)
    held = F.avg_pool2d(F.pad(torch.ones_like(wide), pads), 3, 2)
    mean = F.avg_pool2d(F.pad(wide, pads), 3, 2) / held
    gradient = drawn(*best.shape)
    (y,) = ran("MaxPool", [x], best.shape, **attributes)
    near(y, best.detach())
    (found,) = ran("MaxPoolGrad", [x, y.float(), gradient], x.shape, **attributes)
    near(found, torch.autograd.grad(best, wide, gradient.double())[0])
    (y,) = ran("AvgPool", [x], mean.shape, **attributes)
    near(y, mean.detach())
    (found,) = ran("AvgPoolGrad", [list(x.shape), gradient], x.shape, **attributes)
    near(found, torch.autograd.grad(mean, wide, gradient.double())[0])


IMAGE = drawn(2, 3, 5, 7)


def test_maxima_in_volumes_and_their_gradient() -> None:
    x = drawn(2, 3, 1, 8, 8)
    how: dict[str, Any] = {"ksize": [1, 3, 3], "strides": [1, 2, 2], "pads": [0, 1, 1], "dilation": [1, 1, 1]}
    wide = x.double().requires_grad_()
    expected, where = F.max_pool3d(wide, (1, 3, 3), (1, 2, 2), (0, 1, 1), return_indices=True)
    y, places = ran("CustMaxPool3DWithArgmax", [x], expected.shape, (*expected.shape, torch.int64), **how)
    near(y, expected.detach())
    assert torch.equal(places.long(), where)
    slope = drawn(*expected.shape)
    expected.backward(slope.double())
    assert wide.grad is not None
    near(ran("CustMaxPool3DGradWithArgmax", [x, slope, where], x.shape, **how)[0], wide.grad)
    (y,) = ran("CustAdaptiveAvgPool2D", [IMAGE], (2, 3, 2, 3), output_size=[2, 3])
    near(y, F.adaptive_avg_pool2d(IMAGE.double(), (2, 3)))


X = drawn(3, 4, 5, 6)
UNFIT: dict[str, tuple[list[Any], tuple[Any, ...], dict[str, Any], str]] = {
    "MaxPool": (
        [X],
        ((3, 4, 2, 2),),
        {"ksize": [1, 1, 2, 2], "strides": [1, 1, 2, 2], "padding": "FULL", "data_format": "NCHW"},
        "allowed are SAME and VALID",
    ),
    "AvgPool": (
        [X],
        ((3, 4, 2, 2),),
        {"ksize": [1, 1, 2, 2], "strides": [1, 1, 2, 2], "padding": "VALID", "data_format": "NCHW"},
        "the output is",
    ),
}


@pytest.mark.parametrize("name", UNFIT)
def test_what_does_not_fit_is_refused(name: str) -> None:
    inputs, sizes, attributes, words = UNFIT[name]
    check_refused(name, inputs, sizes, attributes, words)


# Operator: inputs, outputs, attributes and words of its refusal.
REFUSED: dict[str, tuple[list[Any], list[tuple[int, ...]], dict[str, Any], str]] = {
    "CustMaxPool3DWithArgmax": ([drawn(1, 1, 1, 4, 4)], [(1, 1, 1, 2, 2)] * 2, {"ksize": [2, 2]}, "2 values"),
    "CustAdaptiveAvgPool2D": ([IMAGE], [(2, 3, 2, 2)], {"output_size": [2]}, "1 values"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    inputs, sizes, attributes, words = REFUSED[name]
    check_refused(name, inputs, sizes, attributes, words)
