"""linalg/aclop_solve.cpp: systems of equations, by what they are defined by, in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from aclop import called, check_refused, drawn
from solutions import near

C64 = torch.complex64
SQUARE = drawn(2, 4, 4) + 3 * torch.eye(4)
SIDE = drawn(2, 4, 3)


@pytest.mark.parametrize("adjoint", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_systems(dtype: torch.dtype, adjoint: bool) -> None:
    matrix, side = (torch.complex(each, each.flip(-1)) if dtype.is_complex else each for each in (SQUARE, SIDE))
    a = matrix.mH if adjoint else matrix
    (x,) = called("MatrixSolve", [matrix, side], (2, 4, 3, dtype), adjoint=adjoint)
    near(a @ x, side, 2e-5)
    for lower in (False, True):
        part = matrix.tril() if lower else matrix.triu()
        (x,) = called("MatrixTriangularSolve", [matrix, side], (2, 4, 3, dtype), adjoint=adjoint, lower=lower)
        near((part.mH if adjoint else part) @ x, side, 2e-5)


def test_one_matrix_for_a_batch_of_right_sides() -> None:
    (x,) = called("MatrixSolve", [SQUARE[0], SIDE], (2, 4, 3))
    near(SQUARE[0] @ x, SIDE, 2e-5)


@pytest.mark.parametrize("ones", [False, True])
@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("turned", [0, 1, 2])
def test_triangles_and_their_gradients(turned: int, lower: bool, ones: bool) -> None:
    a = torch.complex(SQUARE, SQUARE.flip(-1) / 4)
    b, slope = torch.complex(SIDE, SIDE.flip(1)), torch.complex(drawn(2, 4, 3), drawn(2, 4, 3))
    wide, side = a.to(torch.complex128).requires_grad_(), b.to(torch.complex128).requires_grad_()
    part = wide.tril() if lower else wide.triu()
    if ones:
        part = part - torch.diag_embed(part.diagonal(0, -2, -1)) + torch.eye(4)
    expected = torch.linalg.solve(part if turned == 0 else part.mT if turned == 1 else part.mH, side)
    how = [[turned], [int(lower)], [int(ones)]]
    (x,) = called("CustSolveTriangular", [a, b, *how], (2, 4, 3, C64))
    near(x, expected.detach(), 2e-5)
    expected.backward(slope.to(torch.complex128))
    da, db = called("CustSolveTriangularGrad", [a, x, slope, *how], (2, 4, 4, C64), (2, 4, 3, C64))
    assert wide.grad is not None and side.grad is not None
    near(da, wide.grad, 2e-5)
    near(db, side.grad, 2e-5)


def test_a_triangle_of_whole_numbers_and_a_vector() -> None:
    a, b = torch.tensor([[2, 9], [1, 4]], dtype=torch.int32), torch.tensor([2, 9], dtype=torch.int32)
    assert called("CustSolveTriangular", [a, b, [0], [1], [0]], (2,))[0].tolist() == [1, 2]


# Operator: inputs, outputs, attributes and words of its refusal.
REFUSED: dict[str, tuple[list[Any], list[tuple[Any, ...]], dict[str, Any], str]] = {
    "MatrixSolve": ([drawn(3, 4), drawn(3, 2)], [(3, 2)], {}, "square matrices"),
    "MatrixTriangularSolve": ([drawn(3, 3), drawn(2, 2)], [(2, 2)], {}, "the right side"),
    "CustSolveTriangular": ([drawn(3, 3), drawn(3, 2), [3], [1], [0]], [(3, 2)], {}, "trans is 3"),
    "CustSolveTriangularGrad": (
        [drawn(3, 3), drawn(3, 2), drawn(3, 1), [0], [1], [0]],
        [(3, 3), (3, 2)],
        {},
        "the gradient is",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    inputs, sizes, attributes, words = REFUSED[name]
    check_refused(name, inputs, sizes, attributes, words)
