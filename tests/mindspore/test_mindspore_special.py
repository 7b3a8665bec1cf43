"""Gamma functions, Bessel's, limited norms, distances, the exponential of a matrix and more, whose operators MindSpore calls by their type: values and gradients are
those of float64."""

from __future__ import annotations

from typing import Any

import pytest
from running import cases

NEAR = 2e-6
CASES = [
    *("log of gamma", "digamma", "trigamma", "lower gamma", "upper gamma", "gamma of matrices"),
    *("bessel i0e", "bessel i1e", "limited norms", "limited norms of columns"),
    *("distances", "distances of order 3", "filled", "products of segments", "exponential of a matrix"),
    *("products and a sum", "a quotient and a sum"),
]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return cases("special.py", tmp_path_factory.mktemp("special"))


@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_are_those_of_float64(said: dict[str, Any], case: str) -> None:
    assert "error" not in said[case], said[case]
    assert max(said[case]["said"]) < NEAR, said[case]


def test_it_tells_one_order_from_another(said: dict[str, Any]) -> None:
    values, gradients = said["another order"]["said"]
    assert values > 0.01 and gradients > 0.01
