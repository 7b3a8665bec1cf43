"""attention/aclop_attention.cpp, and what aclop_cube, aclop_activation and aclop_move have for torch_npu's own functions."""

from __future__ import annotations

import pytest
import torch
import torch_npu
from aclop import INVALID_ARGUMENT, launch
from oracle import check, compare, place, random
from torch import Tensor
from torch.nn import functional

HALVES = (torch.float32, torch.float16)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("keep", [1.0, 0.75])
def test_fused_attention_score(dtype: torch.dtype, keep: float) -> None:
    b, n, s, d = 2, 3, 16, 8
    query, key, value = (random(b, n, s, d, seed=i).to(dtype) for i in range(3))
    mask, scale = random(b, 1, s, s, seed=4).to(dtype), 0.25
    out, softmax, stays = torch_npu.npu_fused_attention_score_fwd(
        *(t.npu() for t in (query, key, value, mask)), scale, keep
    )
    exact = [t.double().requires_grad_() for t in (query, key, value)]
    p = torch.softmax(exact[0] @ exact[1].mT * scale + mask.double(), -1)
    kept = stays.cpu()[: p.numel()].view(p.shape).double() / keep
    assert set(stays.unique().tolist()) <= {0, 1} and abs(float(kept.mean()) - 1) < 0.1
    expected = (p * kept @ exact[2]).transpose(1, 2).reshape(b * s, n * d)
    compare(softmax, p.detach(), dtype, ulps=4)
    compare(out, expected.detach(), dtype, ulps=4, scale=1)
    seed = random(b * s, n * d, seed=9).to(dtype)
    expected.backward(seed.double())
    layers = [t.npu() for t in (seed, softmax, query, key, value)]
    gradients = torch_npu.npu_fused_attention_score_backward(*layers, stays, scale, keep)
    for actual, one in zip(gradients, exact, strict=True):
        assert one.grad is not None
        compare(actual, one.grad, dtype, ulps=8, scale=2)


@pytest.mark.parametrize("dtype", HALVES)
def test_projections_of_attention(dtype: torch.dtype) -> None:
    """Kernels are [in, out]; mean and variance come back for npu_layernorm_grad."""
    length, count, width = 8, 2, 16
    rows, size = 3 * length, count * width
    x, gamma, beta = (
        random(rows, size).to(dtype),
        random(size, seed=1).to(dtype),
        random(size, seed=2).to(dtype),
    )
    kernels = [random(size, size, low=-0.5, high=0.5, seed=3 + i).to(dtype) for i in range(3)]
    biases = [random(size, seed=7 + i).to(dtype) for i in range(3)]
    operands = [t.npu() for t in (x, *kernels, gamma, beta, *biases)]
    made = torch_npu.npu_fused_attention_layernorm_qkv_fwd(*operands, length, count)
    norm = functional.layer_norm(x.double(), [size], gamma.double(), beta.double())
    compare(made[0], norm, dtype, ulps=4, scale=1)
    compare(made[4], x.double().mean(-1), dtype, scale=1)
    compare(made[5], x.double().var(-1, correction=0), dtype)
    for i in range(3):
        flat = made[0].cpu().double() @ kernels[i].double() + biases[i].double()
        expected = flat.view(3, length, count, width).transpose(1, 2)
        compare(made[i + 1], expected, dtype, ulps=4, scale=4)
    seeds = [random(rows, size, seed=11 + i).to(dtype) for i in range(4)]
    operands = [t.npu() for t in (*seeds[:3], *kernels, x, seeds[3])]
    gradients = torch_npu.npu_fused_attention_qkv_grad(*operands)
    hidden = seeds[3].double() + sum(g.double() @ w.double().mT for g, w in zip(seeds, kernels, strict=False))
    compare(torch_npu.npu_format_cast(gradients[0], 2), hidden, dtype, ulps=4, scale=4)
    for i in range(3):
        compare(gradients[i + 1], x.double().mT @ seeds[i].double(), dtype, ulps=4, scale=8)
        compare(gradients[i + 4], seeds[i].double().sum(0), dtype, ulps=4, scale=4)


