"""linalg/aclop_diagonal.cpp: the operators of bands of diagonals, element by element, and refused calls."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from aclop import check_refused, drawn, near, ran


def packed(matrix: torch.Tensor, low: int, high: int, align: str, fill: float) -> torch.Tensor:
    """TensorFlow's matrix_diag_part, element by element."""
    above, below = align.split("_")
    rows, columns = matrix.shape[-2:]
    most = min(rows + min(high, 0), columns - max(low, 0))
    out = torch.full((*matrix.shape[:-2], high - low + 1, most), fill, dtype=torch.float64)
    for k in range(low, high + 1):
        length = min(rows + min(k, 0), columns - max(k, 0))
        side = above if k > 0 else below
        for i in range(length):
            to = i if side == "LEFT" else most - length + i
            out[..., high - k, to] = matrix[..., i - min(k, 0), i + max(k, 0)].double()
    return out


@pytest.mark.parametrize("align", ["LEFT_RIGHT", "RIGHT_LEFT", "LEFT_LEFT", "RIGHT_RIGHT"])
@pytest.mark.parametrize("ends", [(0, 0), (-1, 2), (1, 2), (-2, -1)])
@pytest.mark.parametrize("shape", [(2, 3, 4), (4, 3)])
def test_bands(align: str, ends: tuple[int, int], shape: tuple[int, ...]) -> None:
    matrix, k = drawn(*shape), list(ends)
    band = packed(matrix, *ends, align, 9.0)
    (found,) = ran("MatrixDiagPartV3", [matrix, k, torch.tensor(9.0)], band.shape, align=align)
    near(found, band)
    inside = torch.ones(shape, dtype=torch.bool).triu(ends[0]).tril(ends[1])
    rows = [[shape[-2]], [shape[-1]], torch.tensor(5.0)]
    (made,) = ran("MatrixDiagV3", [band.float(), k, *rows], shape, align=align)
    near(made, torch.where(inside, matrix, 5.0))
    (changed,) = ran("MatrixSetDiagV3", [matrix, -band.float(), k], shape, align=align)
    near(changed, torch.where(inside, -matrix, matrix))


@pytest.mark.parametrize("k", [-1, 0, 2])
def test_diagonals(k: int) -> None:
    matrix = drawn(2, 3, 4)
    values = matrix.diagonal(k, -2, -1).contiguous() + 1
    expected = matrix.clone()
    expected.diagonal(k, -2, -1).copy_(values)
    near(ran("MatrixSetDiagV3", [matrix, values, [k]], (2, 3, 4), align="RIGHT_LEFT")[0], expected)
    (made,) = ran("MatrixDiagV3", [values, [k], [3], [4], torch.tensor([9.0])], (2, 3, 4), align="RIGHT_LEFT")
    near(made, torch.full((2, 3, 4), 9.0).diagonal_scatter(values, k, -2, -1))


# Operator: inputs, the output's sizes, attributes; words of the message.
REFUSED_CALLS: dict[str, tuple[list[Any], tuple[Any, ...], dict[str, Any], str]] = {
    "MatrixDiagPartV3": ([drawn(3, 4), [1, 0], drawn(1)], (2, 3), {}, "k is 1, 0"),
    "MatrixDiagV3": ([drawn(3), [0], [3], [3], drawn(1)], (3, 3), {"align": "LEFT"}, "attribute align"),
}


@pytest.mark.parametrize("name", REFUSED_CALLS)
def test_refused(name: str) -> None:
    inputs, size, attributes, words = REFUSED_CALLS[name]
    check_refused(name, inputs, [size], attributes, words)


# Operator: inputs, outputs, attributes and words of its refusal.
REFUSED: dict[str, tuple[list[Any], list[tuple[int, ...]], dict[str, Any], str]] = {
    "MatrixDiagV3": ([drawn(3), [3], [3], [3], drawn(1)], [(3, 3)], {}, "k is 3"),
    "MatrixSetDiagV3": ([drawn(3, 3), drawn(2), [0]], [(3, 3)], {}, "the diagonal is"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    inputs, sizes, attributes, words = REFUSED[name]
    check_refused(name, inputs, sizes, attributes, words)
