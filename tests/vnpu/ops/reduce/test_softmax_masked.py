"""Softmax of scaled and masked scores."""

import pytest
import torch
from aclnn import INVALID_ARGUMENT, first_phase, run
from oracle import FLOATS, compare, random


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("triangle", [False, True])
@pytest.mark.parametrize("heads", [1, 3])
def test_scaled_masked_softmax(heads: int, triangle: bool, dtype: torch.dtype) -> None:
    """Through the C API: torch_npu 2.13 takes its legacy path on this chip."""
    mask = torch.rand(2, heads, 32, 32, generator=torch.Generator().manual_seed(3)) < 0.4
    left_out = torch.ones(32, 32, dtype=torch.bool).triu(1) if triangle else mask
    x, grad = random(2, 3, 32, 32).to(dtype), random(2, 3, 32, 32, seed=1).to(dtype)
    wide = x.double().requires_grad_()
    expected = torch.softmax((wide * 0.7).masked_fill(left_out, -10000), -1)
    expected.backward(grad.double())
    y, x_grad = (torch.empty_like(x, device="npu") for _ in range(2))
    run("aclnnScaledMaskedSoftmax", x.npu(), mask.npu(), 0.7, triangle, y)
    compare(y, expected.detach(), dtype, ulps=4)
    run("aclnnScaledMaskedSoftmaxBackward", grad.npu(), y, mask.npu(), 0.7, triangle, x_grad)
    compare(x_grad, wide.grad, dtype, ulps=16)


@pytest.mark.parametrize("dtype", FLOATS)
def test_softmax_with_relative_positions(dtype: torch.dtype) -> None:
    x, mask, bias = random(2, 4, 3, 5, 5), random(1, 4, 1, 5, 5, seed=1), random(1, 1, 3, 5, 5, seed=2)
    x, mask, bias = (t.to(dtype) for t in (x, mask, bias))
    for given in (mask, None):
        out = torch.empty_like(x, device="npu")
        run(
            "aclnnMaskedSoftmaxWithRelPosBias", x.npu(), None if given is None else given.npu(), bias.npu(), 1.5, 0, out
        )
        scores = x.double() * 1.5 + bias.double() + (0 if given is None else given.double())
        compare(out, torch.softmax(scores, -1), dtype, ulps=4)


def test_refusals() -> None:
    x, mask = torch.ones(1, 2, 4, 4, device="npu"), torch.ones(1, 1, 4, 3, dtype=torch.bool, device="npu")
    for name, arguments, words in (
        ("aclnnScaledMaskedSoftmax", (x, mask, 1.0, False, x), "parameter mask"),
        ("aclnnScaledMaskedSoftmax", (x, x, 1.0, False, x), "parameter mask has dtype float32"),
        ("aclnnMaskedSoftmaxWithRelPosBias", (x[0], None, x, 1.0, 0, x), "parameter x has 3 dimensions"),
    ):
        status, message = first_phase(name, *arguments)
        assert status == INVALID_ARGUMENT and words in message, message
