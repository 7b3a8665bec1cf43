"""random/aclop_categories.cpp: draws of categories come as often as their weights say."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from aclop import check_refused, drawn, near, ran

I32, I64 = torch.int32, torch.int64
COUNT = 20000


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


@pytest.mark.parametrize("name", ["UniformCandidateSampler", "CustLogUniformCandidateSampler"])
@pytest.mark.parametrize("unique", [True, False])
def test_candidates(name: str, unique: bool) -> None:
    classes, count = 12, 8 if unique else COUNT
    k = torch.arange(classes).double()
    p = (
        ((k + 2) / (k + 1)).log() / math.log(classes + 1)
        if "Log" in name
        else torch.full((classes,), 1 / classes).double()
    )
    labels = torch.tensor([[0, 3], [11, 5]])
    how: dict[str, Any] = {"num_true": 2, "num_sampled": count, "unique": unique, "range_max": classes, "seed": 3}
    chosen, of_labels, of_chosen = ran(name, [labels], (count, I64), (2, 2), (count,), **how)
    if unique:
        assert len(set(chosen.tolist())) == count
        # 1 - (1 - p)^tries: tries is one number for all, at least as many as were chosen.
        tries = torch.log1p(-of_labels) / torch.log1p(-p[labels])
        assert float(tries.max() - tries.min()) < 1e-3 * float(tries.max()) and float(tries.min()) > count - 0.01
        near(of_chosen, 1 - (1 - p[chosen.long()]) ** tries.mean(), 1e-5)
    else:
        assert ((frequencies(chosen, classes) - p).abs() <= 5 * (p * (1 - p) / count).sqrt()).all()
        near(of_labels, p[labels] * count, 1e-6)
        near(of_chosen, p[chosen.long()] * count, 1e-6)


WEIGHTS = drawn(2, 4).abs()
SAMPLER: dict[str, Any] = {"num_true": 1, "num_sampled": 3, "unique": True, "range_max": 8}


# Operator: inputs, outputs, attributes; words of the message.
REFUSED: dict[str, tuple[list[Any], list[Any], dict[str, Any], str]] = {
    "CustMultinomial": ([WEIGHTS, [3]], [(2, 4, I32)], {}, "expected 6 elements"),
    "CustRandomCategorical": ([WEIGHTS[0], [3], [0]], [(3, I32)], {}, "expected rows"),
    "UniformCandidateSampler": (
        [torch.tensor([[1]])],
        [(3, I64), (1,), (3,)],
        {**SAMPLER, "range_max": 2},
        "all to be different",
    ),
    "CustLogUniformCandidateSampler": ([torch.tensor([[1, 2]])], [(3, I64), (2,), (3,)], SAMPLER, "true_classes is"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name: str) -> None:
    inputs, sizes, attributes, words = REFUSED[name]
    check_refused(name, inputs, sizes, attributes, words)
