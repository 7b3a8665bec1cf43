"""reduce/aclop_cumulated.cpp: running sums, products and minima, in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from aclop import check_refused, drawn, near, ran

I32, I64 = torch.int32, torch.int64


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("exclusive", [False, True])
def test_running_exponentials(reverse: bool, exclusive: bool) -> None:
    x = drawn(3, 5)
    (found,) = ran("CumulativeLogsumexp", [x, [1]], x.shape, reverse=reverse, exclusive=exclusive)
    wide = x.double().flip(1) if reverse else x.double()
    columns = [wide[:, : i + (0 if exclusive else 1)].exp().sum(1).log() for i in range(5)]
    expected = torch.stack(columns, 1).clamp(min=float(torch.finfo(torch.float32).min))
    near(found, expected.flip(1) if reverse else expected)


def test_running_minima_and_the_least() -> None:
    x = torch.tensor([[3.0, 1.0, 1.0, 4.0], [2.0, 5.0, -1.0, 0.0]])
    least, where = ran("Cummin", [x], x.shape, (2, 4, I32), axis=-1)
    assert least.tolist() == [[3, 1, 1, 1], [2, 2, -1, -1]]
    assert x.gather(1, where.long()).tolist() == least.tolist()
    assert ran("ArgMin", [x, [1]], (2, I64))[0].tolist() == [1, 2]


X = drawn(2, 6, 4)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("exclusive", [False, True])
def test_products(reverse: bool, exclusive: bool) -> None:
    (found,) = ran("Cumprod", [X, [1]], X.shape, reverse=reverse, exclusive=exclusive)
    wide = X.double().flip(1) if reverse else X.double()
    rows = [wide[:, : i + (0 if exclusive else 1)].prod(1) for i in range(6)]
    expected = torch.stack(rows, 1)
    near(found, expected.flip(1) if reverse else expected)


# Operator: inputs, the output's sizes, attributes; words of the message.
REFUSED_CALLS: dict[str, tuple[list[Any], tuple[Any, ...], dict[str, Any], str]] = {
    "CumulativeLogsumexp": ([drawn(3), [1]], (3,), {}, "axis is 1")
}


@pytest.mark.parametrize("name", REFUSED_CALLS)
def test_refused(name: str) -> None:
    inputs, size, attributes, words = REFUSED_CALLS[name]
    check_refused(name, inputs, [size], attributes, words)


UNFIT: dict[str, tuple[list[Any], tuple[Any, ...], dict[str, Any], str]] = {
    "Cumsum": ([drawn(3), [1]], ((3,),), {}, "axis is 1")
}


@pytest.mark.parametrize("name", UNFIT)
def test_what_does_not_fit_is_refused(name: str) -> None:
    inputs, sizes, attributes, words = UNFIT[name]
    check_refused(name, inputs, sizes, attributes, words)


# Operator: inputs, outputs, attributes and words of its refusal.
REFUSED: dict[str, tuple[list[Any], list[tuple[int, ...]], dict[str, Any], str]] = {
    "Cumprod": ([X, [3]], [(2, 6, 4)], {}, "axis is 3")
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    inputs, sizes, attributes, words = REFUSED[name]
    check_refused(name, inputs, sizes, attributes, words)
