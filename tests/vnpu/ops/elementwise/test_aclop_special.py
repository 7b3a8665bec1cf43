"""elementwise/aclop_special.cpp: the gamma functions and their kin against mpmath at 30 digits, and refused calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import pytest
import torch
from aclop import check_refused, drawn, near, ran

I32, I64 = torch.int32, torch.int64
mpmath.mp.dps = 30
# Where the functions change their way: small, about 1, an integer, large.
POSITIVE = torch.tensor([1e-3, 0.2, 0.5, 1.0, 1.461632, 2.0, 3.7, 11.0, 60.0])
SIGNED = torch.cat([POSITIVE, -torch.tensor([0.3, 1.5, 2.25])])


def near_in_float(found: torch.Tensor, expected: torch.Tensor) -> None:
    """Rounded once: half a unit of the last place of float32."""
    assert ((found - expected.double()).abs() <= 1.2e-7 * expected.double().abs() + 1e-38).all()


FUNCTIONS: dict[str, tuple[Callable[[Any], Any], torch.Tensor]] = {
    "CustLgamma": (lambda x: mpmath.log(abs(mpmath.gamma(x))), SIGNED),
    "CustBesselI0": (lambda x: mpmath.besseli(0, x), SIGNED),
    "BesselI0e": (lambda x: mpmath.besseli(0, x) * mpmath.exp(-abs(x)), SIGNED),
    "BesselI1e": (lambda x: mpmath.besseli(1, x) * mpmath.exp(-abs(x)), SIGNED),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_one_number(name: str) -> None:
    function, x = FUNCTIONS[name]
    (y,) = ran(name, [x], x.shape)
    expected = torch.tensor([float(function(mpmath.mpf(float(v)))) for v in x], dtype=torch.float64)
    near_in_float(y, expected)
    (half,) = ran(name, [x.half()], (*x.shape, torch.float16))
    of_half = torch.tensor([float(function(mpmath.mpf(float(v)))) for v in x.half()], dtype=torch.float64)
    assert torch.equal(half, of_half.half().double())


def test_lgamma_of_an_integer_is_a_float() -> None:
    (y,) = ran("CustLgamma", [torch.tensor([1, 2, 5, 10], dtype=I32)], (4,))
    near_in_float(y, torch.tensor([0, 0, 24.0, 362880.0], dtype=torch.float64).clamp_min(1).log())


@pytest.mark.parametrize("order", [0, 1, 2, 5])
@pytest.mark.parametrize("dtype", [I32, I64])
def test_derivatives_of_digamma(order: int, dtype: torch.dtype) -> None:
    x = POSITIVE[1:]
    (y,) = ran("CustPolygamma", [torch.tensor(order, dtype=dtype), x], x.shape)
    expected = torch.tensor([float(mpmath.polygamma(order, mpmath.mpf(float(v)))) for v in x], dtype=torch.float64)
    assert ((y - expected).abs() <= 1e-6 * expected.abs() + 1e-6).all()


PAIRS = torch.cartesian_prod(torch.tensor([0.01, 0.3, 1.0, 2.5, 20.0]), torch.tensor([1e-3, 0.4, 1.0, 3.0, 21.5, 80.0]))


@pytest.mark.parametrize("name", ["CustIgamma", "Igammac", "IgammaGradA"])
def test_incomplete_gamma_functions(name: str) -> None:
    a, x = PAIRS[:, 0].contiguous(), PAIRS[:, 1].contiguous()

    def lower(a: Any, x: Any) -> Any:
        return mpmath.gammainc(a, 0, x, regularized=True)

    way: dict[str, Callable[[Any, Any], Any]] = {
        "CustIgamma": lower,
        "Igammac": lambda a, x: mpmath.gammainc(a, x, mpmath.inf, regularized=True),
        "IgammaGradA": lambda a, x: mpmath.diff(lambda a: lower(a, x), a),
    }
    rows = [float(way[name](mpmath.mpf(float(p)), mpmath.mpf(float(q)))) for p, q in zip(a, x, strict=True)]
    expected = torch.tensor(rows, dtype=torch.float64)
    (y,) = ran(name, [a, x], a.shape)
    assert ((y - expected).abs() <= 3e-7 * expected.abs() + 1e-30).all(), (y - expected, expected)
    (wide,) = ran(name, [a[:, None], x[None, :5]], (30, 5))
    assert torch.equal(wide[3, :5], ran(name, [a[3].expand(5).contiguous(), x[:5]], (5,))[0])


def test_sums_of_powers() -> None:
    x, q = torch.tensor([1.5, 2.0, 4.0, 9.0]), torch.tensor([0.25, 1.0, 3.5, 2.0])
    (y,) = ran("Zeta", [x, q], (4,))
    near_in_float(
        y,
        torch.tensor([float(mpmath.zeta(float(a), float(b))) for a, b in zip(x, q, strict=True)], dtype=torch.float64),
    )


@pytest.mark.parametrize("p", [1, 3])
def test_the_gamma_function_of_matrices(p: int) -> None:
    x = torch.tensor([1.2, 2.0, 7.5])
    wide = x.double().requires_grad_()
    # Its definition: pi^(p (p - 1) / 4) times a product of gamma functions.
    log_pi = float(mpmath.log(mpmath.pi))
    value = p * (p - 1) / 4 * log_pi + sum(torch.lgamma(wide - j / 2) for j in range(p))
    slope = drawn(3)
    value.backward(slope.double())
    assert wide.grad is not None
    near(ran("CustMvlgamma", [x], (3,), p=p)[0], value.detach())
    near(ran("CustMvlgammaGrad", [slope, x], (3,), p=p)[0], wide.grad)


X = drawn(4, 5)
# Operator: inputs, outputs, attributes; words of the message.
REFUSED: dict[str, tuple[list[Any], list[Any], dict[str, Any], str]] = {
    "CustLgamma": ([torch.tensor([1], dtype=I64)], [(1,)], {}, "no dtype"),
    "CustPolygamma": ([torch.tensor(1.0), X], [(4, 5)], {}, "the order is"),
    "CustMvlgamma": ([X], [(4, 5)], {"p": 0}, "p is 0"),
    "CustMvlgammaGrad": ([X, drawn(4, 4)], [(4, 5)], {"p": 2}, "x is"),
    "CustIgamma": ([X, drawn(3)], [(4, 5)], {}, "does not become"),
    "Igammac": ([X, X.half()], [(4, 5)], {}, "no dtype"),
    "IgammaGradA": ([X, X.double()], [(4, 5)], {}, "does not become"),
    "Zeta": ([X, drawn(5, 4)], [(4, 5)], {}, "does not become"),
    "CustBesselI0": ([X], [(4, 4)], {}, "the output is"),
    "BesselI0e": ([X], [(4, 5, torch.float16)], {}, "the output is"),
    "BesselI1e": ([torch.tensor([1], dtype=I32)], [(1, I32)], {}, "no dtype"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name: str) -> None:
    inputs, sizes, attributes, words = REFUSED[name]
    check_refused(name.split()[0], inputs, sizes, attributes, words)
