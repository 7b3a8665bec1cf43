"""aclop_activation, aclop_move, aclop_adam and aclop_calibration, through torch_npu's functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch_npu
from oracle import FLOATS, check, compare, layouts, place, random
from torch.nn import functional

HALVES = (torch.float32, torch.float16)


def test_mish() -> None:
    for view in layouts(random(3, 5, low=-6, high=6)):
        check(torch_npu.npu_mish, view, reference=functional.mish, dtypes=FLOATS)
    check(torch_npu.npu_mish, torch.zeros(0, 3), reference=functional.mish)


def test_silu() -> None:
    check(torch_npu.npu_silu, random(4, 7, low=-6, high=6), reference=functional.silu, grad=False)
    x = place(random(4, 7), torch.float32)
    assert torch.equal(torch_npu.npu_silu_(x.clone()), torch_npu.npu_silu(x))


def test_soft_labels() -> None:
    """The labels need not sum to 1."""
    logits, labels = random(5, 7, low=-9, high=9), random(5, 7, low=0, high=1)

    def expected(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return -(y * torch.log_softmax(x, -1)).sum(-1)

    for dtype in FLOATS:
        x, y = logits.to(dtype), labels.to(dtype)
        leaf = x.npu().requires_grad_()
        loss = torch_npu.npu_softmax_cross_entropy_with_logits(leaf, y.npu())
        compare(loss, expected(x.double(), y.double()), dtype)
        loss.sum().backward()
        compare(leaf.grad, torch.softmax(x.double(), -1) - y.double(), dtype, scale=1)


def test_layer_norm_of_evaluation() -> None:
    def expected(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return functional.layer_norm(x, weight.shape, weight, bias)

    def actual(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch_npu.npu_layer_norm_eval(x, list(weight.shape), weight, bias)

    for shape in ((5,), (4, 5)):
        weight, bias = random(*shape), random(*shape, seed=1)
        check(actual, random(3, 4, 5), weight, bias, reference=expected, grad=False, ulps=4)
    x = random(6, 4).float()
    compare(torch_npu.npu_layer_norm_eval(x.npu(), [4]), functional.layer_norm(x.double(), [4]), x.dtype)


def test_normalize_batch() -> None:
    x, lengths = random(4, 3, 6).float(), torch.tensor([2, 6, 3, 5], dtype=torch.int32)
    for kind in (0, 1):
        expected = x.double().clone()
        for i, length in enumerate(lengths.tolist()):
            part = x[i, :, :length].double()
            mean, deviation = (
                (part.mean(1, True), part.std(1, keepdim=True)) if kind == 0 else (part.mean(), part.std())
            )
            expected[i] = (x[i].double() - mean) / (deviation + 1e-5)
        actual = torch_npu.npu_normalize_batch(x.npu(), lengths.npu(), kind)
        compare(actual, expected, torch.float32, ulps=8)


def test_pad() -> None:
    for view in layouts(random(2, 3).float()):
        actual = torch_npu.npu_pad(place(view), (1, 0, 2, 3))
        assert torch.equal(actual.cpu(), functional.pad(view, (2, 3, 1, 0)))
    x = torch.arange(6, dtype=torch.int32).view(1, 2, 3)
    assert torch.equal(torch_npu.npu_pad(x.npu(), (0, 1)).cpu(), functional.pad(x, (0, 0, 0, 0, 0, 1)))


@pytest.mark.parametrize("first", [True, False])
def test_transpose_and_reshape(first: bool) -> None:
    x = random(2, 6, 4)
    perm, shape = ((1, 0, 2), (3, 16)) if first else ((1, 2, 0), (4, 6, 2))

    def expected(t: torch.Tensor) -> torch.Tensor:
        return t.permute(perm).reshape(shape) if first else t.reshape(shape).permute(perm)

    def actual(t: torch.Tensor) -> torch.Tensor:
        return torch_npu.npu_confusion_transpose(t, perm, shape, first)

    check(actual, x, reference=expected, dtypes=HALVES, ulps=0, grad=not first)


def test_largest_and_smallest() -> None:
    x = random(4, 5, 6)
    for name, reference in (("npu_max", torch.max), ("npu_min", torch.min)):
        function = getattr(torch_npu, name)
        for dim, keep in ((0, False), (1, True), (-1, False)):

            def actual(t: torch.Tensor, f: Any = function, d: int = dim, k: bool = keep) -> Any:
                values, indices = f(t, d, k)
                return values, indices.long()

            check(
                actual,
                x,
                reference=lambda t, f=reference, d=dim, k=keep: tuple(f(t, d, k)),
                dtypes=HALVES,
                ulps=0,
            )
    values, indices = torch_npu.npu_max(torch.tensor([[3.0, 3.0]]).npu(), 1)
    assert (values.item(), indices.item(), indices.dtype) == (3, 0, torch.int32)  # the first of equal ones


def test_sums_of_blocks_of_channels() -> None:
    """16 channels to a block; those that are not there are zeros."""
    a, b = random(2, 40, 3, 2).float(), random(2, 32, 3, 2, seed=1).float()
    expected = functional.pad(a[:, 16:], (0, 0, 0, 0, 0, 8)) + b
    assert torch.equal(torch_npu.npu_stride_add(a.npu(), b.npu(), 1, 0, 2).cpu(), expected)
    one = torch_npu.npu_stride_add(torch.ones(1, 1, 1, 1, 1).npu(), torch.ones(1, 1, 1, 1, 1).npu(), 0, 0, 1)
    assert one.flatten().tolist() == [2.0] + [0.0] * 15


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_filled_ranges(axis: int) -> None:
    """Along the last axis a column of bounds for each row, else all rows alike."""
    x = torch.arange(3 * 4 * 7, dtype=torch.float32).view(3, 4, 7)
    start = torch.tensor([[0, 1, 2], [2, 3, 0]], dtype=torch.int32)
    end, value = start + torch.tensor([[1], [2]], dtype=torch.int32), torch.tensor([-1.0, -2.0])
    expected = x.clone()
    for i in range(2):
        for j in range(3):
            for k in range(int(start[i, j]), min(int(end[i, j]), x.shape[axis])):
                if axis == 2:
                    expected[j, :, k] = value[i]
                else:
                    expected.select(axis, k)[:] = value[i]
    actual = torch_npu.npu_masked_fill_range(x.npu(), start.npu(), end.npu(), value.npu(), axis)
    assert torch.equal(actual.cpu(), expected)


@pytest.mark.parametrize("descending", [True, False])
def test_sort_without_indices(descending: bool) -> None:
    for dtype in HALVES:
        x = random(3, 17).to(dtype)
        assert torch.equal(torch_npu.npu_sort_v2(x.npu(), -1, descending).cpu(), x.sort(-1, descending)[0])


@pytest.mark.parametrize("dtype", HALVES)
def test_sign_bits(dtype: torch.dtype) -> None:
    """Bit i is the i-th of eight numbers, 1 for those that are not negative."""
    for length, rows in ((17, 1), (8, 1), (33, 5), (16, 2)):
        x = random(length, low=-9, high=9).to(dtype)
        x[0] = -0.0
        expected = np.packbits(x.numpy() >= 0, bitorder="little").reshape(rows, -1)
        packed = torch_npu.npu_sign_bits_pack(x.npu(), rows)
        assert np.array_equal(packed.cpu().numpy(), expected)
        signs = torch_npu.npu_sign_bits_unpack(packed.flatten(), rows, dtype).cpu()
        unpacked = np.unpackbits(expected.flatten(), bitorder="little").astype(np.float32) * 2 - 1
        assert signs.dtype == dtype and np.array_equal(signs.float().numpy(), unpacked.reshape(rows, -1))


@pytest.mark.parametrize("offset", [True, False])
def test_search_for_a_scale(offset: bool) -> None:
    x, bins = random(2, 2, 3, 4, low=-1, high=1.5).float(), 128
    low, high = x.min().reshape(1), x.max().reshape(1)
    share = torch.histc(x, bins, float(low), float(high)).cumsum(0)
    scale, shift = torch_npu.npu_ifmr(
        x.npu(), low.npu(), high.npu(), share.int().npu(), 0.999999, 0.999999, 0.7, 1.3, 0.01, offset
    )
    data, span = x.double().numpy(), float(high - low)
    cdf = share.numpy() / x.numel()
    top = (cdf < 0.999999).sum() / bins * span + float(low)
    bottom = (cdf < 1 - 0.999999).sum() / bins * span + float(low)
    best: tuple[float, float, float] = (np.inf, 0, 0)
    for step in range(61):
        size = 0.7 + 0.01 * step
        if offset:
            one = (max(top, 0) * size - min(bottom, 0)) / 255
            zero = -(np.round(min(bottom, 0) / one) + 128)
        else:
            one, zero = max(abs(top), abs(bottom)) * size / 127, 0.0
        error = (np.clip(np.round(data / one + zero), -128, 127) - zero) * one - data
        best = min(best, (float((error**2).sum()), one, zero))
    assert abs(float(scale.item()) - best[1]) < 1e-4 * best[1] and float(shift.item()) == best[2]


def states(count: int, dtype: torch.dtype, seed: int) -> tuple[torch.Tensor, ...]:
    return tuple(
        random(count, low=low, high=2, seed=seed + i).to(dtype) for i, low in enumerate((-2, -2, 0.1, -2))
    )


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("nesterov", [True, False])
def test_adam(dtype: torch.dtype, nesterov: bool) -> None:
    var, m, v, grad = states(33, dtype, 3)
    b1, b2, rate, eps = 0.875, 0.96875, 0.125, 0.25  # numbers of every dtype
    p1, p2 = b1**2, b2**2
    out = tuple(t.npu() for t in (var, m, v))
    torch.npu.set_compile_mode(jit_compile=True)
    try:
        torch_npu.npu_apply_adam(p1, p2, rate, b1, b2, eps, grad.npu(), None, nesterov, out=out)
    finally:
        torch.npu.set_compile_mode(jit_compile=False)
    x, a, b, g = (t.double() for t in (var, m, v, grad))
    p1, p2 = (float(torch.tensor(p, dtype=dtype)) for p in (p1, p2))
    a, b = a * b1 + (1 - b1) * g, b * b2 + (1 - b2) * g * g
    ahead = a * b1 + (1 - b1) * g if nesterov else a
    x = x - rate * np.sqrt(1 - p2) / (1 - p1) * ahead / (eps + b.sqrt())
    for actual, expected in zip(out, (x, a, b), strict=True):
        compare(actual, expected, dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("maximize", [True, False])
def test_adamw(dtype: torch.dtype, maximize: bool) -> None:
    var, m, v, grad = states(33, dtype, 5)
    b1, b2, rate, eps, decay, power = 0.875, 0.96875, 0.125, 0.25, 0.5, 0.75
    out = tuple(t.npu() for t in (var, m, v))
    torch.npu.set_compile_mode(jit_compile=True)
    try:
        torch_npu.npu_apply_adam_w(
            power, power, rate, decay, b1, b2, eps, grad.npu(), None, False, maximize, out=out
        )
    finally:
        torch.npu.set_compile_mode(jit_compile=False)
    x, a, b, g = (t.double() for t in (var, m, v, grad))
    g = -g if maximize else g
    a, b = a * b1 + (1 - b1) * g, b * b2 + (1 - b2) * g * g
    x = x * (1 - rate * decay) - rate / (1 - power * b1) * a / ((b / (1 - power * b2)).sqrt() + eps)
    for actual, expected in zip(out, (x, a, b), strict=True):
        compare(actual, expected, dtype)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("norms", [(-1.0, 3.0), (1.0, 4.0), (1.0, 0.5)])
@pytest.mark.parametrize("mode", [0, 1])
def test_adam_of_bert(dtype: torch.dtype, norms: tuple[float, float], mode: int) -> None:
    """Moments are not corrected; the gradient is divided by a norm above 1 where there is a limit, in mode 0."""
    var, m, v, grad = states(33, dtype, 7)
    b1, b2, rate, eps, decay, size = 0.875, 0.96875, 0.125, 0.25, 0.5, 0.75
    out = tuple(t.npu() for t in (var, m, v))
    torch_npu.npu_bert_apply_adam(rate, b1, b2, eps, grad.npu(), *norms, decay, size, mode, out=out)
    x, a, b, g = (t.double() for t in (var, m, v, grad))
    if mode == 0 and norms[0] > 0 and norms[1] > 1:
        g = g / norms[1]
    a, b = a * b1 + (1 - b1) * g, b * b2 + (1 - b2) * g * g
    update = a / (b.sqrt() + eps)
    x = x - (rate * (update + decay * x) if mode == 0 else size * update + rate * decay * x)
    for actual, expected in zip(out, (x, a, b), strict=True):
        compare(actual, expected, dtype)
