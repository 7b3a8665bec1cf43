"""elementwise/arithmetic.cpp: two operands with broadcasting, numbers, type promotion."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from aclnn import INVALID_ARGUMENT, NULL_ARGUMENT, first_phase, run
from oracle import DEVICE, check, compare, layouts, random

POSITIVE = {"low": 0.5, "high": 3.0}
BINARY: list[tuple[Callable[..., Any], dict[str, float]]] = [
    (operator.add, {}),
    (operator.sub, {}),
    (operator.mul, {}),
    (operator.truediv, POSITIVE),
    (operator.pow, POSITIVE),
    (torch.maximum, {}),
    (torch.minimum, {}),
    (torch.atan2, POSITIVE),
    (torch.logaddexp, {}),
    (torch.logaddexp2, {}),
    (torch.xlogy, POSITIVE),
    (torch.rsub, {}),
    (torch.fmod, POSITIVE),
    (torch.remainder, POSITIVE),
    (torch.floor_divide, POSITIVE),
    (lambda a, b: torch.add(a, b, alpha=0.5), {}),
    (lambda a, b: torch.sub(a, b, alpha=-2), {}),
    (lambda a, b: torch.rsub(a, b, alpha=0.5), {}),
    (lambda a, b: torch.div(a, b, rounding_mode="floor"), POSITIVE),
    (lambda a, b: torch.div(a, b, rounding_mode="trunc"), POSITIVE),
]
STEPS = (torch.fmod, torch.remainder, torch.floor_divide)  # a rounded quotient jumps: see below


@pytest.mark.parametrize(("function", "domain"), BINARY)
def test_values_and_gradients(function: Callable[..., Any], domain: dict[str, float]) -> None:
    dtypes = [torch.float32] if function in STEPS else (torch.float32, torch.float16, torch.bfloat16)
    grad = function not in STEPS
    a, b = random(4, 5, **domain), random(4, 5, seed=1, **domain)
    check(function, a, b, dtypes=dtypes, grad=grad, ulps=4)
    check(function, a, random(5, seed=1, **domain), dtypes=dtypes, grad=grad, ulps=4)
    check(function, random(4, 1, **domain), random(5, seed=1, **domain), dtypes=dtypes, grad=grad, ulps=4)
    check(function, random(**domain), random(seed=1, **domain), dtypes=dtypes, grad=grad, ulps=4)
    check(function, random(0, 5, **domain), random(5, **domain), dtypes=dtypes, grad=grad)
    for view in layouts(a):
        check(function, view, b.t().contiguous().t(), dtypes=[torch.float32], grad=False, ulps=4)


@pytest.mark.parametrize("function", STEPS)
def test_jumping_functions_in_half_precision(function: Callable[..., Any]) -> None:
    """On multiples of 1/4 every step is exact, in each dtype and on either side of zero."""
    a = torch.tensor([5.25, -5.25, 3.0, -3.0, 0.0, 7.5], dtype=torch.float64)
    b = torch.tensor([1.5, 1.5, -0.75, 0.75, 2.0, -2.0], dtype=torch.float64)
    check(function, a, b, grad=False)
    check(lambda x: function(x, -1.5), a, grad=False)
    check(lambda x: function(x.int(), 4), a, grad=False)
    check(lambda x, y: function(x.int(), y.int()), a, torch.tensor([2.0, 3, -2, 2, 5, -4]).double(), grad=False)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + 1.5,
        lambda x: 1.5 + x,
        lambda x: x - 0.3,
        lambda x: 0.3 - x,
        lambda x: x * 1.1,
        lambda x: x / 3,
        lambda x: 2 / x,
        lambda x: x**2,
        lambda x: x**0.5,
        lambda x: x**3,
        lambda x: x**-1.5,
        lambda x: 2**x,
        lambda x: torch.add(x, 2, alpha=0.25),
        lambda x: torch.rsub(x, 2, alpha=3),
        lambda x: torch.xlogy(x, 2.0),
        lambda x: torch.xlogy(2.0, x),
        lambda x: torch.div(x, 0.7, rounding_mode=None),
        lambda x: x.remainder(4.0),
        lambda x: x.fmod(4.0),
    ],
)
def test_numbers(function: Callable[..., Any]) -> None:
    check(function, random(4, 5, **POSITIVE), ulps=4)
    check(function, random(**POSITIVE), ulps=4)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: x.add_(y, alpha=0.5),
        lambda x, y: x.sub_(y, alpha=0.5),
        lambda x, y: x.mul_(y),
        lambda x, y: x.div_(y),
        lambda x, y: x.pow_(y),
        lambda x, y: x.atan2_(y),
        lambda x, y: x.add_(0.3),
        lambda x, y: x.sub_(0.3),
        lambda x, y: x.mul_(0.3),
        lambda x, y: x.div_(0.3),
        lambda x, y: x.pow_(2),
        lambda x, y: x.xlogy_(2.0),
        lambda x, y: x.add_(x),
        lambda x, y: torch.add(x, y, out=x),
        lambda x, y: torch.mul(x, y, out=torch.empty_like(x)),
    ],
)
def test_in_place(function: Callable[..., Any]) -> None:
    for view in layouts(random(3, 4, **POSITIVE)):
        if 0 not in view.stride():
            check(function, view, random(4, seed=2, **POSITIVE).expand(3, 4), grad=False, ulps=4)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: x.div_(y, rounding_mode="floor"),
        lambda x, y: x.div_(4, rounding_mode="floor"),
        lambda x, y: x.floor_divide_(y),
        lambda x, y: x.floor_divide_(4),
        lambda x, y: x.remainder_(y),
        lambda x, y: x.remainder_(4),
        lambda x, y: x.fmod_(y),
        lambda x, y: x.fmod_(4),
        lambda x, y: x.pow_(3),
        lambda x, y: x.add_(y, alpha=2),
        lambda x, y: torch.gcd(x, y),
        lambda x, y: x << 2,
        lambda x, y: x << y.abs(),
        lambda x, y: x >> y.abs(),
        lambda x, y: x // 3,
        lambda x, y: torch.div(x, 3, rounding_mode="trunc"),
        lambda x, y: x % 3,
        lambda x, y: x**2,
        lambda x, y: x.maximum(y),
    ],
)
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_integers(function: Callable[..., Any], dtype: torch.dtype) -> None:
    x = torch.tensor([-7, -1, 0, 5, 12], dtype=dtype)
    y = torch.tensor([3, -2, 4, -3, 5], dtype=dtype)
    check(function, x, y, grad=False)


def test_type_promotion() -> None:
    ints, floats = torch.tensor([1, 2, 3]), random(3)
    check(lambda i, f: i + f, ints, floats)
    check(lambda i, f: f * i, ints, floats)
    assert (ints.to(DEVICE) + 2.5).tolist() == [3.5, 4.5, 5.5]
    assert (ints.to(DEVICE) + 2.5).dtype == torch.float32
    assert (ints.to(DEVICE) / 2).tolist() == [0.5, 1.0, 1.5]
    assert (ints.to(DEVICE) + True).tolist() == [2, 3, 4]
    half = torch.tensor([1.0, 2.0], dtype=torch.float16, device=DEVICE)
    assert (half + torch.ones(2, device=DEVICE)).dtype == torch.float32
    assert (half + 70000).tolist() == [float("inf"), float("inf")]
    assert (torch.tensor([True, False], device=DEVICE) + 1).tolist() == [2, 1]


def test_scalar_is_not_rounded_to_half_first() -> None:
    """x * 1.1 in bfloat16 multiplies by 1.1, not by the bfloat16 next to it, and rounds once."""
    check(lambda x: x * 1.1, random(200, low=100, high=1000), dtypes=[torch.bfloat16], ulps=0.51, scale=0, grad=False)
    check(
        lambda x: x + 0.0625,
        random(200, low=100, high=1000),
        dtypes=[torch.float16, torch.bfloat16],
        ulps=0.51,
        scale=0,
        grad=False,
    )


def test_complex() -> None:
    a, b = random(4), random(4, seed=5)
    compare(
        torch.complex(a.float().to(DEVICE), b.float().to(DEVICE)), torch.complex(a.float(), b.float()), torch.float32
    )
    compare(
        torch.polar(a.float().to(DEVICE), b.float().to(DEVICE)),
        torch.polar(a.float().double(), b.float().double()),
        torch.float32,
    )
    z = torch.complex(a, b).to(torch.complex64)
    compare((z.to(DEVICE) * z.to(DEVICE)), z.to(torch.complex128) * z.to(torch.complex128), torch.float32, ulps=8)


def test_relu_of_a_sum() -> None:
    a, b = random(3, 4).float().to(DEVICE), random(4, seed=4).float().to(DEVICE)
    out = torch.empty(3, 4, device=DEVICE)
    run("aclnnAddRelu", a, b, 0.5, out)
    torch.testing.assert_close(out.cpu(), torch.relu(a.cpu() + 0.5 * b.cpu()))
    run("aclnnInplaceAddRelu", a, b, 0.5)
    torch.testing.assert_close(a.cpu(), out.cpu())


def test_gradients_in_one_step() -> None:
    check(torch.sigmoid, random(4, 5))
    check(torch.tanh, random(4, 5))


# What torch_npu 2.13 does not choose by itself is called by its C name.
@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("aclnnAddV3", lambda x, y, out: (2, y, 3, out), lambda x, y: 2 + 3 * y),
        ("aclnnSubs", lambda x, y, out: (x, 2, 0.5, out), lambda x, y: x - 1),
        ("aclnnRsubs", lambda x, y, out: (x, 2, 0.5, out), lambda x, y: 2 - 0.5 * x),
        ("aclnnRemainderScalarTensor", lambda x, y, out: (4.0, y, out), lambda x, y: torch.remainder(4.0, y)),
        ("aclnnXLogYScalarSelf", lambda x, y, out: (4.0, y, out), lambda x, y: torch.xlogy(4.0, y)),
        ("aclnnPowScalarTensor", lambda x, y, out: (3.0, y, out), lambda x, y: 3.0**y),
    ],
)
def test_by_c_name(name: str, arguments: Callable[..., Any], expected: Callable[..., Any]) -> None:
    x, y = random(3, 4, **POSITIVE).float(), random(3, 4, seed=8, **POSITIVE).float()
    out = torch.empty(3, 4, device=DEVICE)
    run(name, *arguments(x.to(DEVICE), y.to(DEVICE), out))
    compare(out, expected(x.double(), y.double()), torch.float32)


def test_a_factor_of_float16_is_one() -> None:
    """Rounded before it is multiplied, as aclnnMuls does; beside bfloat16 it is not."""
    x = random(1000).half()
    product = (x.npu() * 0.54).cpu()
    assert product.equal((x.float() * torch.tensor(0.54).half().float()).half())
    narrow = x.bfloat16()
    assert (narrow.npu() * 0.54).cpu().equal((narrow.float() * 0.54).bfloat16())


def test_truth_values_are_subtracted() -> None:
    """Which torch refuses; of two, the distance."""
    x, y = torch.tensor([[True], [False]], device=DEVICE), torch.tensor([True, False], device=DEVICE)
    out = torch.empty(2, 2, dtype=torch.bool, device=DEVICE)
    run("aclnnSub", x, y, 1, out)
    assert out.tolist() == [[False, True], [True, False]]
    run("aclnnSub", x, y, 0, out)
    assert out.tolist() == [[True, True], [False, False]]
    whole = torch.empty(2, dtype=torch.int32, device=DEVICE)
    run("aclnnSub", torch.tensor([5, 7], dtype=torch.int32, device=DEVICE), y, 2, whole)
    assert whole.tolist() == [3, 7]
    run("aclnnSubs", y, 4, 1, whole)
    assert whole.tolist() == [-3, -4]
    run("aclnnInplaceSubs", y, True, 1)
    assert y.tolist() == [False, True]
    run("aclnnInplaceSub", y, y.clone(), 1)
    assert y.tolist() == [False, False]


def test_angles_are_cut_to_integers() -> None:
    """In place, which torch refuses."""
    y, x = (torch.tensor(values, dtype=torch.int32, device=DEVICE) for values in ([5, -5, 0, 3], [-1, -2, 7, 0]))
    run("aclnnInplaceAtan2", y, x)
    assert y.tolist() == [1, -1, 0, 1]


def test_to_the_power_of_truth_values() -> None:
    exponent = torch.tensor([True, False], device=DEVICE)
    out = torch.empty(2, dtype=torch.int64, device=DEVICE)
    run("aclnnPowScalarTensor", 5, exponent, out)
    assert out.tolist() == [5, 1]
    status, message = first_phase("aclnnPowScalarTensor", True, exponent, out)
    assert status == INVALID_ARGUMENT and "Self and exponent dtype are bool is not supported" in message


INTEGERS = [torch.bool, torch.uint8, torch.int8, torch.int16]


@pytest.mark.parametrize("dtypes", [(a, b) for a in INTEGERS for b in (*INTEGERS, torch.int32)])
def test_remainders_of_small_integers_are_refused(dtypes: tuple[torch.dtype, torch.dtype]) -> None:
    x, y = (torch.tensor([7, 1], device=DEVICE).to(dtype) for dtype in dtypes)
    out = torch.empty(2, dtype=torch.int32, device=DEVICE)
    status, message = first_phase("aclnnRemainderTensorTensor", x, y, out)
    assert status == (0 if torch.int32 in dtypes else INVALID_ARGUMENT), message
    assert not message or "Promote type should be in dtype support list" in message


def test_integers_by_c_name() -> None:
    x = torch.tensor([-7, 5, 12], dtype=torch.int32, device=DEVICE)
    out = torch.empty_like(x)
    run("aclnnLeftShifts", x, 2, out)
    assert out.tolist() == [-28, 20, 48]
    run("aclnnFloorDivides", x, 2, out)
    assert out.tolist() == [-4, 2, 6]
    run("aclnnInplaceFloorDivides", out, 2)
    assert out.tolist() == [-2, 1, 3]


@pytest.mark.parametrize(
    ("dtype", "exponent", "cast"),
    [(torch.int8, 127, 127), (torch.int8, 200, -56), (torch.int8, 129, -127), (torch.uint8, 300, 44)],
)
def test_an_exponent_that_the_base_cannot_hold(dtype: torch.dtype, exponent: int, cast: int) -> None:
    """It is cast to the base's dtype; a negative power of integers is 0 but for those of 1 and -1 (ops-math:
    aclnn_pow.cpp, pow_aicpu.cpp). The oracle is Python's integers, which wrap as the dtype does."""
    base = torch.tensor([-2, -1, 0, 1, 2, 3]).to(dtype)
    powers = [x**cast if cast >= 0 else {1: 1, -1: (-1) ** cast}.get(x, 0) for x in base.tolist()]
    expected = torch.tensor([p % 256 for p in powers]).to(dtype)
    compare(base.to(DEVICE) ** exponent, expected, dtype)
    compare(base.to(DEVICE).pow_(exponent), expected, dtype)
    wide = torch.empty(6, dtype=torch.int64, device=DEVICE)
    run("aclnnPowTensorScalar", base.to(DEVICE), exponent, wide)
    compare(wide, expected.long(), torch.int64)


