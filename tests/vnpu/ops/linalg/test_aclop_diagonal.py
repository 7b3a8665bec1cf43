"""linalg/aclop_diagonal.cpp: single diagonals in float64, and refused calls."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from aclop import check_refused, drawn, near, ran


def test_diagonals() -> None:
    x = drawn(3, 4, 5)
    (found,) = ran("CustDiagonal", [x], (4, 3), offset=-1, dim1=2, dim2=0)
    near(found, x.diagonal(-1, 2, 0))
    square = drawn(2, 3, 2, 3)
    near(ran("DiagPart", [square], (2, 3))[0], torch.einsum("ijij->ij", square))
    rows = drawn(2, 3)
    near(ran("MatrixDiagD", [rows, torch.eye(3).expand(2, 3, 3).contiguous()], (2, 3, 3))[0], rows.diag_embed())


# Operator: inputs, the output's sizes, attributes; words of the message.
REFUSED: dict[str, tuple[list[Any], tuple[Any, ...], dict[str, Any], str]] = {
    "CustDiagonal": ([drawn(3, 4)], (3,), {"dim1": 1, "dim2": -1}, "dim1 and dim2"),
    "DiagPart": ([drawn(3, 4)], (3,), {}, "the same sizes twice"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    inputs, size, attributes, words = REFUSED[name]
    check_refused(name, inputs, [size], attributes, words)
