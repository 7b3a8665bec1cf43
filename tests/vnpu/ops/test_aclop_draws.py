"""Draws of the old API from more distributions: what is drawn has the distribution that the call asks for. That a run repeats
is in tests/mindspore/test_mindspore_draws.py, as calls are numbered in a process."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from aclop import check_refused, drawn, near, ran

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
    return [
        torch.tensor([COUNT]),
        torch.tensor([shape]),
        torch.tensor([scale]),
        torch.tensor([0]),
        torch.tensor([0]),
    ]


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
        [], {"size": [COUNT], "median": 2.0, "sigma": 0.5}, lambda x: ((x - 2) / 0.5).atan() / math.pi + 0.5,
    ),
    "CustLogNormalReverse": (
        [torch.zeros(COUNT)], {"mean": 0.5, "std": 1.5}, lambda x: normal_below((x.log() - 0.5) / 1.5),
    ),
}  # fmt: skip


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
    (y,) = ran(
        "CustGamma", [torch.tensor([5000, 2, 3]), a, b, torch.tensor([1]), torch.tensor([1])], (5000, 2, 3)
    )
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
    (y,) = ran(
        "CustPoisson", [torch.tensor([2, 3000]), means, torch.tensor([1]), torch.tensor([2])], (2, 3000, I32)
    )
    assert ((y.mean(1) - means[:, 0]).abs() < 5 * (means[:, 0] / 3000).sqrt()).all()
    assert ((y.var(1) / means[:, 0] - 1).abs() < 5 * math.sqrt(2.5 / 3000)).all()


@pytest.mark.parametrize("dtype", [I32, I64])
def test_integers_from_one_end_to_before_the_other(dtype: torch.dtype) -> None:
    ends = [torch.tensor(n, dtype=dtype) for n in (-3, 5)]
    (y,) = ran("RandomUniformInt", [[COUNT], *ends], (COUNT, dtype), seed=1)
    counts = torch.bincount((y + 3).long(), minlength=8)
    expected = COUNT / 8
    assert len(counts) == 8 and ((counts - expected).abs() < 5 * math.sqrt(expected)).all()


def frequencies(y: torch.Tensor, classes: int) -> torch.Tensor:
    return torch.bincount(y.long().flatten(), minlength=classes).double() / y.numel()


@pytest.mark.parametrize("dtype", [I32, I64])
def test_categories_by_their_weights(dtype: torch.dtype) -> None:
    weights = torch.tensor([[1, 0, 3, 4.0], [torch.inf, 2, torch.nan, 2]])
    (y,) = ran("CustMultinomial", [weights, [COUNT]], (2, COUNT, dtype), seed=4)
    for row, expected in zip(y, ([1 / 8, 0, 3 / 8, 1 / 2], [0, 1 / 2, 0, 1 / 2]), strict=True):
        p = torch.tensor(expected).double()
        assert ((frequencies(row, 4) - p).abs() <= 5 * (p * (1 - p) / COUNT).sqrt()).all()
    (one,) = ran("CustMultinomial", [weights[0], [6]], (6, dtype))
    assert ((one >= 0) & (one < 4)).all()


@pytest.mark.parametrize("dtype", [torch.int16, I32, I64])
def test_categories_by_their_logits(dtype: torch.dtype) -> None:
    logits = torch.tensor([[1000.0, 1001, -torch.inf], [-3, -3, torch.nan]])
    (y,) = ran("CustRandomCategorical", [logits, [COUNT], [7]], (2, COUNT, dtype))
    for row, finite in zip(y, (logits[0, :2], logits[1, :2]), strict=True):
        p = torch.cat([finite.double().softmax(0), torch.zeros(1)])
        assert ((frequencies(row, 3) - p).abs() <= 5 * (p * (1 - p) / COUNT).sqrt()).all()


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
    first = torch.tensor(
        [int(ran("CustRandperm", [[4]], (4, I64), max_length=4, pad=0)[0][0]) for _ in range(800)]
    )
    assert ((torch.bincount(first, minlength=4) - 200).abs() < 5 * math.sqrt(150)).all()


@pytest.mark.parametrize("dtype", [torch.float32, BOOL, torch.complex64])
def test_rows_are_shuffled(dtype: torch.dtype) -> None:
    x = (torch.arange(120).reshape(60, 2) % (2 if dtype == BOOL else 120)).to(dtype)
    if dtype == BOOL:
        x[:20] = True
    (y,) = ran("CustRandomShuffle", [x], (60, 2, dtype), seed=1, seed2=2)
    assert torch.equal(y.real.sort(0).values, x.to(torch.complex128).real.sort(0).values)
    assert not torch.equal(y.real, x.to(torch.complex128).real)


def test_some_of_the_places_where_a_mask_is_true() -> None:
    x = torch.rand(30, 7, generator=torch.Generator().manual_seed(1)) < 0.5
    places, kept = ran("CustRandomChoiceWithMask", [x], (20, 2, I32), (20, BOOL), count=20, seed=1, seed2=1)
    assert kept.all() and len({tuple(row) for row in places.tolist()}) == 20
    assert all(x[int(i), int(j)] for i, j in places)


@pytest.mark.parametrize("name", ["UniformCandidateSampler", "CustLogUniformCandidateSampler"])
@pytest.mark.parametrize("unique", [True, False])
def test_candidates(name: str, unique: bool) -> None:
    classes, count = 12, 8 if unique else COUNT
    k = torch.arange(classes).double()
    p = ((k + 2) / (k + 1)).log() / math.log(classes + 1) if "Log" in name else torch.full((classes,), 1 / classes).double()  # fmt: skip
    labels = torch.tensor([[0, 3], [11, 5]])
    how: dict[str, Any] = {
        "num_true": 2,
        "num_sampled": count,
        "unique": unique,
        "range_max": classes,
        "seed": 3,
    }
    chosen, of_labels, of_chosen = ran(name, [labels], (count, I64), (2, 2), (count,), **how)
    if unique:
        assert len(set(chosen.tolist())) == count
        # 1 - (1 - p)^tries: tries is one number for all, at least as many as were chosen.
        tries = torch.log1p(-of_labels) / torch.log1p(-p[labels])
        assert (
            float(tries.max() - tries.min()) < 1e-3 * float(tries.max()) and float(tries.min()) > count - 0.01
        )
        near(of_chosen, 1 - (1 - p[chosen.long()]) ** tries.mean(), 1e-5)
    else:
        assert ((frequencies(chosen, classes) - p).abs() <= 5 * (p * (1 - p) / count).sqrt()).all()
        near(of_labels, p[labels] * count, 1e-6)
        near(of_chosen, p[chosen.long()] * count, 1e-6)


SAMPLER: dict[str, Any] = {"num_true": 1, "num_sampled": 3, "unique": True, "range_max": 8}
WEIGHTS = drawn(2, 4).abs()
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
    "CustMultinomial": ([WEIGHTS, [3]], [(2, 4, I32)], {}, "expected 6 elements"),
    "CustRandomCategorical": ([WEIGHTS[0], [3], [0]], [(3, I32)], {}, "expected rows"),
    "UniformCandidateSampler": ([torch.tensor([[1]])], [(3, I64), (1,), (3,)], {**SAMPLER, "range_max": 2}, "all to be different"),
    "CustLogUniformCandidateSampler": ([torch.tensor([[1, 2]])], [(3, I64), (2,), (3,)], SAMPLER, "true_classes is"),
    "CustRandomChoiceWithMask": ([drawn(3)], [(2, 1, I32), (2, BOOL)], {"count": 2}, "x is"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name: str) -> None:
    inputs, sizes, attributes, words = REFUSED[name]
    check_refused(name, inputs, sizes, attributes, words)
