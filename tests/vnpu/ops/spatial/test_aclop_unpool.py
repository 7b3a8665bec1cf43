"""spatial/aclop_unpool.cpp: maxima back in their places, and of windows at drawn places, in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from aclop import check_refused, drawn, near, ran

I64 = torch.int64


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
            rows += [wide[n, c, t : t + 2, h : h + 1, w : w + 3].amax() for t in at[0] for h in at[1] for w in at[2]]
    expected = torch.stack(rows).view(2, 3, *count)
    slope = drawn(2, 3, *count)
    expected.backward(slope.double())
    assert wide.grad is not None

    def laid(value: torch.Tensor) -> torch.Tensor:
        return (value.movedim(1, -1) if last else value).contiguous()

    form, out = "NDHWC" if last else "NCDHW", laid(expected.detach())
    y, where = ran(
        "CustFractionalMaxPool3DWithFixedKsize",
        [laid(x), samples],
        out.shape,
        (*out.shape, torch.int64),
        ksize=list(window),
        output_shape=list(count),
        data_format=form,
    )
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


# Operator: inputs, outputs, attributes and words of its refusal.
REFUSED: dict[str, tuple[list[Any], list[tuple[Any, ...]], dict[str, Any], str]] = {
    "CustFractionalMaxPool3DWithFixedKsize": (
        [drawn(1, 4, 4, 4), torch.rand(1, 1, 3)],
        [(1, 4, 2, 2), (1, 4, 2, 2, I64)],
        {"ksize": [1, 2, 2], "output_shape": [4, 2, 2]},
        "4 windows of 1",
    ),
    "CustFractionalMaxPool3DGradWithFixedKsize": (
        [drawn(1, 4, 4, 4), drawn(2, 2, 2, 2), torch.zeros(2, 2, 2, 2, dtype=I64)],
        [(1, 4, 4, 4)],
        {},
        "the gradient is",
    ),
    "CustMaxUnpool2D": ([drawn(1, 2, 2, 2), torch.zeros(1, 2, 2, 1, dtype=I64)], [(1, 2, 4, 4)], {}, "argmax is"),
    "CustMaxUnpool3D": (
        [drawn(1, 2, 2, 2), torch.zeros(1, 2, 2, 2, dtype=I64)],
        [(1, 2, 4, 4)],
        {},
        "expected 5 dimensions",
    ),
    "CustMaxUnpool2DGrad": (
        [drawn(1, 2, 2, 2), drawn(1, 3, 4, 4), torch.zeros(1, 2, 2, 2, dtype=I64)],
        [(1, 2, 2, 2)],
        {},
        "N and C",
    ),
    "CustMaxUnpool3DGrad": (
        [drawn(1, 1, 2, 2, 2), drawn(1, 1, 4, 4, 4), torch.zeros(1, 1, 2, 2, 2, dtype=I64)],
        [(1, 1, 2, 2, 2)],
        {"data_format": "NCWHD"},
        "data_format",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    inputs, sizes, attributes, words = REFUSED[name]
    check_refused(name, inputs, sizes, attributes, words)
