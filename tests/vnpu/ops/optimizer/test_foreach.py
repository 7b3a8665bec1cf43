"""torch._foreach_*: one call over lists of tensors."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from aclnn import INVALID_ARGUMENT, first_phase, run
from oracle import check, random

SHAPES = ((3, 4), (), (0, 2), (5,), (2, 1, 3))
POSITIVE = {"low": 0.1, "high": 2.0}


def tensors(count: int = 1, low: float = -2.0, high: float = 2.0) -> list[list[torch.Tensor]]:
    """`count` lists over every shape; the first tensor of each is strided."""
    lists = []
    for index in range(count):
        values = [random(*shape, low=low, high=high, seed=index) for shape in SHAPES]
        values[0] = values[0].t().contiguous().t()
        lists.append(values)
    return lists


UNARY = {
    "abs": {},
    "acos": {"low": -0.9, "high": 0.9},
    "asin": {"low": -0.9, "high": 0.9},
    "atan": {},
    "ceil": {},
    "cos": {},
    "cosh": {},
    "erf": {},
    "erfc": {},
    "exp": {},
    "expm1": {},
    "floor": {},
    "frac": {},
    "log": POSITIVE,
    "log10": POSITIVE,
    "log1p": POSITIVE,
    "log2": POSITIVE,
    "neg": {},
    "reciprocal": POSITIVE,
    "round": {},
    "sigmoid": {},
    "sign": {},
    "sin": {},
    "sinh": {},
    "sqrt": POSITIVE,
    "tan": {"low": -1.0, "high": 1.0},
    "tanh": {},
    "trunc": {},
}


@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str) -> None:
    function = getattr(torch, f"_foreach_{name}")
    check(function, *tensors(**UNARY[name]), grad=False)
    check(in_place(f"_foreach_{name}_"), *tensors(**UNARY[name]), grad=False)


def in_place(name: str) -> Callable[..., Any]:
    def function(first: list[torch.Tensor], *rest: Any, **named: Any) -> list[torch.Tensor]:
        getattr(torch, name)(first, *rest, **named)
        return first

    return function


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "maximum", "minimum", "pow"])
def test_two_lists(name: str) -> None:
    low = 0.5 if name in ("div", "pow") else -2.0
    check(getattr(torch, f"_foreach_{name}"), *tensors(2, low=low), grad=False)
    check(in_place(f"_foreach_{name}_"), *tensors(2, low=low), grad=False)


@pytest.mark.parametrize("name", ["add", "sub"])
def test_alpha(name: str) -> None:
    check(lambda a, b: getattr(torch, f"_foreach_{name}")(a, b, alpha=0.375), *tensors(2), grad=False)
    check(lambda a, b: in_place(f"_foreach_{name}_")(a, b, alpha=-2), *tensors(2), grad=False)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "maximum", "minimum", "pow"])
@pytest.mark.parametrize("scalar", [2, 0.75, [0.5, 1.5, 2.0, 3.0, 0.25]])
def test_scalars(name: str, scalar: Any) -> None:
    low = 0.5 if name == "pow" else -2.0
    check(lambda a: getattr(torch, f"_foreach_{name}")(a, scalar), *tensors(low=low), grad=False)
    check(lambda a: in_place(f"_foreach_{name}_")(a, scalar), *tensors(low=low), grad=False)


ALPHA = 2663 / 2048  # a float32, and neither a float16 nor a bfloat16


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["add", "sub"])
def test_alpha_of_narrow_floats_is_not_rounded_apart(name: str, dtype: torch.dtype) -> None:
    a, b = random(10_000).to(dtype), random(10_000, seed=1).to(dtype)
    once = getattr(torch, name)(a.double(), b.double(), alpha=ALPHA).to(torch.float32).to(dtype)
    function = getattr(torch, f"_foreach_{name}")
    (found,) = function([a.npu()], [b.npu()], alpha=ALPHA)
    single = getattr(torch, name)(a.npu(), b.npu(), alpha=ALPHA)
    for each in (found, single):
        off = (each.cpu().float() - once.float()).abs()
        assert (off != 0).float().mean() < 1e-3 and off.max() <= torch.finfo(dtype).eps * 4


def test_scalar_to_the_power_of_a_list() -> None:
    check(lambda a: torch._foreach_pow(1.5, a), *tensors(), grad=False)


def test_clamp_is_a_maximum_or_minimum() -> None:
    check(lambda a: torch._foreach_clamp_min(a, 0.25), *tensors(), grad=False)
    check(lambda a, b: torch._foreach_clamp_max(a, b), *tensors(2), grad=False)


@pytest.mark.parametrize("name", ["addcmul", "addcdiv"])
def test_three_lists(name: str) -> None:
    lists = tensors(3, low=0.5)
    function = getattr(torch, f"_foreach_{name}")
    check(lambda *a: function(*a, value=0.375), *lists, grad=False)
    check(lambda *a: in_place(f"_foreach_{name}_")(*a, value=-2.0), *lists, grad=False)
    check(lambda *a: function(*a, [0.5, 1.5, 2.0, 3.0, 0.25]), *lists, grad=False)


def test_addcdiv_of_half_with_a_tensor_of_numbers_rounds_each_step() -> None:
    """As NumPy does in float16: the kernel does not widen it, those of one number do."""
    a, b, c = (random(40, 30, low=0.5, seed=i).half() for i in range(3))
    numbers = [-3.0, 0.3]
    found = torch._foreach_addcdiv([a.npu()] * 2, [b.npu()] * 2, [c.npu()] * 2, torch.tensor(numbers))
    for each, number in zip(found, numbers, strict=True):
        expected = a.numpy() + b.numpy() / c.numpy() * np.float16(number)
        assert torch.equal(each.cpu(), torch.from_numpy(expected))


def test_lerp() -> None:
    check(lambda a, b: torch._foreach_lerp(a, b, 0.3), *tensors(2), grad=False)
    check(lambda a, b: in_place("_foreach_lerp_")(a, b, 0.7), *tensors(2), grad=False)
    check(torch._foreach_lerp, *tensors(3), grad=False)
    check(in_place("_foreach_lerp_"), *tensors(3), grad=False)


@pytest.mark.parametrize("order", [1, 2])
def test_norm(order: int) -> None:
    check(lambda a: torch._foreach_norm(a, order), *tensors(), grad=False)


def test_norm_accumulates_in_fp32() -> None:
    ones = torch.ones(70_000, dtype=torch.float16, device="npu")  # the sum of squares is beyond fp16
    assert torch._foreach_norm([ones])[0].item() == pytest.approx(70_000**0.5, rel=1e-3)


def test_zero_and_copy() -> None:
    check(in_place("_foreach_zero_"), *tensors(), grad=False)
    check(in_place("_foreach_copy_"), *tensors(2), grad=False)


def test_copy_converts() -> None:
    source = [random(3, 2).to("npu", torch.bfloat16), random(4).to("npu", torch.bfloat16)]
    target = [torch.zeros(3, 2, device="npu"), torch.zeros(4, device="npu")]
    run("aclnnForeachCopy", source, target)
    assert all(torch.equal(t.cpu(), s.float().cpu()) for t, s in zip(target, source, strict=True))


def test_integers() -> None:
    a = [torch.arange(6, dtype=torch.int32), torch.full((2, 2), 7, dtype=torch.int32)]
    b = [torch.full((6,), 3, dtype=torch.int32), torch.full((2, 2), -2, dtype=torch.int32)]
    for name in ("add", "sub", "mul", "maximum", "minimum"):
        on_npu = getattr(torch, f"_foreach_{name}")([x.npu() for x in a], [y.npu() for y in b])
        for x, y, z in zip(a, b, on_npu, strict=True):
            assert z.dtype == torch.int32 and torch.equal(z.cpu(), getattr(torch, name)(x, y)), name


@pytest.mark.parametrize(("dtype", "compute"), [(torch.int8, torch.float16), (torch.int16, torch.float32)])
@pytest.mark.parametrize("name", ["exp", "expm1"])
def test_exponentials_of_small_integers(name: str, dtype: torch.dtype, compute: torch.dtype) -> None:
    """In float, rounded to even and saturated, as the cores cast."""
    x = torch.tensor([-3, -1, 0, 1, 2, 3, 4, 9, 11, 120], dtype=dtype)
    out = torch.empty_like(x).npu()
    run(f"aclnnForeach{name.capitalize()}", [x.npu()], [out])
    last = torch.iinfo(dtype).max
    exact = getattr(torch, name)(x.double()).to(compute).double()
    assert out.tolist() == [min(round(value), last) for value in exact.clamp(max=1e6).tolist()]


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.uint8])
def test_small_integers(dtype: torch.dtype) -> None:
    x, y = torch.tensor([1, 2, 60], dtype=dtype).npu(), torch.tensor([1, 0, 7], dtype=dtype).npu()
    out = torch.empty_like(x)
    run("aclnnForeachSubList", [x], [y], torch.tensor(1, dtype=torch.int32).npu(), [out])
    assert out.tolist() == [0, 2, 53]
    run("aclnnForeachAddScalar", [x], torch.tensor(5, dtype=torch.int32).npu(), [out])
    assert out.tolist() == [6, 7, 65]


def test_powers_of_integers() -> None:
    x = torch.tensor([-3, -1, 0, 1, 2], dtype=torch.int32).npu()
    out = torch.empty_like(x)
    run("aclnnForeachPowScalarV2", [x], 3, [out])
    assert out.tolist() == [-27, -1, 0, 1, 8]
    run("aclnnForeachPowScalarV2", [x], -1, [out])
    assert out.tolist() == [0, -1, 2**31 - 1, 1, 0]


@pytest.mark.parametrize(
    ("name", "mode", "dtype"),
    [
        ("aclnnForeachRoundOffNumber", torch.tensor(2, dtype=torch.int8), torch.int16),
        ("aclnnForeachRoundOffNumberV2", 2, torch.int32),
    ],
)
def test_integers_are_round(name: str, mode: Any, dtype: torch.dtype) -> None:
    x = torch.tensor([-7, 0, 9], dtype=dtype).npu()
    out = torch.empty_like(x)
    run(name, [x], mode.npu() if isinstance(mode, torch.Tensor) else mode, [out])
    assert out.tolist() == [-7, 0, 9]


def test_more_tensors_than_one_call_takes() -> None:
    many = [torch.full((2,), float(i), device="npu") for i in range(101)]
    torch._foreach_add_(many, 1)
    assert [int(t[1]) for t in many] == list(range(1, 102))


@pytest.mark.parametrize(("mode", "expected"), [(1, [2, -2, 0]), (2, [1, -2, 0]), (4, [2, -2, 1]), (5, [1, -1, 0])])
def test_round_modes(mode: int, expected: list[int]) -> None:
    x = torch.tensor([1.5, -1.5, 0.5], device="npu")
    out = torch.empty_like(x)
    run("aclnnForeachRoundOffNumberV2", [x], mode, [out])
    assert out.tolist() == expected


def test_refusals() -> None:
    x, y = torch.ones(2, 3, device="npu"), torch.ones(3, device="npu")
    for arguments, words in (
        (([x], [x, x], 1, [x]), "parameter x2 has 2 tensors, expected 1"),
        (([x], [y], 1, [x]), "parameter x2 has shape [3], expected [2, 3]"),
        (([x.long()], [x.long()], 1, [x.long()]), "has dtype int64, allowed are"),
        (([x], [x.half()], 1, [x]), "parameter x1 has dtype float32, expected float16"),
    ):
        status, message = first_phase("aclnnForeachAddListV2", *arguments)
        assert status == INVALID_ARGUMENT and words in message
    status, message = first_phase("aclnnForeachAddScalarList", [x, y], [1.0], [x, y])
    assert status == INVALID_ARGUMENT and "parameter scalars has 1 values, expected 2" in message
    status, message = first_phase("aclnnForeachNorm", [x], 2, [y])
    assert status == INVALID_ARGUMENT and "expected []" in message
