"""Layers whose operators MindSpore calls by their type, with their gradients: values and gradients are those of float64."""

from __future__ import annotations

from typing import Any

import pytest
from running import cases

NEAR = 1e-6
# MindSpore's nn.LSTM computes in float16 on Ascend.
ROUNDED = {"lstm": 2e-3}
CASES = [
    *("space to batch", "batch to space", "space to batch by attributes", "space to depth", "depth to space"),
    *("bilinear", "bilinear, corners", "bilinear, centres", "nearest"),
    *("adaptive mean", "adaptive mean of a volume", "mean of a volume", "mean of a padded volume"),
    *(
        "mean without the padding",
        "maximum of a volume",
        "convolution of a volume",
        "neighbours",
        "unit length",
        "norm",
    ),
    *("softplus", "softsign", "celu", "mish", "fast gelu", "reflected", "edges", "constant", "mirrored"),
    *("scatter", "sorted", "largest of segments", "smallest of segments", "reversed"),
    *("ctc", "ctc, the last is blank", "lstm", "inverse", "determinant", "log of the determinant", "trace"),
]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return cases("gradients.py", tmp_path_factory.mktemp("gradients"))


@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_are_those_of_float64(said: dict[str, Any], case: str) -> None:
    assert "error" not in said[case], said[case]
    assert max(said[case]["said"]) < ROUNDED.get(case, NEAR), said[case]


def test_it_tells_one_way_of_resizing_from_another(said: dict[str, Any]) -> None:
    values, gradients = said["another way of laying the grids"]["said"]
    assert values > 0.01 and gradients > 0.01
