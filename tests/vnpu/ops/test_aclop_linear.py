"""Systems of equations, decompositions, transforms and distances that MindSpore asks for by their type, against what they
are defined by, in float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aclop
import forked
import pytest
import torch
from aclop import called, check_refused, drawn

SQUARE = drawn(2, 4, 4) + 3 * torch.eye(4)
SIDE = drawn(2, 4, 3)
C64 = torch.complex64


def near(found: torch.Tensor, expected: torch.Tensor, tolerance: float = 5e-6) -> None:
    aclop.near(found, expected, tolerance)


@pytest.mark.parametrize("adjoint", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_systems(dtype: torch.dtype, adjoint: bool) -> None:
    matrix, side = (
        torch.complex(each, each.flip(-1)) if dtype.is_complex else each for each in (SQUARE, SIDE)
    )
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
    p, low, up = called(
        "CustLuUnpack", [packed, pivots], (2, rows, rows), (2, rows, side), (2, side, columns)
    )
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
    packed, pivots = (
        torch.tensor([[3, 1], [2, 5]], dtype=torch.int64),
        torch.tensor([2, 2], dtype=torch.int32),
    )
    I64 = torch.int64  # noqa: N806
    found = called("CustLuUnpack", [packed, pivots], *[(2, 2, I64)] * 3)
    assert [each.tolist() for each in found] == [[[0, 1], [1, 0]], [[1, 0], [2, 1]], [[3, 1], [0, 5]]]


def test_exponentials_of_matrices() -> None:
    x = drawn(2, 3, 3)
    power, expected = torch.eye(3).double().expand(2, 3, 3), torch.zeros(2, 3, 3).double()
    for i in range(1, 60):
        expected, power = expected + power, power @ x.double() / i
    near(called("CustMatrixExp", [x], (2, 3, 3))[0], expected)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_logarithms_of_matrices(dtype: torch.dtype) -> None:
    x = torch.complex(drawn(3, 4, 4), drawn(3, 4, 4)).to(dtype)
    x[2] = torch.eye(4) + torch.ones(4, 4).triu(1)  # has one eigenvector alone
    x[1] = x[1] @ torch.diag(torch.tensor([-2.0, -0.5, 3, 1])).to(dtype) @ torch.linalg.inv(x[1])
    (y,) = called("CustMatrixLogarithm", [x], (3, 4, 4, dtype))
    near(torch.linalg.matrix_exp(y.to(torch.complex128)), x, 1e-5 if dtype == torch.complex64 else 1e-11)
    assert torch.linalg.eigvals(y.to(torch.complex128)).imag.abs().max() < torch.pi + 1e-4
    assert called("CustMatrixLogarithm", [torch.eye(3, dtype=dtype)], (3, 3, dtype))[0].abs().max() == 0


SINGULAR = """
import sys
sys.path.insert(0, {folder!r})
import torch
from aclop import launch
x = torch.zeros(2, 2, dtype=torch.complex64).npu()
launch("CustMatrixLogarithm", [x], [torch.zeros_like(x)])
"""


def test_a_singular_matrix_has_no_logarithm() -> None:
    ended = forked.python(SINGULAR.format(folder=str(Path(__file__).parent)))
    assert ended.returncode != 0 and "no logarithm" in ended.stderr, ended.stderr[-2000:]


@pytest.mark.parametrize("norm", ["backward", "forward", "ortho"])
@pytest.mark.parametrize("dims", [1, 3])
def test_transforms_of_the_last_dimensions(dims: int, norm: str) -> None:
    x, axes = drawn(2, 3, 4, 5), list(range(-dims, 0))
    z = torch.complex(x, x.flip(0))
    how: dict[str, Any] = {"signal_ndim": dims, "norm": norm}
    for inverse, transform in ((False, torch.fft.fftn), (True, torch.fft.ifftn)):
        (y,) = called("CustFFTWithSize", [z], (2, 3, 4, 5, C64), real=False, inverse=inverse, **how)
        near(y, transform(z, dim=axes, norm=norm))
    (half,) = called(
        "CustFFTWithSize", [x], (2, 3, 4, 3, C64), real=True, inverse=False, onesided=True, **how
    )
    near(half, torch.fft.rfftn(x, dim=axes, norm=norm))
    (whole,) = called(
        "CustFFTWithSize", [x], (2, 3, 4, 5, C64), real=True, inverse=False, onesided=False, **how
    )
    near(whole, torch.fft.fftn(x, dim=axes, norm=norm))
    (back,) = called(
        "CustFFTWithSize",
        [half],
        x.shape,
        real=True,
        inverse=True,
        onesided=True,
        signal_sizes=list(x.shape[-dims:]),
        **how,
    )
    near(back, x)
    (back,) = called("CustFFTWithSize", [whole], x.shape, real=True, inverse=True, onesided=False, **how)
    near(back, x)
    (back,) = called("CustFFTWithSize", [half], (2, 3, 4, 4), real=True, inverse=True, onesided=True, **how)
    near(back, torch.fft.irfftn(half, dim=axes, norm=norm))


@pytest.mark.parametrize("half", [False, True])
def test_transforms_of_windows(half: bool) -> None:
    x, window = drawn(2, 20), drawn(6)
    rows = torch.stack([x[:, i : i + 8] for i in range(0, 13, 3)], 1) * torch.nn.functional.pad(
        window, (1, 1)
    )
    expected = (torch.fft.rfft if half else torch.fft.fft)(rows.double()).mT / 8**0.5
    how = {"n_fft": 8, "hop_length": 3, "win_length": 6, "normalized": True, "onesided": half}
    sizes = tuple(expected.shape)
    (y,) = called("STFT", [x, window], (*sizes, 2), return_complex=False, **how)
    near(y, torch.view_as_real(expected))
    near(called("STFT", [x, window], (*sizes, C64), return_complex=True, **how)[0], expected)


@pytest.mark.parametrize("p", [0.0, 1.0, 1.5, 2.0, float("inf")])
def test_distances_and_their_gradient(p: float) -> None:
    x, slope = drawn(5, 3), drawn(10)
    wide = x.double().requires_grad_()
    differences = torch.stack([wide[i] - wide[j] for i in range(5) for j in range(i + 1, 5)])
    expected = (
        (differences != 0).sum(-1).double()
        if p == 0
        else differences.abs().pow(p).sum(-1).pow(1 / p)
        if p < 9
        else differences.abs().amax(-1)
    )
    (y,) = called("Pdist", [x], (10,), p=p)
    near(y, expected.detach())
    if p != 0:
        expected.backward(slope.double())
        assert wide.grad is not None
    near(
        called("CustPdistGrad", [slope, x, y], (5, 3), p=p)[0],
        wide.grad if wide.grad is not None else torch.zeros(5, 3),
    )


# Operator: inputs, outputs, attributes and words of its refusal.
REFUSED: dict[str, tuple[list[Any], list[tuple[Any, ...]], dict[str, Any], str]] = {
    "MatrixSolve": ([drawn(3, 4), drawn(3, 2)], [(3, 2)], {}, "square matrices"),
    "MatrixTriangularSolve": ([drawn(3, 3), drawn(2, 2)], [(2, 2)], {}, "the right side"),
    "CustSolveTriangular": ([drawn(3, 3), drawn(3, 2), [3], [1], [0]], [(3, 2)], {}, "trans is 3"),
    "CustSolveTriangularGrad": ([drawn(3, 3), drawn(3, 2), drawn(3, 1), [0], [1], [0]], [(3, 3), (3, 2)], {}, "the gradient is"),
    "CustLuUnpackGrad": ([drawn(3, 2), drawn(3, 3), drawn(3, 3)], [(3, 3)] * 2, {}, "the lower triangle is"),
    "CustMatrixLogarithm": ([drawn(3, 3)], [(3, 3)], {}, "no dtype"),
    "CustFFTWithSize": ([drawn(3, 2)], [(3, 2, C64)], {"signal_ndim": 3, "real": True}, "signal_ndim is 3"),
    "STFT": ([drawn(6)], [(4, 1, 2)], {"n_fft": 8, "return_complex": False}, "n_fft"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    inputs, sizes, attributes, words = REFUSED[name]
    check_refused(name, inputs, sizes, attributes, words)
