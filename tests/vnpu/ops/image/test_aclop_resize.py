"""image/aclop_resize.cpp: pixels and lines between them, in float64, and refused calls."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from aclop import INVALID_ARGUMENT, check_refused, drawn, launch, near, ran

IMAGE = drawn(2, 3, 5, 7)


@pytest.mark.parametrize("size", [(9, 4), (5, 7), (1, 1)])
def test_other_sizes(size: tuple[int, int]) -> None:
    x, out = IMAGE.double(), (2, 3, *size)
    near(ran("ResizeNearestNeighborV2", [IMAGE, list(size)], out)[0], F.interpolate(x, size))
    (y,) = ran("ResizeNearestNeighborV2", [IMAGE, list(size)], out, half_pixel_centers=True)
    near(y, F.interpolate(x, size, mode="nearest-exact"))
    (y,) = ran("ResizeBilinearV2", [IMAGE, list(size)], out, half_pixel_centers=True)
    near(y, F.interpolate(x, size, mode="bilinear"))
    (y,) = ran("ResizeBilinearV2", [IMAGE, list(size)], out, align_corners=True)
    near(y, F.interpolate(x, size, mode="bilinear", align_corners=True))
    # Neither: the first pixels lie on each other.
    (y,) = ran("ResizeBilinearV2", [IMAGE, list(size)], out)
    rows, columns = ([min(i * n / m, n - 1) for i in range(m)] for n, m in zip((5, 7), size, strict=True))
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            a, b = int(row), int(column)
            corner = x[..., a : a + 2, b : b + 2]
            corner = F.pad(corner, (0, 2 - corner.shape[3], 0, 2 - corner.shape[2]), "replicate")
            u, v = row - a, column - b
            weights = torch.tensor([[(1 - u) * (1 - v), (1 - u) * v], [u * (1 - v), u * v]], dtype=torch.float64)
            near(y[..., i, j], (corner * weights).sum((2, 3)))


# Operator: inputs, the output's sizes, attributes; words of the message.
UNFIT_CALLS = {
    "ResizeBilinearV2Grad": ([drawn(1, 2, 4, 4), drawn(1, 2, 3, 3)], (1, 2, 3, 2), {}, "the gradient of x is"),
    "ResizeNearestNeighborV2Grad": ([drawn(1, 2, 4, 4), [3, 0]], (1, 2, 3, 3), {}, "the size"),
}


@pytest.mark.parametrize("name", UNFIT_CALLS)
def test_a_call_that_does_not_fit_is_refused(name: str) -> None:
    inputs, size, attributes, words = UNFIT_CALLS[name]
    operands = [each.npu() if isinstance(each, torch.Tensor) else each for each in inputs]
    outputs = [torch.zeros(size).npu() for _ in range(8)]
    status, message = launch(name, operands, outputs, **attributes)
    assert status == INVALID_ARGUMENT and words in message and name in message, (status, message)


# Operator: inputs, outputs, attributes and words of its refusal.
REFUSED: dict[str, tuple[list[Any], list[tuple[int, ...]], dict[str, Any], str]] = {
    "ResizeBilinearV2": ([IMAGE, [2, 0]], [(2, 3, 2, 1)], {}, "2 positive values"),
    "ResizeNearestNeighborV2": (
        [IMAGE, [2, 2]],
        [(2, 3, 2, 2)],
        {"align_corners": True, "half_pixel_centers": True},
        "both true",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    inputs, sizes, attributes, words = REFUSED[name]
    check_refused(name, inputs, sizes, attributes, words)
