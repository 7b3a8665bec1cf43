"""Normalisation fused with an addition before it, an activation or a quantisation behind it."""

from typing import Any

import pytest
import torch
import torch_npu
from aclnn import INVALID_ARGUMENT, first_phase, run
from oracle import FLOATS, check, compare, random
from torch.nn.functional import group_norm, layer_norm, silu


def statistics(x: torch.Tensor, epsilon: float) -> tuple[torch.Tensor, torch.Tensor]:
    variance, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
    return mean, (variance + epsilon).rsqrt()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("biased", [False, True])
def test_add_layer_norm(dtype: torch.dtype, biased: bool) -> None:
    x1, x2 = random(2, 3, 8).to(dtype), random(2, 3, 8, seed=1).to(dtype)
    gamma, beta, bias = (random(8, seed=i).to(dtype) for i in (2, 3, 4))
    total = x1.double() + x2.double() + (bias.double() if biased else 0)
    y, x = (torch.empty_like(x1, device="npu") for _ in range(2))
    mean, rstd = (torch.empty(2, 3, 1, device="npu") for _ in range(2))
    run(
        "aclnnAddLayerNorm",
        x1.npu(),
        x2.npu(),
        gamma.npu(),
        beta.npu(),
        bias.npu() if biased else None,
        1e-5,
        True,
        y,
        mean,
        rstd,
        x,
    )
    compare(y, layer_norm(total, (8,), gamma.double(), beta.double(), 1e-5), dtype, ulps=4)
    compare(x, total, dtype)
    for actual, expected in zip((mean, rstd), statistics(total, 1e-5), strict=True):
        compare(actual, expected, torch.float32, ulps=8)


def test_add_layer_norm_of_torch_npu_has_gradients() -> None:
    def function(a: torch.Tensor, b: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor) -> list[torch.Tensor]:
        y, _, _, x = torch_npu.npu_add_layer_norm(a, b, gamma, beta, 1e-5, True)
        return [y, x]

    def reference(a: torch.Tensor, b: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor) -> list[torch.Tensor]:
        return [layer_norm(a + b, (8,), gamma, beta, 1e-5), a + b]

    check(
        function,
        random(2, 3, 8),
        random(2, 3, 8, seed=1),
        random(8, low=0.5),
        random(8, seed=2),
        reference=reference,
        dtypes=FLOATS[:1],
        ulps=16,
    )


def test_deep_norm_and_its_gradient() -> None:
    alpha, epsilon = 0.3, 1e-6
    leaves = [random(2, 3, 8), random(2, 3, 8, seed=1), random(8, seed=2), random(8, seed=3)]
    x, gx, beta, gamma = (t.requires_grad_() for t in leaves)
    dy = random(2, 3, 8, seed=4)
    expected = layer_norm(alpha * x + gx, (8,), gamma, beta, epsilon)
    expected.backward(dy)
    mean, rstd, y = torch_npu.npu_deep_norm(*(t.detach().float().npu() for t in leaves), alpha, epsilon)
    compare(y, expected.detach(), torch.float32, ulps=8)
    device = [t.detach().float().npu() for t in (dy, x, gx, gamma)]
    dx, dgx = (torch.empty(2, 3, 8, device="npu") for _ in range(2))
    dbeta, dgamma = (torch.empty(8, device="npu") for _ in range(2))
    run("aclnnDeepNormGrad", *device, mean, rstd, alpha, dx, dgx, dbeta, dgamma)
    for actual, wanted in ((dx, x), (dgx, gx), (dbeta, beta), (dgamma, gamma)):
        compare(actual, wanted.grad, torch.float32, ulps=32)


@pytest.mark.parametrize("dtype", FLOATS)
def test_group_norm_silu(dtype: torch.dtype) -> None:
    x, gamma, beta = random(2, 6, 3, 2).to(dtype), random(6, seed=1).to(dtype), random(6, seed=2).to(dtype)
    y, mean, rstd = torch_npu.npu_group_norm_silu(x.npu(), gamma.npu(), beta.npu(), 3, 1e-5)
    wide = x.double()
    compare(y, silu(group_norm(wide, 3, gamma.double(), beta.double(), 1e-5)), dtype, ulps=4)
    expected = statistics(wide.reshape(2, 3, -1), 1e-5)
    for actual, wanted in zip((mean, rstd), expected, strict=True):
        compare(actual, wanted.squeeze(-1), actual.dtype, ulps=8)


