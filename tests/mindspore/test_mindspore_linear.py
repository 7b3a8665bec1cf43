"""Systems of equations, functions of matrices, spectra, distances and maxima back in their places, whose operators MindSpore
calls by their type: values and gradients are those of float64."""

from __future__ import annotations

from typing import Any

import pytest
from running import cases

NEAR = 2e-6
CASES = [
    *("systems", "lower triangles", "upper triangles, transposed", "a root's system", "a root's inverse"),
    "least squares",
    *("exponentials", "lower factors", "upper factors", "distances", "distances by another power"),
    *("half a spectrum", "maxima in their places", "maxima in a line", "maxima in a volume", "maxima of drawn windows"),
    *("products of segments", "filled rows"),
]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return cases("linear.py", tmp_path_factory.mktemp("linear"))


@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_are_those_of_float64(said: dict[str, Any], case: str) -> None:
    assert "error" not in said[case], said[case]
    assert max(said[case]["said"]) < NEAR, said[case]


def test_it_tells_a_matrix_from_its_elements(said: dict[str, Any]) -> None:
    values, gradients = said["exponentials of elements"]["said"]
    assert values > 0.01 and gradients > 0.01
