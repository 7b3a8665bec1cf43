"""special.py: gamma functions, Bessel's, limited norms, distances, the exponential of a matrix and more, whose operators MindSpore calls by
their type, beside torch in float64 (slopes.py)."""

import mindspore as ms
import numpy as np
import torch
from mindspore import Tensor, ops
from slopes import drawn, main

POSITIVE, ROWS = np.abs(drawn(4, 5)) + 0.3, drawn(4, 5)


def lower(a, x):
    """The regularized lower incomplete gamma function by its series, which torch can derive by both."""
    n = torch.arange(60).double().reshape(-1, 1, 1)
    return (a * x.log() - x + n * x.log() - torch.lgamma(a + n + 1)).exp().sum(0)


# MindSpore's function, torch's, what of.
CASES = {
    "log of gamma": (ops.lgamma, torch.lgamma, [POSITIVE]),
    "digamma": (ops.digamma, torch.digamma, [POSITIVE]),
    "trigamma": (lambda x: ops.polygamma(Tensor(1, ms.int64), x), lambda x: torch.polygamma(1, x), [POSITIVE]),
    "lower gamma": (ops.igamma, lower, [POSITIVE, POSITIVE[::-1] + 0.1]),
    "upper gamma": (ops.igammac, lambda a, x: 1 - lower(a, x), [POSITIVE, POSITIVE[::-1] + 0.1]),
    "gamma of matrices": (lambda x: ops.mvlgamma(x + 1, 3), lambda x: torch.mvlgamma(x + 1, 3), [POSITIVE]),
    "bessel i0e": (ops.bessel_i0e, torch.special.i0e, [ROWS]),
    "bessel i1e": (ops.bessel_i1e, torch.special.i1e, [ROWS]),
    "limited norms": (lambda x: ops.renorm(x, 2, 0, 1.5), lambda x: torch.renorm(x, 2, 0, 1.5), [ROWS]),
    "limited norms of columns": (lambda x: ops.renorm(x, 1, 1, 2.5), lambda x: torch.renorm(x, 1, 1, 2.5), [ROWS]),
    "distances": (ops.pdist, torch.pdist, [ROWS]),
    "distances of order 3": (lambda x: ops.pdist(x, 3.0), lambda x: torch.pdist(x, 3.0), [ROWS]),
    "filled": (
        lambda x: ops.index_fill(x, 1, Tensor([1, 3], ms.int32), 2.0),
        lambda x: x.index_fill(1, torch.tensor([1, 3]), 2.0),
        [ROWS],
    ),
    "products of segments": (
        lambda x: ops.unsorted_segment_prod(x, Tensor([1, 0, 1, 0]), 2),
        lambda x: torch.stack([x[1] * x[3], x[0] * x[2]]),
        [ROWS],
    ),
    "exponential of a matrix": (ops.matrix_exp, torch.linalg.matrix_exp, [ROWS[:, :4] / 2]),
    "products and a sum": (ops.addcmul, torch.addcmul, [ROWS, ROWS[::-1] + 1, POSITIVE]),
    "a quotient and a sum": (ops.addcdiv, torch.addcdiv, [ROWS, ROWS[::-1] + 1, POSITIVE]),
    "another order": (lambda x: ops.polygamma(Tensor(1, ms.int64), x), lambda x: torch.polygamma(2, x), [POSITIVE]),
}


if __name__ == "__main__":
    main(CASES)
