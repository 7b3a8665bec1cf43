"""elementwise/unary.cpp: functions of one tensor, in and out of place."""

from __future__ import annotations

import pytest
import torch
from aclnn import INVALID_ARGUMENT, NULL_ARGUMENT, first_phase, run
from oracle import DEVICE, check, compare, layouts, random

# name, lowest and highest input
FUNCTIONS = [
    ("abs", -2, 2),
    ("acos", -0.9, 0.9),
    ("acosh", 1.1, 3),
    ("asin", -0.9, 0.9),
    ("asinh", -2, 2),
    ("atan", -2, 2),
    ("atanh", -0.9, 0.9),
    ("ceil", -3, 3),
    ("cos", -2, 2),
    ("cosh", -2, 2),
    ("erf", -2, 2),
    ("erfc", -2, 2),
    ("erfinv", -0.8, 0.8),
    ("exp", -2, 2),
    ("exp2", -2, 2),
    ("expm1", -2, 2),
    ("floor", -3, 3),
    ("frac", -3, 3),
    ("log", 0.1, 3),
    ("log10", 0.1, 3),
    ("log1p", -0.5, 3),
    ("log2", 0.1, 3),
    ("neg", -2, 2),
    ("reciprocal", 0.5, 3),
    ("round", -3, 3),
    ("rsqrt", 0.5, 3),
    ("sigmoid", -2, 2),
    ("sign", -2, 2),
    ("sin", -2, 2),
    ("sinc", 0.1, 0.9),
    ("sinh", -2, 2),
    ("sqrt", 0.1, 3),
    ("tan", -1, 1),
    ("tanh", -2, 2),
    ("trunc", -3, 3),
]
IN_PLACE_ONLY_OUT_OF_PLACE = {"abs", "neg", "round", "sign", "trunc"}  # torch_npu has no operator of its own here


@pytest.mark.parametrize(("name", "low", "high"), FUNCTIONS)
def test_values_and_gradients(name: str, low: float, high: float) -> None:
    function = getattr(torch, name)
    check(function, random(4, 5, low=low, high=high), ulps=4)
    check(function, random(low=low, high=high), ulps=4)
    check(function, random(0, 3, low=low, high=high), ulps=4)


@pytest.mark.parametrize(("name", "low", "high"), FUNCTIONS)
def test_every_layout_in_and_out_of_place(name: str, low: float, high: float) -> None:
    for view in layouts(random(3, 4, low=low, high=high)):
        check(getattr(torch, name), view, dtypes=[torch.float32], grad=False, ulps=4)
        if 0 in view.stride():
            continue  # an expanded tensor cannot be written
        check(lambda x: getattr(x, name + "_")(), view, dtypes=[torch.float32, torch.bfloat16], grad=False, ulps=4)


@pytest.mark.parametrize("name", ["exp", "sqrt", "sin", "log", "tanh", "reciprocal", "erf", "atan"])
def test_integers_become_float32(name: str) -> None:
    x = torch.tensor([1, 2, 3, 7])
    result = getattr(torch, name)(x.to(DEVICE))
    compare(result, getattr(torch, name)(x.double()), torch.float32)


def test_integers_stay_integers() -> None:
    x = torch.tensor([-3, 0, 5], dtype=torch.int32)
    check(torch.abs, x, grad=False)
    check(torch.neg, x, grad=False)
    check(torch.floor, x, grad=False)
    check(torch.bitwise_not, x, grad=False)
    check(torch.bitwise_not, torch.tensor([True, False]), grad=False)
    check(torch.frac, x.float(), grad=False)
    check(torch.sign, torch.tensor([True, False]), grad=False)


def test_frac_of_integers_is_zero() -> None:
    x = torch.tensor([3, -2], dtype=torch.int32, device=DEVICE)
    out = torch.ones_like(x)
    run("aclnnFrac", x, out)
    assert out.tolist() == [0, 0]


def test_special_values() -> None:
    x = torch.tensor([float("inf"), -float("inf"), float("nan"), 0.0, -0.0, 1.5], dtype=torch.float64)
    for function in (torch.isfinite, torch.isposinf, torch.isneginf, torch.signbit, torch.isinf, torch.isnan):
        check(function, x, grad=False)
    check(lambda t: torch.nan_to_num(t, 1.0, 2.0, -3.0), x)
    check(lambda t: torch.nan_to_num_(t, 1.0, 2.0, -3.0), x, grad=False)
    check(lambda t: torch.nan_to_num(t)[2:], x)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
