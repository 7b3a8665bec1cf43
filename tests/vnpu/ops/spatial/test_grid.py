"""Grid sampling, affine grids, and sliding windows as columns."""

import aclnn
import pytest
import torch
from oracle import check, random
from torch.nn import functional


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("aligned", [True, False])
def test_sampling_of_images(mode, padding, aligned):
    def sample(x, grid):
        return functional.grid_sample(x, grid, mode=mode, padding_mode=padding, align_corners=aligned)

    # In narrow dtypes a point may round to the other side of a pixel's edge: fp32 shows the arithmetic.
    check(sample, random(2, 3, 5, 4), random(2, 4, 3, 2, low=-1.3, high=1.3), dtypes=[torch.float32], ulps=64)


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_sampling_of_volumes(mode):
    def sample(x, grid):
        return functional.grid_sample(x, grid, mode=mode, align_corners=False)

    check(sample, random(1, 2, 3, 4, 3), random(1, 2, 3, 2, 3, low=-1.2, high=1.2), dtypes=[torch.float32], ulps=64)


def test_narrow_dtypes_sample_in_fp32():
    grid = torch.tensor([[[[0.25, -0.5], [0.0, 0.5]]]], dtype=torch.float64)  # exact in every dtype
    check(lambda x: functional.grid_sample(x, grid.to(x), align_corners=True), random(1, 2, 5, 5), ulps=4)


@pytest.mark.parametrize(("size", "aligned"), [((2, 3, 4, 5), True), ((2, 3, 4, 5), False), ((2, 3, 2, 4, 3), True)])
def test_affine_grids(size, aligned):
    spatial = len(size) - 2
    check(
        lambda t: functional.affine_grid(t, list(size), aligned),
        random(2, spatial, spatial + 1),
        ulps=8,
        scale=2.0,
        grad=spatial == 2,  # torch_npu 2.13 has no gradient of volumes
    )


@pytest.mark.parametrize(
    "options", [{}, {"padding": 1, "stride": 2}, {"dilation": 2}, {"padding": (1, 0), "stride": (1, 2)}]
)
def test_unfold_and_fold(options):
    check(lambda x: functional.unfold(x, (2, 3), **options), random(2, 3, 6, 7))
    check(lambda x: functional.unfold(x, (2, 3), **options), random(3, 6, 7))
    columns = functional.unfold(random(2, 3, 6, 7), (2, 3), **options)
    check(lambda x: functional.fold(x, (6, 7), (2, 3), **options), random(*columns.shape), ulps=8)


def test_columns_that_overlap_are_added_up_in_fp32_and_rounded_once():
    columns = random(1, 2 * 25, 36)
    narrow = [torch.float16, torch.bfloat16]
    check(lambda x: functional.fold(x, (6, 6), (5, 5), padding=2), columns, dtypes=narrow, ulps=0.6, grad=False)


def test_where_there_is_nothing_to_sample():
    """(ops-cv: aclnn_grid_sampler2d.cpp, aclnn_grid_sampler3d.cpp and their gradients)"""

    def zeros(*shape):
        return torch.zeros(*shape, device="npu")

    def status(image, points):
        spatial = len(image) - 2
        grid, out = zeros(*points, spatial), zeros(*image[:2], *points[1:])
        forward = aclnn.first_phase(f"aclnnGridSampler{spatial}D", zeros(*image), grid, 0, 0, False, out)
        backward = aclnn.first_phase(
            f"aclnnGridSampler{spatial}DBackward",
            out,
            zeros(*image),
            grid,
            0,
            0,
            False,
            [True, True],
            zeros(*image),
            zeros(*grid.shape),
        )
        return forward, backward

    words = "expect input to have non-empty spatial dimensions"
    for image, points in (((2, 3, 5, 0), (2, 4, 4)), ((2, 3, 0, 5), (2, 4, 4))):
        for code, message in status(image, points):
            assert code == aclnn.INVALID_ARGUMENT and words in message
    for image in ((1, 2, 3, 4, 0), (1, 2, 3, 0, 4)):
        (code, message), (backward, _) = status(image, (1, 2, 2, 2))
        assert code == aclnn.INVALID_ARGUMENT and words in message and backward == 0
    assert status((2, 0, 5, 5), (2, 4, 4)) == status((1, 2, 0, 4, 4), (1, 2, 2, 2)) == ((0, ""), (0, ""))
    out = torch.ones(1, 2, 2, 2, 2, device="npu")
    aclnn.run("aclnnGridSampler3D", zeros(1, 2, 0, 4, 4), zeros(1, 2, 2, 2, 3), 0, 0, False, out)
    assert out.cpu().eq(1).all()  # as it was


def test_first_phase_refuses():
    def zeros(*shape):
        return torch.zeros(*shape, device="npu")

    for name, arguments, text in (
        (
            "aclnnGridSampler2D",
            (zeros(2, 3, 4, 4), zeros(2, 5, 5, 3), 0, 0, False, zeros(2, 3, 5, 5)),
            "points of 2 coordinates",
        ),
        (
            "aclnnGridSampler2D",
            (zeros(2, 3, 4, 4), zeros(2, 5, 5, 2), 3, 0, False, zeros(2, 3, 5, 5)),
            "interpolationMode is 3",
        ),
        (
            "aclnnGridSampler3D",
            (zeros(2, 3, 4, 4), zeros(2, 5, 5, 2), 0, 0, False, zeros(2, 3, 5, 5)),
            "input has 4 dimensions",
        ),
        ("aclnnAffineGrid", (zeros(2, 3, 3), [2, 3, 4, 5], True, zeros(2, 4, 5, 2)), "theta has shape [2, 3, 3]"),
        ("aclnnIm2col", (zeros(2, 3, 4, 4), [5, 5], [1, 1], [0, 0], [1, 1], zeros(2, 75, 1)), "larger than"),
        ("aclnnIm2col", (zeros(2, 3, 4, 4), [2, 2], [1, 1], [0, 0], [1, 1], zeros(2, 12, 8)), "expected [2, 12, 9]"),
    ):
        status, message = aclnn.first_phase(name, *arguments)
        assert status == aclnn.INVALID_ARGUMENT
        assert text in message
