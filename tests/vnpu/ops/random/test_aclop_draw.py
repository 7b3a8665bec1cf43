"""random/aclop_draw.cpp: what is drawn has the distribution that the call asks for. That a run repeats is in
tests/mindspore/test_mindspore_draws.py, as calls are numbered in a process."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from aclop import check_refused, drawn, ran

I32, I64, BOOL = torch.int32, torch.int64, torch.bool
COUNT = 20000
# Kolmogorov and Smirnov: the largest distance is beyond this once in 10^6 runs.
FARTHEST = math.sqrt(-math.log(0.5e-6) / 2 / COUNT)


def farthest(values: torch.Tensor, share_below: Callable[[torch.Tensor], torch.Tensor]) -> float:
    """The largest distance between the shares of the values and those of the distribution."""
    ordered = values.flatten().double().sort().values
    expected, steps = share_below(ordered), torch.arange(ordered.numel() + 1) / ordered.numel()
    return float(torch.maximum((steps[1:] - expected).abs(), (steps[:-1] - expected).abs()).max())


def normal_below(x: torch.Tensor) -> torch.Tensor:
    return torch.special.ndtr(x)


def truncated_below(x: torch.Tensor) -> torch.Tensor:
    edges = normal_below(torch.tensor([-2.0, 2.0]).double())
    return (normal_below(x) - edges[0]) / (edges[1] - edges[0])


def laplace_below(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x < 0, x.exp() / 2, 1 - (-x).exp() / 2)


def gamma_below(shape: float, scale: float) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: torch.special.gammainc(torch.full_like(x, shape), x / scale)


def gamma(shape: float, scale: float) -> list[Any]:
    return [torch.tensor([COUNT]), torch.tensor([shape]), torch.tensor([scale]), torch.tensor([0]), torch.tensor([0])]


DISTRIBUTIONS: dict[str, tuple[list[Any], Callable[[torch.Tensor], torch.Tensor]]] = {
    "CustStandardLaplace": ([[COUNT]], laplace_below),
    "TruncatedNormal": ([[COUNT]], truncated_below),
    **{f"CustGamma {a}": (gamma(a, 2.5), gamma_below(a, 2.5)) for a in (0.1, 0.7, 1.0, 4.0, 50.0)},
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_numbers_have_their_distribution(name: str) -> None:
    inputs, share_below = DISTRIBUTIONS[name]
    name = name.split()[0]
    (y,) = ran(name, inputs, (COUNT,), seed=5, seed2=3)
    assert farthest(y, share_below) < FARTHEST
    assert farthest(y * 1.1 + 0.1, share_below) > FARTHEST  # what is a tenth off is told
    (again,) = ran(name, inputs, (COUNT,), seed=5, seed2=3)
    assert not torch.equal(again, y)
    # Neighbours have nothing to do with each other.
    ranks = share_below(y.double())
    assert abs(float(torch.corrcoef(torch.stack([ranks[1:], ranks[:-1]]))[0, 1])) < 5 / math.sqrt(COUNT)


ATTRIBUTES: dict[str, tuple[list[Any], dict[str, Any], Callable[[torch.Tensor], torch.Tensor]]] = {
    "CustCauchy": (
        [],
        {"size": [COUNT], "median": 2.0, "sigma": 0.5},
        lambda x: ((x - 2) / 0.5).atan() / math.pi + 0.5,
    ),
    "CustLogNormalReverse": (
        [torch.zeros(COUNT)],
        {"mean": 0.5, "std": 1.5},
        lambda x: normal_below((x.log() - 0.5) / 1.5),
    ),
}


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_numbers_of_a_distribution_by_attributes(name: str) -> None:
    inputs, attributes, share_below = ATTRIBUTES[name]
    (y,) = ran(name, inputs, (COUNT,), **attributes)
    assert farthest(y, share_below) < FARTHEST and farthest(y * 1.1 + 0.1, share_below) > FARTHEST
    assert not torch.equal(ran(name, inputs, (COUNT,), **attributes)[0], y)


def test_no_truncated_number_is_beyond_two() -> None:
    (y,) = ran("TruncatedNormal", [[COUNT]], (COUNT, torch.float16))
    assert float(y.abs().max()) <= 2


def test_each_gamma_has_its_own_shape_and_scale() -> None:
    a, b = torch.tensor([[0.5], [9.0]]), torch.tensor([1.0, 0.1, 3.0])
    (y,) = ran("CustGamma", [torch.tensor([5000, 2, 3]), a, b, torch.tensor([1]), torch.tensor([1])], (5000, 2, 3))
    mean, deviation = a.double() * b.double(), a.double().sqrt() * b.double()
    assert ((y.mean(0) - mean).abs() < 5 * deviation / math.sqrt(5000)).all()


@pytest.mark.parametrize("rate", [0.0, 0.5, 3.0, 9.9, 12.0, 100.0, 5000.0])
def test_counts_of_rare_things(rate: float) -> None:
    (y,) = ran("CustRandomPoisson", [[COUNT], torch.tensor([rate])], (COUNT, 1), seed=2)
    assert torch.equal(y, y.round()) and float(y.min()) >= 0
    k = torch.arange(int(y.max()) + 1).double()
    below = torch.special.gammaincc(k + 1, torch.full_like(k, rate)) if rate else torch.ones_like(k)
    found = torch.bincount(y.long().flatten(), minlength=len(k)).double().cumsum(0) / COUNT
    assert float((found - below).abs().max()) < FARTHEST
    if rate:
        other = torch.special.gammaincc(k + 1, torch.full_like(k, rate * 1.05 + 0.05))
        assert float((found - other).abs().max()) > FARTHEST


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, I32, I64])
def test_a_row_of_counts_for_each_rate(dtype: torch.dtype) -> None:
    rates = torch.tensor([[1, 4, 20]]).to(dtype)
    (y,) = ran("CustRandomPoisson", [[400, 2], rates], (400, 2, 1, 3, dtype))
    mean = y.flatten(0, 1).mean((0, 1))
    assert ((mean - rates[0].double()).abs() < 5 * (rates[0].double() / 800).sqrt()).all()


def test_a_count_for_each_mean() -> None:
    means = torch.tensor([[2.0], [40.0]])
    (y,) = ran("CustPoisson", [torch.tensor([2, 3000]), means, torch.tensor([1]), torch.tensor([2])], (2, 3000, I32))
    assert ((y.mean(1) - means[:, 0]).abs() < 5 * (means[:, 0] / 3000).sqrt()).all()
    assert ((y.var(1) / means[:, 0] - 1).abs() < 5 * math.sqrt(2.5 / 3000)).all()


@pytest.mark.parametrize("dtype", [I32, I64])
def test_integers_from_one_end_to_before_the_other(dtype: torch.dtype) -> None:
    ends = [torch.tensor(n, dtype=dtype) for n in (-3, 5)]
    (y,) = ran("RandomUniformInt", [[COUNT], *ends], (COUNT, dtype), seed=1)
    counts = torch.bincount((y + 3).long(), minlength=8)
    expected = COUNT / 8
    assert len(counts) == 8 and ((counts - expected).abs() < 5 * math.sqrt(expected)).all()


@pytest.mark.parametrize("dtype", [I64, I32, torch.uint8, torch.float16, torch.bfloat16])
def test_permutations(dtype: torch.dtype) -> None:
    (y,) = ran("StatelessRandperm", [[100], [3], [1]], (100, dtype), layout=0)
    assert torch.equal(y.sort().values, torch.arange(100).double()) and not torch.equal(y, y.sort().values)
    assert torch.equal(y, ran("StatelessRandperm", [[100], [3], [1]], (100, dtype))[0])
    for seed, offset in ((4, 1), (3, 2)):
        assert not torch.equal(y, ran("StatelessRandperm", [[100], [seed], [offset]], (100, dtype))[0])
    one, other = (ran("StatelessRandperm", [[100], [-1], [0]], (100, dtype))[0] for _ in range(2))
    assert not torch.equal(one, other)


def test_a_permutation_with_room() -> None:
    (y,) = ran("CustRandperm", [[50]], (60, I32), max_length=60, pad=-1)
    assert torch.equal(y[:50].sort().values, torch.arange(50).double()) and (y[50:] == -1).all()


def test_every_place_of_a_permutation_is_as_likely() -> None:
    first = torch.tensor([int(ran("CustRandperm", [[4]], (4, I64), max_length=4, pad=0)[0][0]) for _ in range(800)])
    assert ((torch.bincount(first, minlength=4) - 200).abs() < 5 * math.sqrt(150)).all()


@pytest.mark.parametrize("dtype", [torch.float32, BOOL, torch.complex64])
def test_rows_are_shuffled(dtype: torch.dtype) -> None:
    x = (torch.arange(120).reshape(60, 2) % (2 if dtype == BOOL else 120)).to(dtype)
    if dtype == BOOL:
        x[:20] = True
    (y,) = ran("CustRandomShuffle", [x], (60, 2, dtype), seed=1, seed2=2)
    assert torch.equal(y.real.sort(0).values, x.to(torch.complex128).real.sort(0).values)
    assert not torch.equal(y.real, x.to(torch.complex128).real)


# Operator: inputs, outputs, attributes; words of the message.
REFUSED: dict[str, tuple[list[Any], list[Any], dict[str, Any], str]] = {
    "CustStandardLaplace": ([[3]], [(3, torch.float16)], {}, "no dtype"),
    "TruncatedNormal": ([[3]], [(4,)], {}, "expected 3 elements"),
    "CustCauchy": ([], [(3,)], {"size": [3], "sigma": 0.0}, "sigma is 0"),
    "CustLogNormalReverse": ([drawn(3)], [(4,)], {}, "expected shape"),
    "CustGamma": ([torch.tensor([3]), drawn(2), drawn(1)], [(3,)], {}, "does not become"),
    "CustRandomPoisson": ([[3], drawn(2)], [(3,)], {}, "expected 6 elements"),
    "CustPoisson": ([torch.tensor([3]), drawn(2).abs()], [(3, I32)], {}, "does not become"),
    "RandomUniformInt": ([[3], torch.tensor(0), torch.tensor(1)], [(3, I32)], {}, "an end is"),
    "StatelessRandperm": ([[3], [0], [0]], [(4, I64)], {}, "expected [3]"),
    "CustRandperm": ([[5]], [(4, I32)], {"max_length": 4}, "n is 5"),
    "CustRandomShuffle": ([drawn(3)], [(4,)], {}, "expected shape"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name: str) -> None:
    inputs, sizes, attributes, words = REFUSED[name]
    check_refused(name, inputs, sizes, attributes, words)
