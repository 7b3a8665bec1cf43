"""Pooling against float64."""

from pathlib import Path

import aclnn
import pytest
import torch
from forked import python
from oracle import check, layouts, random
from torch.nn import functional

WINDOWS = [
    {"kernel_size": 2},
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": (3, 2), "stride": (1, 2), "padding": (1, 0)},
    {"kernel_size": 3, "stride": 2, "ceil_mode": True},
    {"kernel_size": 3, "stride": 1, "padding": 1},  # windows overlap: gradients add up
]


def distinct(*shape):
    """Values without ties in any of the dtypes."""
    count = torch.Size(shape).numel()
    order = torch.randperm(count, generator=torch.Generator().manual_seed(count))
    return (order.double() - count // 2).reshape(shape) / 8


@pytest.mark.parametrize("window", WINDOWS)
def test_max_pool2d(window):
    check(lambda x: functional.max_pool2d(x, **window), distinct(2, 3, 7, 6))


def test_max_pool2d_without_batch_and_empty():
    check(lambda x: functional.max_pool2d(x, 2), distinct(3, 6, 6))
    check(lambda x: functional.max_pool2d(x, 2), distinct(0, 3, 6, 6), grad=False)
    for x in layouts(distinct(2, 3, 5, 6)):
        check(lambda x: functional.max_pool2d(x, 2), x, grad=False)


def test_max_pool2d_first_of_equals_nan_and_infinity():
    nan, infinity = float("nan"), float("inf")
    x = torch.tensor(
        [[[[1.0, 1.0, nan, 2.0], [1.0, 1.0, 3.0, 0.0], [-infinity] * 4, [-infinity] * 4]]], dtype=torch.float64
    )
    check(lambda x: functional.max_pool2d(x, 2), x)


@pytest.mark.parametrize(
    "window",
    [*WINDOWS, {"kernel_size": 2, "divisor_override": 3}, {"kernel_size": 3, "padding": 1, "count_include_pad": False}],
)
def test_avg_pool2d(window):
    check(lambda x: functional.avg_pool2d(x, **window), random(2, 3, 7, 6))


@pytest.mark.parametrize("size", [1, (2, 3), (4, 1), (7, 6)])
def test_adaptive_avg_pool2d(size):
    check(lambda x: functional.adaptive_avg_pool2d(x, size), random(2, 3, 7, 6))
    check(lambda x: functional.adaptive_avg_pool2d(x, size), random(3, 7, 6))


VOLUMES = [
    {"kernel_size": 2},
    {"kernel_size": (3, 2, 2), "stride": (1, 2, 1), "padding": (1, 0, 1)},
    {"kernel_size": 2, "ceil_mode": True},
]


@pytest.mark.parametrize("window", VOLUMES)
def test_volumes(window):
    check(lambda x: functional.max_pool3d(x, **window), distinct(1, 2, 4, 5, 3))
    check(lambda x: functional.avg_pool3d(x, **window), random(1, 2, 4, 5, 3), ulps=4)
    check(lambda x: functional.max_pool3d(x, **window), distinct(2, 4, 5, 3), grad=False)


@pytest.mark.parametrize("size", [1, (2, 3, 1)])
def test_adaptive_volumes(size):
    check(lambda x: functional.adaptive_avg_pool3d(x, size), random(1, 2, 4, 5, 3), ulps=4)
    check(lambda x: functional.adaptive_max_pool3d(x, size), distinct(1, 2, 4, 5, 3))


@pytest.mark.parametrize("size", [1, (2, 3), (7, 1)])
def test_adaptive_max_pool2d(size):
    def pool(x):
        return functional.adaptive_max_pool2d(x, size, return_indices=True)

    check(pool, distinct(2, 3, 7, 6))
    check(pool, distinct(3, 7, 6))


# No bfloat16, by the documentation of aclnnMaxUnpool2d and 3d.
UNPOOLED = (torch.float32, torch.float16)


def test_unpooling():
    x, indices = functional.max_pool2d(distinct(2, 3, 6, 4), 2, return_indices=True)
    check(lambda x: functional.max_unpool2d(x, indices.to(x.device), 2), x, dtypes=UNPOOLED, grad=False)
    x, indices = functional.max_pool3d(distinct(1, 2, 4, 6, 4), 2, return_indices=True)
    check(lambda x: functional.max_unpool3d(x, indices.to(x.device), 2), x, dtypes=UNPOOLED, grad=False)


def test_indices_that_torch_npu_does_not_choose():
    x = distinct(1, 2, 6, 4).float()
    out, indices = (torch.zeros(1, 2, 3, 2, device="npu"), torch.zeros(1, 2, 3, 2, dtype=torch.int32, device="npu"))
    window = ([2, 2], [2, 2], [0, 0], [1, 1], False)
    aclnn.run("aclnnMaxPool2dWithIndices", x.npu(), *window, out, indices)
    expected, positions = functional.max_pool2d(x, 2, return_indices=True)
    assert torch.equal(out.cpu(), expected)
    assert torch.equal(indices.cpu().long(), positions)
    grad, gradient = random(1, 2, 3, 2).float(), torch.zeros_like(x).npu()
    aclnn.run("aclnnMaxPool2dWithIndicesBackward", grad.npu(), x.npu(), indices, *window, gradient)
    assert torch.equal(gradient.cpu(), functional.max_unpool2d(grad, positions, 2))


def test_averages_read_every_layout():
    for x in layouts(random(2, 3, 6, 4)):
        check(lambda x: functional.avg_pool2d(x, 2), x, dtypes=[torch.float32])
        check(lambda x: functional.adaptive_avg_pool2d(x, 2), x, dtypes=[torch.float32])


def test_pools_of_one_dimension():
    check(lambda x: functional.max_pool1d(x, 2), distinct(2, 3, 8))
    check(lambda x: functional.avg_pool1d(x, 3, stride=2, padding=1), random(2, 3, 9))
    check(lambda x: functional.adaptive_avg_pool1d(x, 3), random(2, 3, 8))


def test_first_phase_refuses():
    def zeros(*shape, dtype=torch.float32):
        return torch.zeros(*shape, dtype=dtype, device="npu")

    def status(kernel=(2, 2), padding=(0, 0), out=(1, 1, 2, 2), mask=(1, 1, 4, 64), dtype=torch.int8):
        return aclnn.first_phase(
            "aclnnMaxPool2dWithMask",
            zeros(1, 1, 4, 4),
            list(kernel),
            list(kernel),
            list(padding),
            [1, 1],
            False,
            zeros(*out),
            zeros(*mask, dtype=dtype),
        )

    assert status() == (0, "")
    for refused, text in (
        (status(kernel=(0, 2)), "kernelSize has the value 0, allowed is >= 1"),
        (status(padding=(2, 0)), "padding has the value 2, allowed is at most half of kernelSize, 2"),
        (status(out=(1, 1, 3, 2)), "out has shape [1, 1, 3, 2], expected [1, 1, 2, 2]"),
        (status(mask=(1, 1, 4, 32)), "indices has shape [1, 1, 4, 32], expected [1, 1, 4, 64]"),
        (status(dtype=torch.int32), "indices has dtype int32, allowed are int8"),
    ):
        assert refused[0] == aclnn.INVALID_ARGUMENT
        assert text in refused[1]


def test_one_element_is_its_own_maximum() -> None:
    check(lambda x: functional.max_pool2d(x, 1), random(1, 1, 1, 1))


SPREAD = f"""
import sys; sys.path.insert(0, {str(Path(__file__).parents[1])!r})
import torch
from aclnn import first_phase
for dtype in (torch.float64, torch.float32):
    image = torch.zeros(1, 1, 4, 4, 4, dtype=dtype).npu()
    for size in (2, 1):
        print(first_phase("aclnnAdaptiveAvgPool3dBackward", image[..., :size, :size, :size].clone(), image, image)[0])
"""


@pytest.mark.parametrize(
    ("chip", "answers"), [("Ascend910B1", [161002, 0, 0, 0]), ("Ascend910A", [161002, 0, 161002, 0])]
)
def test_the_gradient_of_means_over_parts(chip, answers):
    """Not of float64 on a 910B, not at all on a 910A (ops-nn: aclnn_adaptive_avg_pool3d_backward.cpp)."""
    ended = python(SPREAD, VNPU_SOC=chip)
    assert ended.stdout.split() == [str(answer) for answer in answers], ended.stderr


def test_pooling_of_nothing():
    """What CANN's first phases say of empty dimensions (ops-nn: aclnn_avgpool2d.cpp, aclnn_adaptive_max_pool2d.cpp,
    aclnn_adaptive_max_pool3d.cpp, aclnn_adaptive_avg_pool2d.cpp)."""

    def zeros(*shape, dtype=torch.float32):
        return torch.zeros(*shape, dtype=dtype, device="npu")

    def average(*shape):
        out = zeros(*shape[:-2], *(size // 2 + 1 for size in shape[-2:]))
        return aclnn.first_phase("aclnnAvgPool2d", zeros(*shape), [2, 2], [2, 2], [1, 1], False, True, 0, 0, out)

    def most(*shape, spatial=2):
        size = [2] * spatial
        out, indices = zeros(*shape[:-spatial], *size), zeros(*shape[:-spatial], *size, dtype=torch.int64)
        indices = indices.int() if spatial == 3 else indices
        return aclnn.first_phase(f"aclnnAdaptiveMaxPool{spatial}d", zeros(*shape), size, out, indices)

    for code, message in (average(1, 3, 8, 0), average(1, 0, 8, 8), average(0, 8, 8)):
        assert code == aclnn.INVALID_ARGUMENT
        assert "Expected tensor with optional 0 dim batch size" in message
    assert average(0, 3, 8, 8) == average(1, 3, 8, 8) == average(3, 8, 8) == (0, "")
    for code, message in (most(1, 4, 4, 0), most(1, 0, 4, 4), most(1, 2, 4, 0, 4, spatial=3)):
        assert code == aclnn.INVALID_ARGUMENT
        assert "expected input to have non-empty spatial dimensions" in message
    assert most(0, 4, 4, 4) == most(0, 4, 4) == most(0, 4, 4, 4, 4, spatial=3) == (0, "")
    out = torch.ones(1, 8, 5, 7, device="npu")
    aclnn.run("aclnnAdaptiveAvgPool2d", zeros(1, 8, 8, 0), [5, 7], out)  # no kernel is started
    assert out.cpu().eq(1).all()
    assert functional.adaptive_avg_pool2d(zeros(0, 8, 4, 4), 2).shape == (0, 8, 2, 2)
