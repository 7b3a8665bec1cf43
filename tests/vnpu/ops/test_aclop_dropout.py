"""random/aclop_dropout.cpp and random.cpp: which elements stay, and what is made of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch_npu
from aclop import launch
from oracle import FLOATS, compare, random
from torch_npu.contrib.module import DropoutWithByteMask


@pytest.fixture
def compiled() -> Iterator[None]:
    """torch_npu takes its legacy path for every operator."""
    torch.npu.set_compile_mode(jit_compile=True)
    yield
    torch.npu.set_compile_mode(jit_compile=False)


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
def test_random_numbers_of_compiled_operators() -> None:
    """The same numbers as without compilation."""
    for draw in (lambda: torch.randn(1000, device="npu"), lambda: torch.rand(1000, device="npu")):
        torch.npu.manual_seed(5)
        first = draw().cpu()
        torch.npu.set_compile_mode(jit_compile=False)
        torch.npu.manual_seed(5)
        assert torch.equal(draw().cpu(), first)
        torch.npu.set_compile_mode(jit_compile=True)
    x = torch.tensor([1.0, torch.inf, torch.nan, -torch.inf]).npu()
    assert torch.isfinite(x).tolist() == [True, False, False, False]
    y = random(3, 5).float()
    compare(torch.log_softmax(y.npu(), -1), torch.log_softmax(y.double(), -1), torch.float32, ulps=4)


@pytest.mark.usefixtures("compiled")
def test_dropout_of_compiled_operators() -> None:
    x = torch.ones(5000).npu().requires_grad_()
    y = torch.nn.functional.dropout(x, 0.25)
    y.sum().backward()
    assert x.grad is not None and torch.equal(y, x.grad)
    host = y.detach().cpu()
    assert abs(float((host == 0).double().mean()) - 0.25) < 0.03
    assert set(host.unique().tolist()) <= {0.0, float(torch.tensor(1 / 0.75))}


def test_choice() -> None:
    x = torch.zeros(4, 5, dtype=torch.bool)
    x.view(-1)[::3] = True
    places = {tuple(place) for place in x.nonzero().tolist()}
    for count in (3, 7, 12):
        chosen, valid = torch_npu.npu_random_choice_with_mask(x.npu(), count, 3, 1)
        rows = [tuple(row) for row, yes in zip(chosen.tolist(), valid.tolist(), strict=True) if yes]
        assert len(set(rows)) == len(rows) == min(count, len(places)) and set(rows) <= places
        assert chosen.dtype == torch.int32 and not chosen.cpu()[~valid.cpu()].any()
        assert count < len(places) or rows == sorted(places)
    seeded = [torch_npu.npu_random_choice_with_mask(x.npu(), 5, 3, 1)[0].tolist() for _ in range(2)]
    unseeded = [torch_npu.npu_random_choice_with_mask(x.npu(), 5)[0].tolist() for _ in range(6)]
    assert seeded[0] == seeded[1] and any(one != unseeded[0] for one in unseeded)


def test_sample_of_labels() -> None:
    labels = torch.tensor([1, 0, -1, 2, 0, 0, 3, 0, -1, 0], dtype=torch.int32)
    for most, share, positive in ((6, 0.5, 3), (4, 0.25, 1), (20, 0.5, 3)):
        sample = torch_npu.npu_sub_sample(labels.npu(), most, share).cpu()
        assert int((sample > 0).sum()) == positive
        assert int((sample == 0).sum()) == min(most - positive, 5)
        assert torch.equal(sample[sample >= 0], labels[sample >= 0]) and set(sample[sample < 0].tolist()) <= {
            -1
        }
