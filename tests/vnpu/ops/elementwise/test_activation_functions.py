"""Activation functions and their gradients against float64."""

import aclnn
import pytest
import torch
from oracle import FLOATS, check, layouts, random
from torch.nn import functional

FUNCTIONS = {
    "relu": functional.relu,
    "relu6": functional.relu6,
    "threshold": lambda x: functional.threshold(x, 0.3, -1.5),
    "leaky_relu": lambda x: functional.leaky_relu(x, 0.2),
    "leaky_relu with a falling slope": lambda x: functional.leaky_relu(x, -0.2),
    "elu": lambda x: functional.elu(x, 1.5),
    "selu": functional.selu,
    "celu": lambda x: functional.celu(x, 1.5),
    "gelu": lambda x: functional.gelu(x, approximate="tanh"),
    "silu": functional.silu,
    "mish": functional.mish,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "logsigmoid": functional.logsigmoid,
    "softplus": lambda x: functional.softplus(x, 2.0, 1.5),
    "hardtanh": lambda x: functional.hardtanh(x, -0.7, 0.9),
    "hardsigmoid": functional.hardsigmoid,
    "hardswish": functional.hardswish,
    "hardshrink": lambda x: functional.hardshrink(x, 0.4),
    "softshrink": lambda x: functional.softshrink(x, 0.4),
    "glu": lambda x: functional.glu(x, -1),
}
INPLACE = {
    "relu_": functional.relu_,
    "threshold_": lambda x: functional.threshold_(x, 0.3, -1.5),
    "leaky_relu_": lambda x: functional.leaky_relu_(x, 0.2),
    "elu_": lambda x: functional.elu_(x, 1.5),
    "celu_": lambda x: functional.celu_(x, 1.5),
    "mish_": lambda x: functional.mish(x, inplace=True),
    "silu_": lambda x: functional.silu(x, inplace=True),
    "hardtanh_": lambda x: functional.hardtanh_(x, -0.7, 0.9),
    "hardsigmoid_": lambda x: functional.hardsigmoid(x, inplace=True),
    "hardswish_": lambda x: functional.hardswish(x, inplace=True),
    "sigmoid_": torch.sigmoid_,
    "tanh_": torch.tanh_,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    check(FUNCTIONS[name], random(3, 4, 6, low=-4, high=4), ulps=4, scale=2.0)
    if name != "glu":
        check(FUNCTIONS[name], torch.tensor(0.7, dtype=torch.float64), ulps=4)
    check(FUNCTIONS[name], random(0, 4))


@pytest.mark.parametrize("name", INPLACE)
def test_in_place(name):
    check(lambda x: INPLACE[name](x.clone()), random(3, 4), ulps=4)
    for dtype in FLOATS:
        storage = random(3, 4, 2).to(dtype)
        ours = storage.npu()
        INPLACE[name](ours[..., 0])
        assert torch.equal(ours[..., 1].cpu(), storage[..., 1])
        expected = storage[..., 0].double().clone()
        INPLACE[name](expected)
        assert torch.allclose(
            ours[..., 0].cpu().double(), expected, rtol=4 * torch.finfo(dtype).eps, atol=4 * torch.finfo(dtype).eps
        )


@pytest.mark.parametrize("name", ["relu", "leaky_relu", "gelu", "silu", "tanh", "sigmoid", "logsigmoid", "mish", "glu"])
def test_every_layout(name):
    for x in layouts(random(3, 4, 6)):
        check(FUNCTIONS[name], x, dtypes=[torch.float32, torch.float16], ulps=4)


def test_gelu_is_the_tanh_form_whatever_is_asked_for():
    # torch_npu 2.13 calls aclnnGelu for both forms, and passes nothing on.
    check(functional.gelu, random(3, 4), reference=FUNCTIONS["gelu"], ulps=4)


def test_large_inputs_saturate():
    x = torch.tensor([-200.0, -50.0, 50.0, 200.0], dtype=torch.float64)
    for name in ("sigmoid", "tanh", "logsigmoid", "softplus", "gelu", "silu", "mish", "elu"):
        check(FUNCTIONS[name], x, dtypes=[torch.float32])


def test_nan_stays_nan():
    x = torch.tensor([float("nan"), -1.0, 1.0], dtype=torch.float64)
    for name in ("relu", "leaky_relu", "gelu", "sigmoid", "tanh", "hardtanh"):
        check(FUNCTIONS[name], x, grad=False)


@pytest.mark.parametrize("weights", [1, 4])
def test_prelu(weights):
    check(functional.prelu, random(3, 4, 5), random(weights, seed=1), ulps=4)
    check(functional.prelu, random(3, 4), random(weights, seed=1), ulps=4)


def test_rrelu():
    x = random(2000).float().npu().requires_grad_()
    check(lambda x: functional.rrelu(x, 0.1, 0.5, training=False), random(3, 4))
    out = functional.rrelu(x, 0.1, 0.5, training=True)
    slope = (out / x).detach().cpu()
    negative = x.detach().cpu() < 0
    assert torch.equal(slope[~negative], torch.ones_like(slope[~negative]))
    assert 0.1 <= slope[negative].min() < 0.13
    assert 0.47 < slope[negative].max() <= 0.5001
    assert abs(slope[negative].mean() - 0.3) < 0.02
    out.sum().backward()
    assert torch.allclose(x.grad.cpu(), slope, atol=1e-6)
    torch.npu.manual_seed(3)
    again = functional.rrelu(x.detach(), 0.1, 0.5, training=True)
    torch.npu.manual_seed(3)
    in_place = x.detach().clone()
    functional.rrelu_(in_place, 0.1, 0.5, training=True)
    assert torch.equal(in_place, again)


def test_integers():
    x = torch.tensor([-3, 0, 5])
    for dtype in (torch.int8, torch.int32, torch.int64):
        assert functional.relu(x.to(dtype).npu()).tolist() == [0, 0, 5]


def test_names_that_torch_npu_does_not_choose():
    x, grad = random(3, 4).float(), random(3, 4, seed=1).float()
    leaf = x.double().requires_grad_()
    out = torch.zeros(3, 4, device="npu")
    for name, function, arguments in (
        ("aclnnGeluV2", functional.gelu, (x.npu(), 0, out)),
        ("aclnnLogSigmoid", functional.logsigmoid, (x.npu(), out)),
    ):
        aclnn.run(name, *arguments)
        assert torch.allclose(out.cpu().double(), function(leaf), atol=1e-6)
    for name, function, arguments in (
        ("aclnnGeluBackwardV2", functional.gelu, (grad.npu(), x.npu(), "none", out)),
        ("aclnnHardswishBackward", functional.hardswish, (grad.npu(), x.npu(), out)),
    ):
        aclnn.run(name, *arguments)
        (expected,) = torch.autograd.grad(function(leaf), leaf, grad.double())
        assert torch.allclose(out.cpu().double(), expected, atol=1e-6)


def test_first_phase_refuses():
    def zeros(*shape, dtype=torch.float32):
        return torch.zeros(*shape, dtype=dtype, device="npu")

    for name, arguments, text in (
        ("aclnnGelu", (zeros(3, dtype=torch.int32), zeros(3)), "self has dtype int32"),
        ("aclnnGelu", (zeros(3), zeros(4)), "out has shape [4], expected [3]"),
        ("aclnnGeluV2", (zeros(3), 2, zeros(3)), "approximate is 2, allowed are 0 (none) and 1 (tanh)"),
        ("aclnnGeluBackwardV2", (zeros(3), zeros(3), "erf", zeros(3)), 'approximate is "erf"'),
        ("aclnnGlu", (zeros(3, 5), 1, zeros(3, 2)), "dimension 1 cannot be halved"),
        ("aclnnGlu", (zeros(3, 4), 2, zeros(3, 2)), "dim is 2, allowed for self with 2 dimensions is [-2, 1]"),
        ("aclnnPrelu", (zeros(2, 3), zeros(2), zeros(2, 3)), "weight has 2 values, allowed are 1 and 3"),
        ("aclnnThresholdBackward", (zeros(3), zeros(4), 0, zeros(3)), "does not broadcast"),
    ):
        status, message = aclnn.first_phase(name, *arguments)
        assert status == aclnn.INVALID_ARGUMENT
        assert text in message


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_soft_thresholds_that_nothing_passes(dtype):
    """CANN refuses a negative one only (ops-nn: aclnn_softshrink.cpp, aclnn_softshrink_backward.cpp)."""
    x = torch.tensor([-3.0, -0.25, 0.0, 2.0, float("inf"), float("nan")], dtype=dtype).npu().requires_grad_()
    for threshold in (float("inf"), float("nan")):
        out = functional.softshrink(x, threshold)
        (gradient,) = torch.autograd.grad(out, x, torch.ones_like(out))
        assert out[:5].tolist() == [0] * 5 and out[5].isnan()
        assert gradient.tolist() == [0, 0, 0, 0, 0, 1]
    out = functional.softshrink(x, 1e5)  # more than float16 holds
    assert out.tolist()[:5] == [0, 0, 0, 0, float("inf")]
    status, message = aclnn.first_phase("aclnnSoftshrink", x.detach(), -0.5, x.detach())
    assert status == aclnn.INVALID_ARGUMENT
    assert "lambd should be greater or equal to 0" in message
