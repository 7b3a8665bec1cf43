"""linear.py: systems of equations, functions of matrices, spectra, distances and maxima back in their places, whose operators
MindSpore calls by their type, beside torch in float64 (slopes.py)."""

import mindspore as ms
import numpy as np
import torch
from mindspore import Tensor, nn, ops
from mindspore.scipy.linalg import lstsq, solve_triangular
from slopes import drawn, main

F = torch.nn.functional
SQUARE = 3 * np.eye(3, dtype=np.float32) + drawn(2, 3, 3) / 2
SIDE, ROWS, LINES = drawn(2, 3, 2), drawn(5, 3), drawn(2, 9)
ROOT = np.linalg.cholesky(SQUARE[0] @ SQUARE[0].T).astype(np.float32)
PLACES = np.array([[[[0, 3], [8, 15]]]])
DEEP = np.arange(8).reshape(1, 1, 2, 2, 2) * 8
PIVOTS = [2, 3, 3]
SAMPLES = np.array([[[0.2, 0.6, 0.9], [0.5, 0.1, 0.7]]], np.float32)


def spectrum(x, **how):
    y = ops.operations.FFTWithSize(**how)(x)
    return ops.real(y) + 2 * ops.imag(y)


def parts(y):
    return y.real + 2 * y.imag


# MindSpore's function, torch's, what of.
CASES = {
    "systems": (lambda a, b: ops.matrix_solve(a, b), torch.linalg.solve, [SQUARE, SIDE]),
    "lower triangles": (
        lambda a, b: solve_triangular(a, b, lower=True),
        lambda a, b: torch.linalg.solve_triangular(a.tril(), b, upper=False),
        [SQUARE[0], SIDE[0]],
    ),
    "upper triangles, transposed": (
        lambda a, b: solve_triangular(a, b, trans="T"),
        lambda a, b: torch.linalg.solve_triangular(a.triu().mT, b, upper=False),
        [SQUARE[0], SIDE[0]],
    ),
    "a root's system": (
        lambda b: ops.cholesky_solve(b, Tensor(ROOT)),
        lambda b: torch.cholesky_solve(b, torch.tensor(ROOT).double()),
        [SIDE[0]],
    ),
    "a root's inverse": (lambda a: ops.cholesky_inverse(a, True), lambda a: torch.linalg.inv(a.mT @ a), [ROOT]),
    "least squares": (lambda a, b: lstsq(a, b)[0], lambda a, b: torch.linalg.pinv(a) @ b, [ROWS, drawn(5, 2)]),
    "exponentials": (lambda a: ops.matrix_exp(a), torch.linalg.matrix_exp, [SQUARE[0] / 3]),
    "lower factors": (
        lambda a: ops.lu_unpack(a, Tensor(PIVOTS, ms.int32))[1],
        lambda a: a.tril(-1) + torch.eye(3),
        [SQUARE[0]],
    ),
    "upper factors": (lambda a: ops.lu_unpack(a, Tensor(PIVOTS, ms.int32))[2], torch.triu, [SQUARE[0]]),
    "distances": (lambda x: ops.pdist(x), torch.pdist, [ROWS]),
    "distances by another power": (lambda x: ops.pdist(x, 1.5), lambda x: torch.pdist(x, 1.5), [ROWS]),
    "half a spectrum": (
        lambda x: spectrum(x, signal_ndim=1, inverse=False, real=True),
        lambda x: parts(torch.fft.rfft(x)),
        [LINES],
    ),
    "maxima in their places": (
        lambda x: nn.MaxUnpool2d(2, 2)(x, Tensor(PLACES, ms.int64)),
        lambda x: F.max_unpool2d(x, torch.tensor(PLACES), 2),
        [drawn(1, 1, 2, 2)],
    ),
    "maxima in a line": (
        lambda x: nn.MaxUnpool1d(2, 2)(x, Tensor([[[0, 3]]], ms.int64)),
        lambda x: F.max_unpool1d(x, torch.tensor([[[0, 3]]]), 2),
        [drawn(1, 1, 2)],
    ),
    "maxima in a volume": (
        lambda x: nn.MaxUnpool3d(2, 2)(x, Tensor(DEEP, ms.int64)),
        lambda x: F.max_unpool3d(x, torch.tensor(DEEP), 2),
        [drawn(1, 1, 2, 2, 2)],
    ),
    "maxima of drawn windows": (
        lambda x: ops.fractional_max_pool3d(x, (1, 2, 1), output_size=(2, 2, 3), _random_samples=Tensor(SAMPLES)),
        lambda x: F.fractional_max_pool3d(x, (1, 2, 1), (2, 2, 3), _random_samples=torch.tensor(SAMPLES).double()),
        [drawn(1, 2, 4, 5, 6)],
    ),
    "products of segments": (
        lambda x: ops.unsorted_segment_prod(x, Tensor([1, 0, 1, 0, 1]), 2),
        lambda x: torch.stack([x[[1, 3]].prod(0), x[[0, 2, 4]].prod(0)]),
        [ROWS],
    ),
    "filled rows": (
        lambda x: ops.index_fill(x, 0, Tensor([1, 3], ms.int32), 9.0),
        lambda x: x.index_fill(0, torch.tensor([1, 3]), 9.0),
        [ROWS],
    ),
    "exponentials of elements": (lambda a: ops.matrix_exp(a), torch.exp, [SQUARE[0] / 3]),
}


if __name__ == "__main__":
    main(CASES)
