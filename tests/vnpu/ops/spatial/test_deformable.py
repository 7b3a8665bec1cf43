"""A convolution whose points move, against a loop over its definition in float64."""

import math

import pytest
import torch
from aclnn import INVALID_ARGUMENT, first_phase, run
from oracle import FLOATS, random


def points(
    x: torch.Tensor,
    offset: torch.Tensor,
    kernel: tuple[int, int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    parts: int,
) -> torch.Tensor:
    n, channels, rows, columns = x.shape
    kh, kw = kernel
    high, wide = offset.shape[2:]
    moves = offset.view(n, 3, parts, kh, kw, high, wide)
    out = torch.zeros(n, channels, high * kh, wide * kw, dtype=torch.float64)

    def pixel(b: int, c: int, row: int, column: int) -> float:
        inside = 0 <= row < rows and 0 <= column < columns
        return float(x[b, c, row, column]) if inside else 0.0

    for b, c, i, j, h, w in torch.cartesian_prod(
        *(torch.arange(size) for size in (n, channels, kh, kw, high, wide))
    ).tolist():
        part = c // (channels // parts)
        across, down, weight = (float(moves[b, which, part, i, j, h, w]) for which in range(3))
        down += h * stride[2] - padding[0] + i * dilation[2]
        across += w * stride[3] - padding[2] + j * dilation[3]
        top, left = math.floor(down), math.floor(across)
        value = sum(
            pixel(b, c, top + a, left + e) * (1 - abs(down - top - a)) * (1 - abs(across - left - e))
            for a in (0, 1)
            for e in (0, 1)
        )
        out[b, c, h * kh + i, w * kw + j] = value * weight
    return out


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("groups", "parts"), [(1, 1), (2, 1), (1, 2)])
@pytest.mark.parametrize("bias", [False, True])
def test_deformable(dtype: torch.dtype, groups: int, parts: int, bias: bool) -> None:
    stride, padding, dilation, kernel = [1, 1, 2, 1], [1, 0, 1, 1], [1, 1, 1, 2], (2, 3)
    x, weight = random(2, 4, 5, 6).to(dtype), random(6, 4 // groups, *kernel, seed=1).to(dtype)
    high, wide = (5 + 1 - 2) // 2 + 1, 6 + 2 - 4 - 1 + 1
    offset = random(2, 3 * parts * 6, high, wide, low=-2, high=2, seed=2).to(dtype)
    added = random(6, seed=3).to(dtype) if bias else None
    moved = points(x, offset, kernel, stride, padding, dilation, parts)
    expected = torch.nn.functional.conv2d(
        moved, weight.double(), None if added is None else added.double(), stride=kernel, groups=groups
    )
    out = torch.empty(2, 6, high, wide, dtype=dtype).npu()
    where = torch.empty(2, 4, high * 2, wide * 3, dtype=dtype).npu()
    run(
        "aclnnDeformableConv2d",
        x.npu(),
        weight.npu(),
        offset.npu(),
        None if added is None else added.npu(),
        list(kernel),
        stride,
        padding,
        dilation,
        groups,
        parts,
        True,
        out,
        where,
    )
    near = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}[dtype]
    torch.testing.assert_close(where.cpu().double(), moved, rtol=near, atol=near)
    torch.testing.assert_close(out.cpu().double(), expected, rtol=near, atol=near * 4)


def test_without_moves_it_is_a_convolution() -> None:
    x, weight = random(1, 2, 5, 5).float(), random(3, 2, 3, 3, seed=1).float()
    offset = torch.zeros(1, 27, 3, 3)
    offset[:, 18:] = 1
    out = torch.empty(1, 3, 3, 3).npu()
    run(
        "aclnnDeformableConv2d",
        x.npu(),
        weight.npu(),
        offset.npu(),
        None,
        [3, 3],
        [1] * 4,
        [0] * 4,
        [1] * 4,
        1,
        1,
        True,
        out,
        None,
    )
    torch.testing.assert_close(out.cpu(), torch.nn.functional.conv2d(x, weight), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("index", "value"), [(5, [2, 1, 1, 1]), (6, [0, 0]), (8, 3), (10, False), (4, [3, 2])])
def test_refused(index: int, value: object) -> None:
    arguments = [
        torch.ones(1, 2, 5, 5).npu(),
        torch.ones(3, 2, 3, 3).npu(),
        torch.ones(1, 27, 3, 3).npu(),
        None,
        [3, 3],
        [1] * 4,
        [0] * 4,
        [1] * 4,
        1,
        1,
        True,
        torch.empty(1, 3, 3, 3).npu(),
        None,
    ]
    assert first_phase("aclnnDeformableConv2d", *arguments)[0] == 0
    arguments[index] = value
    assert first_phase("aclnnDeformableConv2d", *arguments)[0] == INVALID_ARGUMENT
