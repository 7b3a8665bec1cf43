"""Patches, resized and cropped images, regions and margins, whose operators MindSpore calls by their type: values and
gradients are those of float64."""

from __future__ import annotations

from typing import Any

import pytest
from running import cases

NEAR = 1e-6
CASES = [
    *("columns", "columns, padded", "an image of columns", "an image of columns that overlap"),
    *("patches in the channels", "cubic, corners", "cubic, centres", "cubic, first pixels"),
    *("a line, corners", "a line, centres", "crops", "crops of one pixel", "regions"),
    *("places of a map", "places of a map, corners", "places of a map in a volume"),
    *("margins", "margins, squared and weighted", "margins of several labels"),
    *("margins of several labels, each", "points of several maps"),
]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return cases("images.py", tmp_path_factory.mktemp("images"))


@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_are_those_of_float64(said: dict[str, Any], case: str) -> None:
    assert "error" not in said[case], said[case]
    assert max(said[case]["said"]) < NEAR, said[case]


def test_it_tells_one_box_from_another(said: dict[str, Any]) -> None:
    values, gradients = said["crops by another rule"]["said"]
    assert values > 0.01 and gradients > 0.01
