"""reduce/aclop_reduce.cpp: products over dimensions."""

from __future__ import annotations

import pytest
from aclop import drawn, near, ran


@pytest.mark.parametrize("axes", [[1], [0, -1], []])
def test_products_over_dimensions(axes: list[int]) -> None:
    x = drawn(2, 3, 4)
    kept = [i for i in range(3) if axes and i not in axes and i - 3 not in axes]
    expected = x.double().permute(*kept, *(i for i in range(3) if i not in kept)).flatten(len(kept)).prod(-1)
    near(ran("ReduceProd", [x, axes], expected.shape)[0], expected)