@pytest.mark.parametrize("dtype", HALVES)
def test_layer_norm_gradient_takes_the_variance(dtype: torch.dtype) -> None:
    x, gamma = random(6, 16).to(dtype), random(16, seed=1).to(dtype)
    seed = random(6, 16, seed=2).to(dtype)
    mean, variance = x.double().mean(-1).to(dtype), x.double().var(-1, correction=0).to(dtype)
    operands = [t.npu() for t in (mean, variance, gamma)]
    actual = torch_npu.npu_layernorm_grad(seed.npu(), x.npu(), [16], *operands, torch.zeros_like(gamma).npu())
    exact = [t.double().requires_grad_() for t in (x, gamma)]
    expected = functional.layer_norm(exact[0], [16], exact[1], eps=1e-12 if dtype == torch.float32 else 1e-5)
    expected.backward(seed.double())
    ulps = 4 if dtype == torch.float32 else 8
    for one, leaf in zip(actual, exact, strict=False):
        assert leaf.grad is not None
        compare(one, leaf.grad, dtype, ulps=ulps, scale=4)
    compare(actual[2], seed.double().sum(0), dtype, ulps=4)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("drop", [0.0, 0.25])
def test_multi_head_attention(dtype: torch.dtype, biased: bool, drop: float) -> None:
    batch, count, width, source, target = 2, 16, 16, 32, 16
    size = count * width
    lengths = (target, source, source)
    inputs = [random(batch * n, size, seed=i).to(dtype) for i, n in enumerate(lengths)]
    weights = [random(size, size, low=-0.1, high=0.1, seed=4 + i).to(dtype) for i in range(4)]
    biases = [random(size, seed=9 + i).to(dtype) for i in range(4)] if biased else [None] * 4
    added = random(batch, count, target, source, seed=14).to(dtype)
    on_device = [None if t is None else t.npu().requires_grad_() for t in (*inputs, *weights, *biases)]
    q, k, v, wq, wk, wv, wo, *b = on_device
    made = torch_npu.npu_multi_head_attention(
        q, k, v, wq, wk, wv, added.npu(), wo, *b, None, count, width, source, target, drop, True
    )
    exact = [None if t is None else t.double().requires_grad_() for t in (*inputs, *weights, *biases)]
    layers = []
    for i, length in enumerate(lengths):
        flat = functional.linear(exact[i], exact[i + 3], exact[i + 7])  # type: ignore[arg-type]
        flat = flat / width**0.5 if i == 0 else flat
        layers.append(flat.view(batch, length, count, width).transpose(1, 2))
    softmax = torch.softmax(layers[0] @ layers[1].mT + added.double(), -1)
    bits = (made[1].cpu().unsqueeze(1) >> torch.arange(8)).bitwise_and(1).flatten()[: softmax.numel()]
    kept = bits.view(softmax.shape).double() / (1 - drop)
    assert abs(float(kept.mean()) - 1) < 0.05
    context = (softmax * kept @ layers[2]).transpose(1, 2).reshape(batch * target, size)
    expected = functional.linear(context, exact[6], exact[10])  # type: ignore[arg-type]
    loose = 32 if dtype == torch.float32 else 16  # layers and softmax are rounded on the way
    compare(made[0], expected.detach(), dtype, ulps=loose, scale=4)
    compare(made[5].to(dtype), softmax.detach(), dtype, ulps=loose, scale=0.5)
    if not biased:
        return  # torch_npu makes the gradients' descriptors of the biases
    seed = random(*expected.shape, seed=15).to(dtype)
    made[0].backward(seed.npu())
    expected.backward(seed.double())
    for actual, one in zip(on_device, exact, strict=True):
        if actual is not None and one is not None:
            assert actual.grad is not None and one.grad is not None
            compare(actual.grad.view(one.grad.shape), one.grad, dtype, ulps=2 * loose, scale=8)


def test_transposed_convolutions() -> None:
    for groups, stride, pad, more, dilation in ((1, 2, 1, 1, 1), (2, 3, 0, 2, 2)):
        numbers = [(p, p) for p in (pad, more, stride, dilation)]

        def actual(x: Tensor, w: Tensor, b: Tensor, n: object = numbers, g: int = groups) -> Tensor:
            return torch_npu.npu_convolution_transpose(x, w, b, *n, g)  # type: ignore[misc]

        def expected(x: Tensor, w: Tensor, b: Tensor, n: object = numbers, g: int = groups) -> Tensor:
            pad, more, stride, dilation = n  # type: ignore[misc]
            return functional.conv_transpose2d(x, w, b, stride, pad, more, g, dilation)

        operands = random(2, 4, 5, 6), random(4, 3, 3, 3, seed=1), random(3 * groups, seed=2)
        check(actual, *operands, reference=expected, dtypes=[torch.float32], ulps=16, scale=4)
    x, w, b = (t.float() for t in operands)
    y = torch_npu.npu_conv_transpose2d(x.npu(), w.npu(), b.npu(), *numbers, groups)
    compare(y, expected(x.double(), w.double(), b.double()), torch.float32, ulps=16, scale=4)
    x, w = random(1, 2, 3, 4, 3).float(), random(2, 3, 2, 2, 2, seed=1).float()
    y = torch_npu.npu_convolution_transpose(x.npu(), w.npu(), None, [0] * 3, [0] * 3, [2] * 3, [1] * 3, 1)
    compare(y, functional.conv_transpose3d(x.double(), w.double(), stride=2), torch.float32, ulps=8, scale=1)