@pytest.mark.parametrize("scale", [1.0, 1.7])
def test_group_norm_swish(scale: float) -> None:
    def reference(x: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor) -> torch.Tensor:
        y = group_norm(x, 3, gamma, beta, 1e-5)
        return y * torch.sigmoid(scale * y)

    check(
        lambda x, g, b: torch_npu.npu_group_norm_swish(x, 3, g, b, eps=1e-5, swish_scale=scale)[0],
        random(2, 6, 4),
        random(6, seed=1),
        random(6, seed=2),
        reference=reference,
        dtypes=FLOATS[:1],
        ulps=32,
    )


def rms(x: torch.Tensor, gamma: torch.Tensor, epsilon: float = 1e-6) -> torch.Tensor:
    return x * (x.square().mean(-1, keepdim=True) + epsilon).rsqrt() * gamma


def integers(value: torch.Tensor) -> torch.Tensor:
    return value.round().clamp(-128, 127).to(torch.int8)


def near(actual: torch.Tensor, expected: torch.Tensor) -> None:
    """Equal, except where float32 and float64 round to different sides of a half."""
    off = (actual.cpu().int() - integers(expected).int()).abs()
    half = ((expected - expected.floor()) - 0.5).abs() < 1e-3
    assert actual.dtype == torch.int8
    assert bool(((off == 0) | ((off == 1) & half)).all()), off


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("divide", [True, False])
def test_add_rms_norm_quant(dtype: torch.dtype, divide: bool) -> None:
    a, b, gamma = random(4, 16).to(dtype), random(4, 16, seed=1).to(dtype), random(16, low=0.5).to(dtype)
    beta = random(16, seed=5).to(dtype)
    scale = random(16, low=0.02, high=0.1, seed=2).to(dtype)
    other = torch.tensor([0.05], dtype=dtype)
    zero = torch.randint(-5, 5, (16,)).to(dtype)
    total = (a + b).double()
    normal = rms(total, gamma.double())

    def quantized(value: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
        return value / by.double() if divide else value * by.double()

    y1, y2 = (torch.empty(4, 16, dtype=torch.int8, device="npu") for _ in range(2))
    x, plain = (torch.empty(4, 16, dtype=dtype, device="npu") for _ in range(2))
    device = [t.npu() for t in (a, b, gamma, scale, other, zero)]
    run("aclnnAddRmsNormQuant", *device, None, -1, 1e-6, divide, y1, y2, x)
    near(y1, quantized(normal, scale) + zero.double())
    near(y2, quantized(normal, other))
    assert torch.equal(x.cpu(), a + b)
    device[3:] = [scale.float().npu(), other.float().npu(), zero.int().npu()]
    run("aclnnAddRmsNormQuantV2", *device, None, beta.npu(), -1, 1e-6, divide, y1, y2, x, plain)
    near(y1, quantized(normal + beta.double(), scale) + zero.double())
    compare(plain, normal, dtype)


def test_rms_norm_quant() -> None:
    x, gamma, beta = random(4, 16).half(), random(1, 16, low=0.5).half(), random(1, 16, seed=3).half()
    scale, offset = torch.tensor([0.05]).half(), torch.tensor([3], dtype=torch.int8)
    y = torch.empty(4, 16, dtype=torch.int8, device="npu")
    run("aclnnRmsNormQuant", *(t.npu() for t in (x, gamma, beta, scale, offset)), 1e-6, y)
    near(y, (rms(x.double(), gamma.double()) + beta.double()) / scale.double() + 3)


def unpacked(words: torch.Tensor) -> torch.Tensor:
    """int4 from int32, the first in the lowest bits."""
    values = words.cpu().long().unsqueeze(-1).bitwise_right_shift(torch.arange(0, 32, 4)) % 16
    return ((values + 8) % 16 - 8).flatten(-2)


def test_results_of_packed_int4() -> None:
    x, gamma, beta = random(4, 16).half(), random(16, low=0.5).half(), random(16, seed=3).half()
    scale, offset = torch.tensor([0.25]).half(), torch.tensor([1], dtype=torch.int8)
    y, second = (torch.empty(4, 2, dtype=torch.int32, device="npu") for _ in range(2))
    run("aclnnRmsNormQuant", *(t.npu() for t in (x, gamma, beta, scale, offset)), 1e-6, y)
    normal = rms(x.double(), gamma.double()) + beta.double()
    assert unpacked(y).tolist() == (normal / 0.25 + 1).round().clamp(-8, 7).tolist()
    total, by = torch.empty(4, 16, dtype=torch.float16, device="npu"), torch.empty(2, 4, device="npu")
    run(
        "aclnnAddRmsNormDynamicQuantV2",
        x.npu(),
        torch.zeros_like(x).npu(),
        gamma.npu(),
        None,
        None,
        beta.npu(),
        1e-6,
        [True, True],
        y,
        second,
        total,
        *by,
    )
    exact = normal.abs().amax(1) / 7
    compare(by[0], exact, torch.float32, ulps=16)
    assert unpacked(y).tolist() == (normal / exact.unsqueeze(1)).round().tolist()
    assert second.tolist() == y.tolist()
    status, message = first_phase(
        "aclnnRmsNormQuant", x.npu(), gamma.npu(), beta.npu(), scale.npu(), offset.npu(), 1e-6, total.int()
    )
    assert status == INVALID_ARGUMENT and "an eighth of its last size" in message


@pytest.mark.parametrize("mask", [[], [True, True], [True, False]])
def test_add_rms_norm_dynamic_quant(mask: list[bool]) -> None:
    a, b, gamma = random(4, 16).half(), random(4, 16, seed=1).half(), random(16, low=0.5).half()
    smooth = [random(16, low=0.5, high=1.5, seed=i).half() for i in (2, 3)]
    normal = rms((a + b).double(), gamma.double())
    y = [torch.full((4, 16), 77, dtype=torch.int8, device="npu") for _ in range(2)]
    scale = [torch.full((4,), 77.0, device="npu") for _ in range(2)]
    x = torch.empty(4, 16, dtype=torch.float16, device="npu")
    run(
        "aclnnAddRmsNormDynamicQuantV2",
        a.npu(),
        b.npu(),
        gamma.npu(),
        *(s.npu() for s in smooth),
        None,
        1e-6,
        mask or None,
        *y,
        x,
        *scale,
    )
    for i in range(2):
        if mask and not mask[i]:
            assert bool((y[i] == 77).all()) and bool((scale[i] == 77).all())
            continue
        value = normal * smooth[i].double()
        by = value.abs().amax(1) / 127
        compare(scale[i], by, torch.float32, ulps=16)
        near(y[i], value / by.unsqueeze(1))


def test_refusals() -> None:
    x, wide, statistic = (torch.ones(*s, device="npu") for s in ((2, 8), (9,), (2, 1)))
    gamma = torch.ones(8, device="npu")
    q = torch.ones(2, 8, dtype=torch.int8, device="npu")
    cases: list[tuple[str, tuple[Any, ...], str]] = [
        ("aclnnDeepNorm", (x, x, wide, wide, 1.0, 1e-6, statistic, statistic, x), "expected the last sizes of x"),
        ("aclnnAddLayerNorm", (x, x, gamma, gamma, None, 1e-6, False, x, x, statistic, x), "parameter meanOut"),
        ("aclnnGroupNormSilu", (x, gamma, gamma, 3, 1e-6, x, statistic, statistic), "number of groups is 3"),
        ("aclnnGroupNormSwish", (x, gamma, gamma, 2, "NHWC", 1e-6, True, 1.0, x, x, x), "allowed is NCHW"),
        ("aclnnRmsNormQuant", (x, gamma, gamma, gamma, None, 1e-6, q), "parameter x has dtype float32"),
        ("aclnnRmsNormQuant", (*(t.half() for t in (x, gamma, gamma, wide)), None, 1e-6, q), "scale has 9 values"),
    ]
    for name, arguments, words in cases:
        status, message = first_phase(name, *arguments)
        assert status == INVALID_ARGUMENT and words in message, message
