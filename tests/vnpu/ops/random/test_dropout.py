"""Dropout: which elements it keeps, by how much it scales them, and the layout of its mask."""

import aclnn
import numpy as np
import pytest
import torch
from oracle import FLOATS, layouts, random
from torch.nn import functional

DROP = 0.3
COUNT = 20000
DEVIATION = (DROP * (1 - DROP) / COUNT) ** 0.5


def bits(mask):
    return torch.from_numpy(np.unpackbits(mask.cpu().numpy(), bitorder="little").astype(bool))


@pytest.mark.parametrize("dtype", FLOATS)
def test_keeps_and_scales(dtype):
    x = (random(COUNT) + 3).to(dtype)
    out = functional.dropout(x.npu(), DROP).cpu()
    kept = out != 0
    assert abs(kept.double().mean().item() - (1 - DROP)) < 5 * DEVIATION
    keep = torch.tensor(1 - DROP).to(dtype).double()  # CANN's kernel takes it in the input's dtype
    assert torch.allclose(out[kept].double(), x[kept].double() / keep, rtol=torch.finfo(dtype).eps, atol=0)


def test_kept_elements_are_independent():
    kept = bits(torch.native_dropout(torch.ones(COUNT, device="npu"), DROP, True)[1])[:COUNT].double() - (1 - DROP)
    for distance in (1, 2, 3, 4, 8, 32, 128):
        correlation = (kept[distance:] * kept[:-distance]).mean() / (DROP * (1 - DROP))
        assert abs(correlation) < 5 / COUNT**0.5


@pytest.mark.parametrize("count", [1, 7, 128, 1000])
def test_mask_is_a_bit_per_element(count):
    out, mask = torch.native_dropout(torch.ones(count, device="npu"), DROP, True)
    assert mask.dtype == torch.uint8
    assert mask.numel() == (count + 127) // 128 * 16
    assert torch.equal(bits(mask)[:count], out.cpu() != 0)


def test_gradient_uses_the_mask_of_the_forward_pass():
    x = torch.ones(1000, device="npu", requires_grad=True)
    out = functional.dropout(x, DROP)
    out.sum().backward()
    assert torch.equal(x.grad, out.detach())


def test_same_seed_same_mask():
    x = torch.ones(1000, device="npu")

    def draw():
        return functional.dropout(x, DROP).cpu()

    torch.npu.manual_seed(5)
    first, second = draw(), draw()
    torch.npu.manual_seed(5)
    assert torch.equal(draw(), first)
    assert torch.equal(draw(), second)
    assert not torch.equal(first, second)
    torch.npu.manual_seed(6)
    assert not torch.equal(draw(), first)


@pytest.mark.parametrize("p", [0.0, 0.3, 0.5, 1.0])
def test_in_place_the_same_elements_stay(p):
    x = torch.ones(1000, device="npu")
    torch.manual_seed(2)
    aside = functional.dropout(x, p)
    torch.manual_seed(2)
    assert aside.equal(functional.dropout(x, p, inplace=True))


def test_layout_does_not_change_the_mask():
    for x in layouts(torch.ones(40, 50, dtype=torch.float64)):
        torch.npu.manual_seed(5)
        ours = functional.dropout(torch.ones(40, 50, device="npu"), DROP).cpu()
        torch.npu.manual_seed(5)
        assert torch.equal(functional.dropout(x.float().npu(), DROP).cpu(), ours)


def test_edges():
    x = random(40).float().npu()
    assert torch.equal(functional.dropout(x, 0.0), x)
    assert not functional.dropout(x, 1.0).cpu().any()
    assert torch.equal(functional.dropout(x, 0.5, training=False), x)
    assert functional.dropout(x[:0], 0.5).shape == (0,)
    out = torch.zeros_like(x)
    mask = torch.zeros(16, dtype=torch.uint8, device="npu")
    aclnn.run("aclnnDropoutDoMask", x, mask, 0.0, out)  # the mask does not matter
    assert torch.equal(out, x)
    aclnn.run("aclnnDropoutDoMask", x, mask, 1.0, out)
    assert not out.cpu().any()


def test_both_versions_of_the_mask_agree():
    masks = [torch.zeros(16, dtype=torch.uint8, device="npu") for _ in range(2)]
    aclnn.run("aclnnDropoutGenMask", [100], DROP, 3, 4, masks[0])
    aclnn.run("aclnnDropoutGenMaskV2", [10, 10], DROP, 3, 4, torch.float32, masks[1])
    assert torch.equal(masks[0].cpu(), masks[1].cpu())
    aclnn.run("aclnnDropoutGenMask", [100], 0.0, 3, 4, masks[0])
    assert bits(masks[0]).all()
    aclnn.run("aclnnDropoutGenMask", [100], 1.0, 3, 4, masks[0])
    assert not bits(masks[0]).any()


def test_first_phase_refuses():
    x, mask = torch.zeros(100, device="npu"), torch.zeros(16, dtype=torch.uint8, device="npu")
    for name, arguments, text in (
        ("aclnnDropoutDoMask", (x, mask[:8], 0.5, x), "mask has 8 bytes, expected 16"),
        ("aclnnDropoutDoMask", (x, mask, 1.5, x), "prob is 1.5, allowed is 0 to 1"),
        ("aclnnDropoutDoMask", (x, x, 0.5, x), "mask has dtype float32, allowed are uint8"),
        ("aclnnDropoutGenMask", ([129], 0.5, 0, 0, mask), "out has 16 bytes, expected 32"),
        ("aclnnDropoutGenMaskV2", ([100], -0.5, 0, 0, torch.float32, mask), "prob is -0.5"),
    ):
        status, message = aclnn.first_phase(name, *arguments)
        assert status == aclnn.INVALID_ARGUMENT
        assert text in message


def test_mask_from_a_state_in_device_memory():
    plain, stateful = (torch.empty(16, dtype=torch.uint8, device="npu") for _ in range(2))
    aclnn.run("aclnnDropoutGenMaskV2", [128], DROP, 9, 12, torch.float32, plain)
    aclnn.run(
        "aclnnDropoutGenMaskV2Tensor",
        [128],
        DROP,
        torch.tensor([9]).npu(),
        torch.tensor([8]).npu(),
        4,
        torch.float32,
        stateful,
    )
    assert torch.equal(plain.cpu(), stateful.cpu()) and 0 < bits(plain).sum() < 128


@pytest.mark.parametrize("dtype", FLOATS)
def test_mask_and_use_in_one_operator(dtype):
    x, out = random(10, 13).to(dtype), torch.empty(10, 13, dtype=dtype, device="npu")
    mask = torch.empty(32, dtype=torch.uint8, device="npu")
    aclnn.run("aclnnDropoutV3", x.npu(), None, DROP, 9, 12, out, mask)
    kept = bits(mask)[:130].view(10, 13)
    assert 0 < kept.sum() < 130
    torch.testing.assert_close(out.cpu(), (x.double() * kept / (1 - DROP)).to(dtype), rtol=1e-2, atol=0)
    assert torch.equal(out.cpu() != 0, kept)
