"""Resizing against float64."""

import aclnn
import pytest
import torch
from oracle import check, layouts, random
from torch.nn import functional

INPUTS = {1: (2, 3, 5), 2: (2, 3, 5, 4), 3: (1, 2, 3, 4, 2)}
MODES = [
    *((dimensions, mode) for mode in ("nearest", "nearest-exact") for dimensions in (1, 2, 3)),
    (1, "linear"),
    (2, "bilinear"),
    (3, "trilinear"),
    (2, "bicubic"),
]


@pytest.mark.parametrize(("dimensions", "mode"), MODES)
@pytest.mark.parametrize("target", [{"scale_factor": 2}, {"scale_factor": 1.7}, {"size": 7}, {"size": 3}])
def test_modes(dimensions, mode, target):
    check(lambda x: functional.interpolate(x, mode=mode, **target), random(*INPUTS[dimensions]), ulps=16)


@pytest.mark.parametrize(("dimensions", "mode"), [m for m in MODES if "near" not in m[1]])
def test_aligned_corners(dimensions, mode):
    check(
        lambda x: functional.interpolate(x, size=7, mode=mode, align_corners=True), random(*INPUTS[dimensions]), ulps=16
    )


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_antialiased(mode):
    check(lambda x: functional.interpolate(x, size=(3, 2), mode=mode, antialias=True), random(2, 3, 8, 7), ulps=16)


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_every_layout(mode):
    for x in layouts(random(2, 3, 5, 4)):
        check(lambda x: functional.interpolate(x, scale_factor=2, mode=mode), x, dtypes=[torch.float32], ulps=16)


def test_names_that_torch_npu_does_not_choose():
    x = random(2, 3, 5, 4).float()
    for name, size in (("aclnnUpsampleNearest2d", (10, 8)), ("aclnnUpsampleNearest1d", (10,))):
        flat = x if len(size) == 2 else x[..., 0]
        out = torch.zeros(2, 3, *size, device="npu")
        aclnn.run(name, flat.npu(), list(size), out)
        assert torch.equal(out.cpu(), functional.interpolate(flat, size=size))
    grad, out = random(2, 3, 10, 8, seed=1).float(), torch.zeros(2, 3, 5, 4, device="npu")
    aclnn.run("aclnnUpsampleBilinear2dBackward", grad.npu(), [10, 8], [2, 3, 5, 4], False, 0.0, 0.0, out)
    leaf = x.double().requires_grad_()
    functional.interpolate(leaf, size=(10, 8), mode="bilinear").backward(grad.double())
    assert torch.allclose(out.cpu().double(), leaf.grad, atol=1e-5)


def test_first_phase_refuses():
    x = torch.zeros(2, 3, 5, 4, device="npu")

    def status(size, out):
        return aclnn.first_phase("aclnnUpsampleBilinear2d", x, size, False, 0.0, 0.0, torch.zeros(*out, device="npu"))

    for refused, text in (
        (status([10, 8], (2, 3, 10, 9)), "out has shape [2, 3, 10, 9], expected [2, 3, 10, 8]"),
        (status([10], (2, 3, 10, 8)), "outputSize has 1 values, expected 2"),
        (status([0, 8], (2, 3, 0, 8)), "outputSize has the value 0, allowed is > 0"),
    ):
        assert refused[0] == aclnn.INVALID_ARGUMENT
        assert text in refused[1]
