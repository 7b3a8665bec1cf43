"""linalg/aclop_decompose.cpp, by what each result has to fulfil, in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from aclop import INVALID_ARGUMENT, called, check_refused, drawn, launch, ran
from solutions import near

I32, C64 = torch.int32, torch.complex64
MATRICES = drawn(2, 4, 4)
DEFINITE = MATRICES @ MATRICES.mT + 4 * torch.eye(4)
RIGHT = drawn(2, 4, 3)


@pytest.mark.parametrize("dtype", [torch.float32, C64])
def test_values_and_vectors(dtype: torch.dtype) -> None:
    x = MATRICES.to(dtype) + (1j * drawn(2, 4, 4) if dtype == C64 else 0)
    values, vectors = called("CustEig", [x], (2, 4, C64), (2, 4, 4, C64), compute_v=True)
    torch.testing.assert_close(x.to(C64) @ vectors, vectors * values[:, None, :], rtol=1e-5, atol=1e-5)
    assert torch.linalg.vector_norm(vectors, dim=1).sub(1).abs().max() < 1e-6
    (alone, _) = called("CustEig", [x], (2, 4, C64), (C64,), compute_v=False)
    assert torch.equal(alone, values)


def test_the_exponential_is_its_series() -> None:
    wide, term = MATRICES.double(), torch.eye(4).double().expand(2, 4, 4)
    total = term
    for n in range(1, 60):
        term = term @ wide / n
        total = total + term
    (y,) = ran("CustMatrixExp", [MATRICES], MATRICES.shape)
    near(y / total.abs().max(), total / total.abs().max(), 2e-6)


@pytest.mark.parametrize("upper", [False, True])
def test_after_cholesky(upper: bool) -> None:
    factor = torch.linalg.cholesky(DEFINITE.double(), upper=upper).float().contiguous()
    again = (factor.double().mT @ factor.double()) if upper else (factor.double() @ factor.double().mT)
    (y,) = ran("CustCholeskyInverse", [factor], factor.shape, upper=upper)
    near(again @ y, torch.eye(4).double().expand(2, 4, 4), 1e-5)
    (y,) = ran("CustCholeskySolve", [RIGHT, factor], RIGHT.shape, upper=upper)
    near(again @ y, RIGHT.double(), 1e-5)


def test_after_lu() -> None:
    x = MATRICES[:, [2, 0, 3, 1]].contiguous()
    lu, pivots = (each.contiguous() for each in torch.linalg.lu_factor(x))
    (y,) = ran("CustLuSolve", [RIGHT, lu, pivots], RIGHT.shape)
    near(x.double() @ y, RIGHT.double(), 1e-4)
    p, lower, upper = ran("CustLuUnpack", [lu, pivots], *[(2, 4, 4)] * 3, unpack_data=True, unpack_pivots=True)
    near(p @ lower @ upper, x.double(), 1e-5)
    assert torch.equal(p.sum(1), torch.ones(2, 4)) and torch.equal(lower.triu(1), torch.zeros(2, 4, 4).double())
    assert not torch.equal(p[0], torch.eye(4).double())


@pytest.mark.parametrize("size", [(5, 3), (3, 5)])
def test_lu_of_a_rectangle(size: tuple[int, int]) -> None:
    x, least = drawn(*size), min(size)
    lu, pivots = (each.contiguous() for each in torch.linalg.lu_factor(x))
    p, lower, upper = ran("CustLuUnpack", [lu, pivots], (size[0],) * 2, (size[0], least), (least, size[1]))
    near(p @ lower @ upper, x.double(), 1e-5)


def test_reflections_and_what_they_make() -> None:
    x = drawn(2, 5, 3)
    reflected, factors = ran("CustGeqrf", [x], x.shape, (2, 3))
    (q,) = ran("CustOrgqr", [reflected.float(), factors.float()], x.shape)
    near(q.mT @ q, torch.eye(3).double().expand(2, 3, 3), 2e-6)
    near(q @ reflected[:, :3].triu(), x.double(), 5e-6)


SQUARE = drawn(2, 4, 4) + 3 * torch.eye(4)
SIDE = drawn(2, 4, 3)


def test_what_a_decomposition_has_left() -> None:
    factors, pivots = torch.linalg.lu_factor(SQUARE.flip(-2))
    (x,) = called("CustLuSolve", [SIDE, factors, pivots], (2, 4, 3))
    near(SQUARE.flip(-2) @ x, SIDE, 2e-5)
    whole = SQUARE @ SQUARE.mT
    for upper in (False, True):
        root = torch.linalg.cholesky(whole, upper=upper)
        near(whole @ called("CustCholeskySolve", [SIDE, root], (2, 4, 3), upper=upper)[0], SIDE, 1e-4)
        near(whole[0] @ called("CustCholeskyInverse", [root[0]], (4, 4), upper=upper)[0], torch.eye(4), 1e-4)


@pytest.mark.parametrize("upper", [False, True])
def test_the_whole_of_a_root_counts(upper: bool) -> None:
    x = SQUARE[0]
    (found,) = called("CustCholeskyInverse", [x], (4, 4), upper=upper)
    near((x.mT @ x if upper else x @ x.mT) @ found, torch.eye(4), 2e-5)


def test_eigenvalues_and_their_vectors() -> None:
    x = drawn(2, 4, 4)
    values, vectors = called("CustEig", [x], (2, 4, C64), (2, 4, 4, C64), compute_v=True)
    near(x.to(C64) @ vectors, vectors * values.unsqueeze(-2), 2e-5)
    near(vectors.norm(dim=-2), torch.ones(2, 4))
    near(values.sum(-1), x.diagonal(0, -2, -1).sum(-1).to(C64), 2e-5)
    near(called("CustEig", [x], (2, 4, C64), (2, 4, 4, C64), compute_v=False)[0], values, 2e-5)


@pytest.mark.parametrize("rows", [5, 3])
def test_reflectors(rows: int) -> None:
    x = drawn(rows, 4)
    side = min(rows, 4)
    packed, tau = called("CustGeqrf", [x], (rows, 4), (side,))
    if rows > 4:
        (q,) = called("CustOrgqr", [packed, tau], (rows, 4))
        near(q @ packed.triu()[:4], x, 2e-5)
        near(q.mT @ q, torch.eye(4), 2e-5)
    else:
        near(packed.triu().abs(), torch.linalg.qr(x.double())[1].abs(), 2e-5)


@pytest.mark.parametrize(("rows", "columns"), [(4, 4), (3, 5), (5, 3)])
def test_unpacked_factors_and_their_gradients(rows: int, columns: int) -> None:
    x = drawn(2, rows, columns)
    packed, pivots = torch.linalg.lu_factor(x)
    side = min(rows, columns)
    p, low, up = called("CustLuUnpack", [packed, pivots], (2, rows, rows), (2, rows, side), (2, side, columns))
    near(p @ low @ up, x, 2e-5)
    assert torch.equal(low.triu(), torch.eye(rows, side).expand(2, -1, -1)) and torch.equal(
        up.tril(-1), torch.zeros(2, side, columns)
    )
    wide = packed.double().requires_grad_()
    slopes = drawn(2, rows, side), drawn(2, side, columns)
    _, l2, u2 = torch.lu_unpack(wide, pivots)
    torch.autograd.backward([l2, u2], [each.double() for each in slopes])
    assert wide.grad is not None
    of_low, of_up = called(
        "CustLuUnpackGrad", [*slopes, packed], *[(2, rows, columns)] * 2, L_grad_flag=True, U_grad_flag=True
    )
    near(of_low + of_up, wide.grad)


def test_unpacked_whole_numbers() -> None:
    packed, pivots = (torch.tensor([[3, 1], [2, 5]], dtype=torch.int64), torch.tensor([2, 2], dtype=torch.int32))
    I64 = torch.int64  # noqa: N806
    found = called("CustLuUnpack", [packed, pivots], *[(2, 2, I64)] * 3)
    assert [each.tolist() for each in found] == [[[0, 1], [1, 0]], [[1, 0], [2, 1]], [[3, 1], [0, 5]]]


def test_exponentials_of_matrices() -> None:
    x = drawn(2, 3, 3)
    power, expected = torch.eye(3).double().expand(2, 3, 3), torch.zeros(2, 3, 3).double()
    for i in range(1, 60):
        expected, power = expected + power, power @ x.double() / i
    near(called("CustMatrixExp", [x], (2, 3, 3))[0], expected)


# Operator: inputs, outputs, attributes; words of the message.
UNFIT: dict[str, tuple[list[Any], list[Any], dict[str, Any], str]] = {
    "CustEig": ([drawn(3, 4)], [(3, C64), (3, 3, C64)], {}, "expected square"),
    "CustEig 2": ([drawn(3, 3)], [(3,), (3, 3, C64)], {}, "eigen_values is"),
    "CustMatrixExp": ([drawn(3, 4)], [(3, 4)], {}, "expected square"),
    "CustCholeskyInverse": ([drawn(3, 3)], [(3, 4)], {}, "the output is"),
    "CustCholeskySolve": ([drawn(4, 2), drawn(3, 3)], [(4, 2)], {}, "the right hand side is"),
    "CustLuSolve": ([drawn(3, 2), drawn(3, 3), torch.ones(2, dtype=I32)], [(3, 2)], {}, "lu_pivots is"),
    "CustLuUnpack": ([drawn(3, 3), torch.ones(3, dtype=I32)], [(3, 3), (3, 3), (3, 2)], {}, "an output is"),
    "CustGeqrf": ([drawn(3, 2)], [(3, 2), (3,)], {}, "tau is"),
    "CustOrgqr": ([drawn(2, 3), drawn(2)], [(2, 3)], {}, "no more columns"),
}


@pytest.mark.parametrize("name", UNFIT)
def test_what_does_not_fit_is_refused(name: str) -> None:
    inputs, outputs, attributes, words = UNFIT[name]
    name = name.split()[0]
    made = [
        torch.zeros(
            [n for n in size if isinstance(n, int)],
            dtype=next((d for d in size if isinstance(d, torch.dtype)), torch.float32),
        ).npu()
        for size in outputs
    ]
    status, message = launch(name, [each.npu() for each in inputs], made, **attributes)
    assert status == INVALID_ARGUMENT and words in message and name in message, (status, message)


# Operator: inputs, outputs, attributes and words of its refusal.
REFUSED: dict[str, tuple[list[Any], list[tuple[Any, ...]], dict[str, Any], str]] = {
    "CustLuUnpackGrad": ([drawn(3, 2), drawn(3, 3), drawn(3, 3)], [(3, 3)] * 2, {}, "the lower triangle is")
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    inputs, sizes, attributes, words = REFUSED[name]
    check_refused(name, inputs, sizes, attributes, words)
