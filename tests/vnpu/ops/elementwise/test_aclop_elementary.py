"""elementwise/aclop_elementary.cpp: functions of one and of two numbers against torch in float64, and refused calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from aclop import check_refused, drawn, near, ran

I16, I32, I64, BOOL, F64 = torch.int16, torch.int32, torch.int64, torch.bool, torch.float64
INSIDE = torch.linspace(-0.9, 0.9, 24).view(4, 6)
ABOVE = torch.linspace(1.2, 9, 24).view(4, 6)
G = drawn(4, 6)
# The function, where it is taken, and its gradient's type, which is given the function's result where `by_result`.
FUNCTIONS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], torch.Tensor, str, bool]] = {
    "Acos": (torch.acos, INSIDE, "AcosGrad", False),
    "Acosh": (torch.acosh, ABOVE, "AcoshGrad", True),
    "Asin": (torch.asin, INSIDE, "AsinGrad", False),
    "Asinh": (torch.asinh, ABOVE - 5, "AsinhGrad", True),
    "Atan": (torch.atan, ABOVE - 5, "AtanGrad", False),
    "Inv": (torch.reciprocal, ABOVE, "InvGrad", True),
    "Reciprocal": (torch.reciprocal, ABOVE, "ReciprocalGrad", True),
    "Rsqrt": (torch.rsqrt, ABOVE, "RsqrtGrad", True),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_functions_and_their_gradients(name: str, dtype: torch.dtype) -> None:
    function, x, gradient, by_result = FUNCTIONS[name]
    x, slope = x.to(dtype), G.to(dtype)
    tolerance = 2e-6 if dtype == torch.float32 else 2e-3
    wide = x.double().requires_grad_()
    expected = function(wide)
    near(ran(name, [x], (*x.shape, dtype))[0], expected.detach(), tolerance)
    given = expected.detach().to(dtype) if by_result else x
    if by_result:  # what it is differentiated by is rounded, too
        result = given.double()
        slopes = {"AcoshGrad": 1 / result.sinh(), "AsinhGrad": 1 / result.cosh(), "RsqrtGrad": -(result**3) / 2}
        exact = slope.double() * slopes.get(gradient, -(result**2))
    else:
        (exact,) = torch.autograd.grad(expected, wide, slope.double())
    near(ran(gradient, [given, slope], (*x.shape, dtype))[0], exact, tolerance)


@pytest.mark.parametrize("eps", [None, 0.1])
def test_logit(eps: float | None) -> None:
    x = torch.linspace(0.02, 0.98, 24).view(4, 6)
    wide = x.double().requires_grad_()
    expected = torch.logit(wide, eps)
    attributes = {} if eps is None else {"eps": eps}
    near(ran("CustLogit", [x], x.shape, **attributes)[0], expected.detach())
    (slope,) = torch.autograd.grad(expected, wide, G.double())
    near(ran("CustLogitGrad", [G, x], x.shape, **attributes)[0], slope)


WHOLE = torch.tensor([[7, -7, 12], [-9, 1, 30]])
OTHER = torch.tensor([3, -2, 8])
# The operands, and what is expected of them in float64 or whole numbers.
PAIRS: dict[str, tuple[torch.Tensor, torch.Tensor, Callable[[Any, Any], torch.Tensor]]] = {
    "BitwiseAnd": (WHOLE, OTHER, lambda x, y: x & y),
    "BitwiseOr": (WHOLE, OTHER, lambda x, y: x | y),
    "BitwiseXor": (WHOLE, OTHER, lambda x, y: x ^ y),
    "LeftShift": (WHOLE, OTHER.abs(), lambda x, y: x * 2**y),
    "RightShift": (WHOLE, OTHER.abs(), lambda x, y: (x.double() / 2.0**y).floor().long()),
    "TruncateDiv": (WHOLE, OTHER, lambda x, y: (x.double() / y).trunc().long()),
    "TruncateMod": (WHOLE, OTHER, lambda x, y: x - (x.double() / y).trunc().long() * y),
    "CustGcd": (WHOLE, OTHER, torch.gcd),
    "CustLcm": (WHOLE, OTHER, lambda x, y: (x * y).abs() // torch.gcd(x, y)),
    "CustHeaviside": (WHOLE - 7, OTHER, lambda x, y: torch.where(x == 0, y, (x > 0).long())),
    "SquaredDifference": (INSIDE, ABOVE[0], lambda x, y: (x - y) ** 2),
    "Xdivy": (INSIDE.clone().fill_diagonal_(0), ABOVE, lambda x, y: x / y),
    "Xlogy": (INSIDE, ABOVE[0], lambda x, y: x * y.log()),
    "CustHypot": (INSIDE, ABOVE, lambda x, y: (x * x + y * y).sqrt()),
}


@pytest.mark.parametrize("name", PAIRS)
def test_pairs(name: str) -> None:
    x, y, function = PAIRS[name]
    if x.is_floating_point():
        near(ran(name, [x, y], x.shape)[0], function(x.double(), y.double()))
        return
    for dtype in (I64, I32, I16):
        (found,) = ran(name, [x.to(dtype), y.to(dtype)], (*x.shape, dtype))
        assert found.tolist() == function(x, y).tolist()


def test_nothing_times_anything_is_nothing() -> None:
    zero, other = torch.zeros(3), torch.tensor([0.0, torch.nan, torch.inf])
    for name in ("Xdivy", "Xlogy"):
        assert ran(name, [zero, other], (3,))[0].tolist() == [0, 0, 0]


def test_truncated_division_of_floats() -> None:
    x, y = torch.tensor([7.5, -7.5]), torch.tensor([2.0, 2.0])
    assert ran("TruncateDiv", [x, y], (2,))[0].tolist() == [3, -3]
    assert ran("TruncateMod", [x, y], (2,))[0].tolist() == [1.5, -1.5]


def test_the_next_number_and_the_smallest_step() -> None:
    x, y = torch.tensor([1.0, 1.0, -3.0]), torch.tensor([2.0, 0.0, -3.0])
    assert ran("NextAfter", [x, y], (3,))[0].tolist() == [1 + 2.0**-23, 1 - 2.0**-24, -3]
    for dtype in (torch.float16, torch.float32, F64):
        assert ran("CustEps", [torch.ones(2, dtype=dtype)], (2, dtype))[0].tolist() == [torch.finfo(dtype).eps] * 2


def test_about_equal() -> None:
    x, y = torch.tensor([1.0, 1.0, 2.0]), torch.tensor([1.05, 1.2, 2.0])
    assert ran("ApproximateEqual", [x, y], (3, BOOL), tolerance=0.1)[0].tolist() == [1, 0, 1]
    assert ran("ApproximateEqual", [x, y], (3, BOOL))[0].tolist() == [0, 0, 1]


# Operator: inputs, the output's sizes, attributes; words of the message.
REFUSED: dict[str, tuple[list[Any], tuple[Any, ...], dict[str, Any], str]] = {
    "Acos": ([torch.ones(2, dtype=I32)], (2, I32), {}, "no dtype"),
    "AcosGrad": ([drawn(2), drawn(3)], (2,), {}, "an input is"),
    "CustLogit": ([drawn(2)], (3,), {}, "the output is"),
    "BitwiseAnd": ([drawn(2), drawn(2)], (2,), {}, "no dtype"),
    "TruncateDiv": ([drawn(2), drawn(3)], (3,), {}, "do not broadcast"),
    "Xdivy": ([drawn(2), drawn(1)], (3,), {}, "do not broadcast"),
    "ApproximateEqual": ([drawn(2), drawn(2)], (2,), {}, "the output is"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    inputs, size, attributes, words = REFUSED[name]
    check_refused(name, inputs, [size], attributes, words)
