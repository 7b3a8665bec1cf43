"""attention/aclop_attention.cpp through torch_npu's functions."""

from __future__ import annotations

import pytest
import torch
import torch_npu
from oracle import compare, random
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
    x, gamma, beta = (random(rows, size).to(dtype), random(size, seed=1).to(dtype), random(size, seed=2).to(dtype))
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
