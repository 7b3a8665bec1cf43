"""random/aclop_dropout.cpp: which elements stay, and what is made of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch_npu
from aclop import check_refused, launch
from oracle import FLOATS, compare, random
from torch_npu.contrib.module import DropoutWithByteMask


@pytest.mark.parametrize("dtype", FLOATS)
def test_byte_masks(dtype: torch.dtype) -> None:
    x, p = random(64, 65).to(dtype), 0.25
    leaf = x.npu().requires_grad_()
    y = DropoutWithByteMask(p)(leaf)
    kept = y.cpu() != 0
    assert abs(float(kept.double().mean()) - 0.75) < 0.03
    compare(y, torch.where(kept, x.double() / 0.75, 0), dtype)
    y.sum().backward()
    compare(leaf.grad, kept.double() / 0.75, dtype)


def test_every_call_has_a_mask_of_its_own() -> None:
    mask = [torch.zeros(4096, dtype=torch.uint8).npu() for _ in range(2)]
    keep = torch.tensor([0.5]).npu()
    for one in mask:
        assert launch("DropOutGenMaskV3", [[4096], keep], [one], seed=7, seed2=0)[0] == 0
    a, b = (one.cpu() for one in mask)
    assert set(a.tolist()) == {0, 1} and 0.45 < float((a == b).double().mean()) < 0.55
    for value, expected in ((0.0, 0), (1.0, 4096)):
        keep.fill_(value)
        assert launch("DropOutGenMaskV3", [[4096], keep], [mask[0]], seed=7)[0] == 0
        assert int(mask[0].sum()) == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("p", [0.0, 0.25])
def test_softmax_of_a_sum(dtype: torch.dtype, p: float) -> None:
    """softmax(x1 + alpha * self), dropped out; the gradient of x1 is torch_npu's, which gives it as it came."""
    x, x1, alpha = random(2, 3, 16, 32).to(dtype), random(2, 3, 16, 32, seed=1).to(dtype), 0.125
    leaf = x.npu().requires_grad_()
    mask, softmax, y = torch_npu.npu_dropout_with_add_softmax(leaf, x1.npu(), alpha, p, -1)
    wide = x.double().requires_grad_()
    expected = torch.softmax(x1.double() + alpha * wide, -1)
    compare(softmax, expected.detach(), dtype)
    kept = mask.cpu()[: x.numel()].view(x.shape).double() / (1 - p)
    assert abs(float(kept.mean()) - 1) < 0.05
    compare(y, expected.detach() * kept, dtype)
    seed = random(*x.shape, seed=5).to(dtype)
    y.backward(seed.npu())
    # Hardware differentiates by the rounded result.
    s = softmax.detach().cpu().double()
    given = seed.double() * kept
    compare(leaf.grad, alpha * s * (given - (given * s).sum(-1, keepdim=True)), dtype, ulps=8)


@pytest.mark.parametrize("dtype", FLOATS)
def test_bits(dtype: torch.dtype) -> None:
    x = random(37).to(dtype)
    bits = torch.randint(0, 256, (16,), dtype=torch.uint8)
    kept = (bits.unsqueeze(1) >> torch.arange(8)).bitwise_and(1).flatten()[:37].bool()
    y = torch_npu.npu_dropout_do_mask(x.npu(), bits.npu(), 0.25)[0]
    compare(y, torch.where(kept, x.double() / 0.75, 0), dtype)


@pytest.mark.usefixtures("compiled")
def test_dropout_of_compiled_operators() -> None:
    x = torch.ones(5000).npu().requires_grad_()
    y = torch.nn.functional.dropout(x, 0.25)
    y.sum().backward()
    assert x.grad is not None and torch.equal(y, x.grad)
    host = y.detach().cpu()
    assert abs(float((host == 0).double().mean()) - 0.25) < 0.03
    assert set(host.unique().tolist()) <= {0.0, float(torch.tensor(1 / 0.75))}


REFUSED: dict[str, tuple[list[Any], tuple[Any, ...], dict[str, Any], str]] = {
    "DropOutGenMask": ([[256], torch.tensor([0.5])], ((16, torch.uint8),), {}, "the mask")
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name: str) -> None:
    inputs, sizes, attributes, words = REFUSED[name]
    check_refused(name, inputs, sizes, attributes, words)
