"""linalg/aclop_matrix.cpp: traces, singular values and QR, in float64, and refused calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from aclop import INVALID_ARGUMENT, check_refused, drawn, launch, near, ran

X = drawn(3, 6, 5)


@pytest.mark.parametrize(("offset", "axis1", "axis2"), [(0, 1, 0), (-2, 1, 2), (1, -1, 0)])
def test_a_trace_and_its_gradient(offset: int, axis1: int, axis2: int) -> None:
    expected = torch.from_numpy(np.trace(X.double().numpy(), offset, axis1, axis2))
    near(ran("CustTraceV2", [X, [offset], [axis1], [axis2]], tuple(expected.shape))[0], expected)
    slope = drawn(*expected.shape)
    x = X.double().requires_grad_()
    (x.diagonal(offset, axis1, axis2).sum(-1) * slope).sum().backward()
    (found,) = ran("CustTraceV2Grad", [slope, [3, 6, 5], [offset], [axis1], [axis2]], (3, 6, 5))
    near(found, x.grad)


@pytest.mark.parametrize("full", [False, True])
def test_singular_values(full: bool) -> None:
    columns = 6 if full else 5
    sigma, u, v = ran("Svd", [X], (3, 5), (3, 6, columns), (3, 5, 5), full_matrices=full, compute_uv=True)
    near(u[..., :5] @ sigma.diag_embed() @ v.mT, X.double(), 2e-5)
    near(u.mT @ u, torch.eye(columns).expand(3, -1, -1), 2e-5)
    near(ran("Svd", [X], (3, 5), compute_uv=False)[0], sigma, 2e-5)


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("size", [(2, 5, 3), (3, 5), (4, 4)])
def test_orthogonal_times_triangular(whole: bool, size: tuple[int, ...]) -> None:
    x = drawn(*size)
    rows, columns = size[-2:]
    inner = rows if whole else min(rows, columns)
    q, r = ran("Qr", [x], (*size[:-1], inner), (*size[:-2], inner, columns), full_matrices=whole)
    near(q @ r, x.double())
    near(q.mT @ q, torch.eye(inner).double().expand(*size[:-2], inner, inner))
    assert torch.equal(r, r.triu())


MATRIX = drawn(4, 5)
REFUSED: dict[str, tuple[list[Any], torch.Tensor, dict[str, Any], str]] = {
    "CustTraceV2": ([X[0, 0], [0], [0], [0]], X[0, 0], {}, "expected 2 dimensions or more"),
    "Svd": ([X.half()], X.half(), {}, "no dtype that the operator takes"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    inputs, out, attributes, words = REFUSED[name]
    operands = [each.npu() if isinstance(each, torch.Tensor) else each for each in inputs]
    status, message = launch(name, operands, [torch.zeros_like(out).npu()], **attributes)
    assert status == INVALID_ARGUMENT and words in message and name in message, (status, message)


# Operator: inputs, outputs, attributes; words of the message.
UNFIT: dict[str, tuple[list[Any], list[Any], dict[str, Any], str]] = {
    "Qr": ([MATRIX], [(4, 4), (4, 4)], {}, "r is"),
    "Qr 2": ([MATRIX[0]], [(5,), (5,)], {}, "expected 2 dimensions"),
}


@pytest.mark.parametrize("name", UNFIT)
def test_what_does_not_fit_is_refused(name: str) -> None:
    inputs, sizes, attributes, words = UNFIT[name]
    check_refused(name.split()[0], inputs, sizes, attributes, words)