def test_gradients_of_depthwise_convolutions() -> None:
    x, w = random(2, 3, 7, 8).float(), random(3, 1, 3, 2, seed=1).float()
    exact = [t.double().requires_grad_() for t in (x, w)]
    y = functional.conv2d(*exact, stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=3)
    seed = random(*y.shape, seed=2).float()
    y.backward(seed.double())
    sizes = ((3, 2), (2, 1), (1, 0), (1, 2))
    made = torch_npu._conv_depthwise2d_backward(seed.npu(), x.npu(), w.npu(), *sizes, [True, True])
    for actual, one in zip(made, exact, strict=True):
        assert one.grad is not None
        compare(actual, one.grad, torch.float32, ulps=8, scale=4)


def test_quantized_convolution() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(-128, 128, (2, 4, 6, 7), dtype=torch.int8, generator=generator)
    w = torch.randint(-128, 128, (3, 4, 3, 2), dtype=torch.int8, generator=generator)
    bias = torch.randint(-999, 999, (3,), dtype=torch.int32, generator=generator)
    scale = torch.tensor([1e-3, 2e-3, 5e-4])
    packed = torch_npu.npu_trans_quant_param(scale.npu())
    short = scale.view(torch.int32).bitwise_and(-8192).view(torch.float32)  # 19 bits of a float32
    actual = torch_npu.npu_quant_conv2d(
        x.npu(), w.npu(), packed, [2, 1], [1, 0], [1, 2], 1, 0, "rint", torch.float16, bias.npu()
    )
    sums = functional.conv2d(x.double(), w.double(), bias.double(), (2, 1), (1, 0), (1, 2))
    compare(actual, sums * short.double()[:, None, None], torch.float16)


def test_views_of_storages() -> None:
    x = torch.arange(60, dtype=torch.float32).npu()
    for shape, stride, offset in (([3, 4], [5, 2], 7), ([2, 3], [0, 1], 0), ([3, 2, 2], [1, 7, 20], 4)):
        actual = torch_npu.npu_stride_copy(x, shape, stride, offset)
        assert torch.equal(actual.cpu(), x.cpu().as_strided(shape, stride, offset))
    for into, of in (((4, 6), (4, 6)), ((6, 4), (6, 4))):
        to, given = torch.zeros(into).npu().T, random(*of).float().npu().T
        torch_npu.npu_view_copy(to, given, False)
        assert torch.equal(to.cpu(), given.cpu())
    to = torch.zeros(5, 9).npu()
    torch_npu.npu_view_copy(to[1:4, 2::3], place(random(3, 3).float()), True)
    assert torch.equal(to[1:4, 2::3].cpu(), random(3, 3).float()) and int((to != 0).sum()) == 9


def test_refusals() -> None:
    x, flat = torch.ones(2, 3, 16, 8).npu(), torch.ones(32, 24).npu()
    p, m, s, keep = torch.ones(2, 3, 16, 16).npu(), torch.ones(2, 1, 16, 16).npu(), torch.ones(1).npu(), 0.5
    stays = torch.ones(p.numel(), dtype=torch.uint8).npu()
    call = ("AttentionScore", [x, x, x, m, s, stays], [flat, p])
    assert launch(*call, keep_prob=keep) == (0, "")
    for attributes, words in (
        ({"keep_prob": 2.0}, "keep_prob is 2"),
        ({"key_transpose": True}, "key_transpose"),
    ):
        status, message = launch(*call, **attributes)
        assert status != 0 and words in message, message
    status, message = launch("AttentionScore", [x, x, x, m, s, stays[1:]], [flat, p], keep_prob=keep)
    assert status == INVALID_ARGUMENT and "drop_mask is" in message, message
    status, message = launch("AsStrided", [flat, [3, 3], [300, 1], [0]], [torch.ones(3, 3).npu()])
    assert status == 0, message
    status, message = launch("AsStrided", [flat, [3, 3], [400, 1], [0]], [torch.ones(3, 3).npu()])
    assert status == INVALID_ARGUMENT and "elements 0 to 802" in message, message