def test_refused() -> None:
    x, out = torch.ones(2, 3, device=DEVICE), torch.empty(2, 3, device=DEVICE)
    assert first_phase("aclnnAdd", x, x, 1, out) == (0, "")
    status, message = first_phase("aclnnAdd", x, torch.ones(4, device=DEVICE), 1, out)
    assert status == INVALID_ARGUMENT
    assert "other has shape [4], which does not broadcast with [2, 3]" in message
    status, message = first_phase("aclnnAdd", x, x, 1, torch.empty(2, 3, dtype=torch.int32, device=DEVICE))
    assert status == INVALID_ARGUMENT
    assert "out has dtype int32, which cannot hold the result's float32" in message
    assert first_phase("aclnnAdd", x, x, None, out)[0] == NULL_ARGUMENT
    assert first_phase("aclnnMul", x, None, out)[0] == NULL_ARGUMENT
    assert first_phase("aclnnAdds", x, None, 1, out)[0] == NULL_ARGUMENT
    status, message = first_phase("aclnnDivMod", x, x, 3, out)
    assert status == INVALID_ARGUMENT
    assert "mode is 3, allowed is 0 to 2" in message
    i = torch.ones(2, 3, dtype=torch.int32, device=DEVICE)
    for name in ("aclnnFloorDivides", "aclnnRemainderTensorScalar", "aclnnFmodScalar"):
        status, message = first_phase(name, i, 0, i)
        assert status == INVALID_ARGUMENT
        assert "other is 0" in message
    status, message = first_phase("aclnnPowTensorScalar", i, -1, i)
    assert status == INVALID_ARGUMENT
    assert "exponent is -1, negative" in message


