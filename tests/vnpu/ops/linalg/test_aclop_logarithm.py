"""linalg/aclop_logarithm.cpp: its exponential is the matrix again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import forked
import pytest
import torch
from aclop import called, check_refused, drawn
from solutions import near


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_logarithms_of_matrices(dtype: torch.dtype) -> None:
    x = torch.complex(drawn(3, 4, 4), drawn(3, 4, 4)).to(dtype)
    x[2] = torch.eye(4) + torch.ones(4, 4).triu(1)  # has one eigenvector alone
    x[1] = x[1] @ torch.diag(torch.tensor([-2.0, -0.5, 3, 1])).to(dtype) @ torch.linalg.inv(x[1])
    (y,) = called("CustMatrixLogarithm", [x], (3, 4, 4, dtype))
    near(torch.linalg.matrix_exp(y.to(torch.complex128)), x, 1e-5 if dtype == torch.complex64 else 1e-11)
    assert torch.linalg.eigvals(y.to(torch.complex128)).imag.abs().max() < torch.pi + 1e-4
    assert called("CustMatrixLogarithm", [torch.eye(3, dtype=dtype)], (3, 3, dtype))[0].abs().max() == 0


@pytest.mark.parametrize("size", [1e-9, 1, 1e8])
def test_the_angle_of_a_negative_eigenvalue_is_pi(size: float) -> None:
    # The eigenvalues come with imaginary parts that are rounding alone, of either sign.
    vectors = torch.complex(drawn(4, 5, 5), drawn(4, 5, 5)).to(torch.complex128)
    values = -size * torch.tensor([1.0, 2, 0.5, 3, 1.5]).to(torch.complex128)
    x = vectors @ torch.diag(values) @ torch.linalg.inv(vectors)
    (y,) = called("CustMatrixLogarithm", [x], (4, 5, 5, torch.complex128))
    assert (torch.linalg.eigvals(y).imag - torch.pi).abs().max() < 1e-6


SINGULAR = """
import sys
sys.path.insert(0, {folder!r})
import torch
from aclop import launch
x = torch.zeros(2, 2, dtype=torch.complex64).npu()
launch("CustMatrixLogarithm", [x], [torch.zeros_like(x)])
"""


def test_a_singular_matrix_has_no_logarithm() -> None:
    ended = forked.python(SINGULAR.format(folder=str(Path(__file__).parents[1])))
    assert ended.returncode != 0 and "no logarithm" in ended.stderr, ended.stderr[-2000:]


# Operator: inputs, outputs, attributes and words of its refusal.
REFUSED: dict[str, tuple[list[Any], list[tuple[Any, ...]], dict[str, Any], str]] = {
    "CustMatrixLogarithm": ([drawn(3, 3)], [(3, 3)], {}, "no dtype")
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    inputs, sizes, attributes, words = REFUSED[name]
    check_refused(name, inputs, sizes, attributes, words)
