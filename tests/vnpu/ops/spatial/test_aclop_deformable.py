"""spatial/aclop_deformable.cpp against bilinear reads in float64."""

from __future__ import annotations

import pytest
import torch
import torch_npu
from aclop import drawn, ran
from oracle import compare, random
from torch import Tensor
from torch.nn import functional


def sampled(x: Tensor, offset: Tensor, kernel: int, stride: int, pad: int, dilation: int, groups: int) -> Tensor:
    """Columns for a convolution with stride `kernel`: bilinear reads of x at moved places, times weights."""
    n, c, height, width = x.shape
    rows, columns = offset.shape[2:]
    moves = offset.view(n, 3, groups, kernel, kernel, rows, columns)
    k = torch.arange(kernel, dtype=x.dtype) * dilation - pad
    y = moves[:, 1] + k[:, None, None, None] + (torch.arange(rows, dtype=x.dtype) * stride)[:, None]
    z = moves[:, 0] + k[:, None, None] + torch.arange(columns, dtype=x.dtype) * stride
    place = torch.stack([2 * z / (width - 1) - 1, 2 * y / (height - 1) - 1], -1)  # [n, groups, k, k, rows, columns, 2]
    place = place.permute(0, 1, 4, 2, 5, 3, 6).reshape(n * groups, rows * kernel, columns * kernel, 2)
    read = functional.grid_sample(x.reshape(n * groups, c // groups, height, width), place, align_corners=True)
    weight = moves[:, 2].permute(0, 1, 4, 2, 5, 3).reshape(n * groups, 1, rows * kernel, columns * kernel)
    return (read * weight).view(n, c, rows * kernel, columns * kernel)


@pytest.mark.parametrize(("stride", "pad", "dilation", "groups"), [(1, 1, 1, 1), (2, 0, 2, 2)])
def test_deformable_convolution(stride: int, pad: int, dilation: int, groups: int) -> None:
    kernel, size = 3, 9
    out = (size + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1
    x, weight, bias = random(2, 4, size, size), random(5, 4, kernel, kernel, seed=1), random(5, seed=2)
    offset = random(2, 3 * groups * kernel * kernel, out, out, low=-1.5, high=1.5, seed=3)
    leaves = [t.float().npu().requires_grad_() for t in (x, weight, offset, bias)]
    exact = [t.float().double().requires_grad_() for t in (x, weight, offset, bias)]
    actual, columns = torch_npu.npu_deformable_conv2d(
        *leaves,
        kernel_size=[kernel] * 2,
        stride=[1, 1, stride, stride],
        padding=[pad] * 4,
        dilation=[1, 1, dilation, dilation],
        groups=1,
        deformable_groups=groups,
        modulated=True,
    )
    made = sampled(exact[0], exact[2], kernel, stride, pad, dilation, groups)
    expected = functional.conv2d(made, exact[1], exact[3], stride=kernel)
    compare(columns, made.detach(), torch.float32, ulps=32, scale=1)  # places are float32
    compare(actual, expected.detach(), torch.float32, ulps=16, scale=8)
    seed = random(*expected.shape, seed=4).float()
    actual.backward(seed.npu())
    expected.backward(seed.double())
    for leaf, one in zip(leaves, exact, strict=True):
        assert one.grad is not None
        compare(leaf.grad, one.grad, torch.float32, ulps=32, scale=float(one.grad.abs().max()))


def test_deformable_samples_with_the_channels_first() -> None:
    """As with the channels last, which test_deformable_convolution judges."""
    x, offsets, slope = drawn(2, 5, 6, 4), drawn(2, 3, 3, 3 * 2 * 2 * 1), drawn(2, 6, 3, 4)
    last = {
        "ksize": [2, 1],
        "strides": [1, 2, 1, 1],
        "pads": [0, 1, 0, 0],
        "dilations": [1, 1, 3, 1],
        "deformable_groups": 2,
    }
    first = {**last, "strides": [1, 1, 2, 1], "dilations": [1, 1, 1, 3], "data_format": "NCHW"}

    def turned(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.permute(0, 3, 1, 2).contiguous()

    (y,) = ran("DeformableOffsets", [x, offsets], slope.shape, **last)
    (same,) = ran("DeformableOffsets", [turned(x), turned(offsets)], turned(slope).shape, **first)
    assert torch.equal(turned(y), same) and y.abs().max() > 0.1
    back = ran("DeformableOffsetsGrad", [slope, x, offsets], x.shape, offsets.shape, **last)
    turned_back = ran(
        "DeformableOffsetsGrad",
        [turned(each) for each in (slope, x, offsets)],
        turned(x).shape,
        turned(offsets).shape,
        **first,
    )
    for one, other in zip(back, turned_back, strict=True):
        assert torch.equal(turned(one), other) and one.abs().max() > 0.1