INTEGERS = (torch.int32, torch.int64, torch.int16, torch.int8, torch.uint8)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_an_integer_takes_a_true_quotient_without_its_fraction(dtype: torch.dtype) -> None:
    """As the cast behind hardware's division leaves it (ops-math: aclnn_div.cpp): torch_npu's average of ranks stands on
    it. A number need not be an integer, a tensor of floats does not fit."""
    numbers = [7, 8, 9, 100] if dtype == torch.uint8 else [7, -7, 9, -100]
    expected = [int(number / 2) for number in numbers]
    given = torch.tensor(numbers, dtype=dtype)
    x, two, out = (given.to(DEVICE), torch.full((4,), 2, dtype=dtype, device=DEVICE), torch.empty(4, dtype=dtype))
    for name, other in (("aclnnDivs", 2), ("aclnnDiv", two)):
        result = out.to(DEVICE)
        run(name, x, other, result)
        assert result.tolist() == expected, name
        run(name.replace("Div", "DivMod"), x, other, 0, result.zero_())
        assert result.tolist() == expected, name
    assert given.to(DEVICE).div_(2).tolist() == expected
    assert given.to(DEVICE).div_(two).tolist() == expected
    assert given.to(DEVICE).div_(2.5).tolist() == [int(number / 2.5) for number in numbers]
    status, message = first_phase("aclnnDiv", x, two.float(), out.to(DEVICE))
    assert status == INVALID_ARGUMENT
    assert "cannot hold the result's float32" in message


def test_true_quotients_of_integers_are_those_of_float32() -> None:
    """But two int32 are divided as they are; what does not fit is the nearest number that does."""
    large = 2**24 + 1
    assert torch.tensor([large], device=DEVICE).div_(1).tolist() == [2**24]
    narrow = torch.tensor([large, -(2**31)], dtype=torch.int32, device=DEVICE)
    narrow.div_(torch.tensor([1, -1], dtype=torch.int32, device=DEVICE))
    assert narrow.tolist() == [large, 2**31 - 1]
    x = torch.tensor([5, -5, 0], device=DEVICE)
    x.div_(torch.tensor([0, 0, 0], device=DEVICE))
    assert x.tolist() == [torch.iinfo(torch.int64).max - 1023, torch.iinfo(torch.int64).min, 0]
    truths = torch.tensor([True, False], device=DEVICE)
    assert truths.div_(2.0).tolist() == [True, False]
