"""The gamma functions and their kin, histograms, QR and CTC's best path of the old API, against mpmath at 30 digits and torch
in float64."""

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
    expected = torch.tensor(
        [float(mpmath.polygamma(order, mpmath.mpf(float(v)))) for v in x], dtype=torch.float64
    )
    assert ((y - expected).abs() <= 1e-6 * expected.abs() + 1e-6).all()


PAIRS = torch.cartesian_prod(
    torch.tensor([0.01, 0.3, 1.0, 2.5, 20.0]), torch.tensor([1e-3, 0.4, 1.0, 3.0, 21.5, 80.0])
)


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
    near_in_float(y, torch.tensor([float(mpmath.zeta(float(a), float(b))) for a, b in zip(x, q, strict=True)], dtype=torch.float64))  # fmt: skip


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, I32])
@pytest.mark.parametrize("ends", [(-5.0, 5.0), (0.0, 0.0)])
def test_how_many_are_in_each_bin(dtype: torch.dtype, ends: tuple[float, float]) -> None:
    x = (drawn(200) * 4).to(dtype)
    low, high = ends if ends != (0, 0) else (float(x.min()), float(x.max()))
    (y,) = ran(
        "Histogram", [x], (7, I32 if dtype == I32 else torch.float32), bins=7, min=ends[0], max=ends[1]
    )
    edges = torch.linspace(low, high, 8, dtype=torch.float64)
    inside = x.double()[(x >= low) & (x <= high)]
    place = torch.bucketize(inside, edges, right=True).clamp(max=7) - 1  # the last bin has its end
    expected = torch.bincount(place, minlength=7).tolist()
    assert y.tolist() == expected and sum(expected) > 100


@pytest.mark.parametrize("dtype", [torch.float32, I32])
def test_what_lies_outside_is_in_the_last_bins(dtype: torch.dtype) -> None:
    x = torch.tensor([-9, 0, 1, 2, 3, 4, 5, 99]).to(dtype)
    (y,) = ran("HistogramFixedWidth", [x, torch.tensor([0, 5]).to(dtype), [5]], (5, I32), dtype=3)
    assert y.tolist() == [2, 1, 1, 1, 3]


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.5, float("inf")])
@pytest.mark.parametrize("dim", [0, -2])
def test_factors_that_bring_parts_to_a_norm(p: float, dim: int) -> None:
    x = drawn(4, 3, 5)
    most = (
        float(torch.linalg.vector_norm(x.double(), p, [i for i in range(3) if i != dim % 3]).median())
        if p
        else 10.0
    )
    (y,) = ran("Renorm", [x], (4, 1, 1) if dim == 0 else (1, 3, 1), p=p, dim=dim, maxnorm=most)
    norms = torch.linalg.vector_norm(x.double(), p, [i for i in range(3) if i != dim % 3], keepdim=True)
    near(y, torch.where(norms > most, most / (norms + 1e-7), 1.0))
    assert (y < 1).any() and ((y == 1).any() or p == 0)


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("size", [(2, 5, 3), (3, 5), (4, 4)])
def test_orthogonal_times_triangular(whole: bool, size: tuple[int, ...]) -> None:
    x = drawn(*size)
    rows, columns = size[-2:]
    inner = rows if whole else min(rows, columns)
    q, r = ran("Qr", [x], (*size[:-1], inner), (*size[:-2], inner, columns), full_matrices=whole)
    near(q @ r, x.double())
    near(q.mT @ q, torch.eye(inner).double().expand(*size[:-2], inner, inner))
    assert torch.equal(r, r.triu())


def best_path(
    logits: torch.Tensor, lengths: list[int], merged: bool
) -> tuple[list[list[int]], list[int], list[float]]:
    places, values, likelihoods = [], [], []
    for b, length in enumerate(lengths):
        classes = logits[:length, b].argmax(-1).tolist()
        kept = [c for t, c in enumerate(classes) if c != logits.shape[2] - 1 and not (merged and t and classes[t - 1] == c)]  # fmt: skip
        places += [[b, i] for i in range(len(kept))]
        values += kept
        likelihoods.append(-float(logits[:length, b].max(-1).values.double().sum()))
    return places, values, likelihoods


@pytest.mark.parametrize("merged", [True, False])
def test_the_most_likely_classes(merged: bool) -> None:
    logits = drawn(9, 3, 4)
    logits[1, 0, 0] = 9  # no blank
    logits[2] = logits[1]  # repeats
    lengths = [9, 4, 0]
    places, values, likelihoods = best_path(logits, lengths, merged)
    found = ran("CTCGreedyDecoder", [logits, torch.tensor(lengths, dtype=I32)], (27, 2, I64), (27, I64), (2, I64), (3, 1), merge_repeated=merged)  # fmt: skip
    assert found[0][: len(places)].tolist() == places and found[1][: len(values)].tolist() == values
    assert found[2].tolist() == [3, max(i + 1 for _, i in places)]
    near(found[3].flatten(), torch.tensor(likelihoods, dtype=torch.float64))
    assert best_path(logits, lengths, not merged)[1] != values


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
    "Histogram": ([X], [(5,)], {"bins": 4, "max": 1.0}, "the output is"),
    "Histogram 2": ([X], [(5,)], {"bins": 5, "min": 2.0, "max": 1.0}, "min and max are 2 and 1"),
    "HistogramFixedWidth": ([X, drawn(2), [4]], [(5, I32)], {}, "the output is"),
    "HistogramFixedWidth 2": ([X, drawn(2), [0]], [(0, I32)], {}, "nbins is 0"),
    "Renorm": ([X], [(4, 5)], {"p": 2.0, "dim": 0, "maxnorm": 1.0}, "the output is"),
    "Renorm 2": ([X], [(4, 1)], {"p": -1.0, "dim": 0, "maxnorm": 1.0}, "p and maxnorm are -1"),
    "Qr": ([X], [(4, 4), (4, 4)], {}, "r is"),
    "Qr 2": ([X[0]], [(5,), (5,)], {}, "expected 2 dimensions"),
    "CTCGreedyDecoder": ([drawn(3, 2, 4), torch.ones(3, dtype=I32)], [(6, 2, I64), (6, I64), (2, I64), (2, 1)], {}, "sequence_length is"),
    "CTCGreedyDecoder 2": ([drawn(3, 2, 4), torch.ones(2, dtype=I32)], [(5, 2, I64), (6, I64), (2, I64), (2, 1)], {}, "decoded_indices is"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name: str) -> None:
    inputs, sizes, attributes, words = REFUSED[name]
    check_refused(name.split()[0], inputs, sizes, attributes, words)