def test_whole_numbers_are_finite(dtype: torch.dtype) -> None:
    x = torch.tensor([[0, 1, 127], [-128, 3, 1]]).to(dtype)
    for function in (torch.isfinite, torch.isposinf, torch.isneginf):
        for view in (x, x.t(), x[:, 1], x[:0]):
            result = function(view.to(DEVICE))
            assert result.dtype == torch.bool
            assert result.tolist() == function(view.double()).tolist()
    out = torch.zeros(2, 3, dtype=torch.bool, device=DEVICE)
    run("aclnnIsFinite", x.to(DEVICE), out)
    assert out.all()
    status, message = first_phase("aclnnIsFinite", torch.ones(2, dtype=torch.complex64).to(DEVICE), out[0, :2])
    assert status == INVALID_ARGUMENT
    assert "self has dtype ComplexFloat" in message


def test_rounding_to_decimals() -> None:
    x = random(20, low=-9, high=9)
    check(lambda t: torch.round(t, decimals=1), x, dtypes=[torch.float32], grad=False)
    check(lambda t: torch.round_(t, decimals=1), x, dtypes=[torch.float32], grad=False)
    half = torch.tensor([0.5, 1.5, 2.5, -0.5], dtype=torch.float64)
    check(torch.round, half)  # half to even


def test_rounding_integers_to_decimals() -> None:
    """The cores round int32 to even (ops-math: round_dag.h); the AI CPU divides int64 as integers are divided
    (ops-math: round_aicpu.cpp)."""
    values = [-26, -25, -4, 0, 34, 35, 36, 45, 2**31 - 1]
    for dtype in (torch.int32, torch.int64):
        x = torch.tensor(values, dtype=dtype, device=DEVICE)
        for decimals in (0, 3):
            assert torch.round(x, decimals=decimals).tolist() == values
        assert torch.round(x, decimals=-19).tolist() == [0] * 9
    narrow = torch.tensor(values[:-1], dtype=torch.int32, device=DEVICE)
    assert torch.round(narrow, decimals=-1).tolist() == [-30, -20, 0, 0, 30, 40, 40, 40]
    assert torch.round_(narrow, decimals=-2).tolist() == [0] * 8
    wide = torch.tensor([*values, 10**18 + 7], dtype=torch.int64, device=DEVICE)
    assert torch.round(wide, decimals=-1).tolist() == [-20, -20, 0, 0, 30, 30, 30, 40, 2147483640, 10**18]


def test_logit() -> None:
    check(lambda t: torch.logit(t, eps=0.2), random(30, low=0, high=1), grad=False, ulps=4)
    check(lambda t: torch.logit(t), random(30, low=0.2, high=0.8), grad=False, ulps=8)


def test_angle() -> None:
    z = torch.complex(random(5), random(5, seed=3)).to(torch.complex64)
    compare(torch.angle(z.to(DEVICE)), torch.angle(z.to(torch.complex128)), torch.float32)
    check(torch.angle, random(6), grad=False)


def test_complex() -> None:
    z = torch.complex(random(5), random(5, seed=3)).to(torch.complex64)
    for function in (torch.exp, torch.sin, torch.sqrt, torch.neg, torch.reciprocal):
        compare(function(z.to(DEVICE)), function(z.to(torch.complex128)), torch.float32, ulps=8)
    compare(torch.abs(z.to(DEVICE)), torch.abs(z.to(torch.complex128)), torch.float32)


def test_refused() -> None:
    x, out = torch.ones(2, 3, device=DEVICE), torch.empty(3, 2, device=DEVICE)
    status, message = first_phase("aclnnExp", x, out)
    assert status == INVALID_ARGUMENT
    assert "out has shape [3, 2], expected [2, 3]" in message
    status, message = first_phase("aclnnExp", None, out)
    assert status == NULL_ARGUMENT
    assert "self" in message
    status, message = first_phase("aclnnExp", x.int(), torch.empty_like(x))
    assert status == INVALID_ARGUMENT
    assert "self has dtype int32, allowed are" in message
    status, message = first_phase("aclnnSqrt", x.int(), torch.empty_like(x, dtype=torch.int32))
    assert status == INVALID_ARGUMENT
    assert "out has dtype int32" in message
    with pytest.raises(RuntimeError, match=r"parameter self has dtype int32, allowed are"):
        torch.exp(x.int())
