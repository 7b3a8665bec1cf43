"""linalg/aclop_sparse.cpp against dense matrices in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from aclop import INVALID_ARGUMENT, drawn, launch, near, ran

I32, I64 = torch.int32, torch.int64
PLACES = torch.tensor([[0, 3], [2, 1], [2, 1], [1, 0]])  # one of them twice: values add up


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64, I32, torch.complex64])
@pytest.mark.parametrize("indices", [I32, I64])
@pytest.mark.parametrize("a", [False, True])
@pytest.mark.parametrize("b", [False, True])
def test_a_product_with_a_dense_matrix(dtype: torch.dtype, indices: torch.dtype, a: bool, b: bool) -> None:
    values = (torch.randn(4, dtype=dtype) if dtype.is_complex else drawn(4) * 4).to(dtype)
    dense = (torch.randn(3 if a else 4, 5, dtype=dtype) if dtype.is_complex else drawn(3 if a else 4, 5) * 4).to(dtype)
    wide = torch.complex128 if dtype.is_complex else torch.float64
    left = torch.zeros(3, 4, dtype=wide).index_put(tuple(PLACES.t()), values.to(wide), accumulate=True)
    expected = (left.mH if a else left) @ dense.to(wide)
    if b:
        dense = dense.mH.resolve_conj().contiguous()
    inputs = [PLACES.to(indices), values, torch.tensor([3, 4]), dense]
    operands = [each.npu() for each in inputs]
    out = torch.zeros(expected.shape, dtype=dtype).npu()
    status, message = launch("SparseTensorDenseMatMul", operands, [out], adjoint_a=a, adjoint_b=b)
    assert status == 0, message
    exact = {torch.float16: 1e-2, torch.float64: 1e-14}.get(dtype, 2e-6)
    torch.testing.assert_close(out.cpu().to(wide), expected, rtol=exact, atol=exact)


@pytest.mark.parametrize("indices", [I32, I64])
@pytest.mark.parametrize("batch", [None, 3])
def test_compressed_rows_as_coordinates(indices: torch.dtype, batch: int | None) -> None:
    dense = drawn(batch or 1, 4, 5) * (torch.rand(batch or 1, 4, 5) < 0.5)
    places = dense.nonzero() if batch else dense[0].nonzero()
    counts = dense.ne(0).sum(2)
    rows = torch.nn.functional.pad(counts.cumsum(1), (1, 0)).flatten()
    batches = torch.nn.functional.pad(counts.sum(1).cumsum(0), (1, 0))
    shape = torch.tensor([batch, 4, 5] if batch else [4, 5])
    values = dense[dense != 0]
    inputs = [each.to(indices) for each in (shape, batches, rows, places[:, -1])] + [values]
    found, kept, sizes = ran(
        "CustCSRSparseMatrixToSparseTensor", inputs, (*places.shape, indices), values.shape, (len(shape), indices)
    )
    assert torch.equal(found, places.double()) and sizes.tolist() == shape.tolist()
    near(kept, values.double())


VALUES = drawn(4)
ROWS = [torch.tensor(each) for each in ([2, 3], [0, 4], [0, 2, 4], [0, 1, 0, 1])]
# Operator: inputs, outputs, attributes; words of the message.
REFUSED: dict[str, tuple[list[Any], list[Any], dict[str, Any], str]] = {
    "SparseTensorDenseMatMul": (
        [PLACES[:, :1].contiguous(), VALUES, torch.tensor([3, 4]), drawn(4, 5)],
        [(3, 5)],
        {},
        "x1_indices is",
    ),
    "SparseTensorDenseMatMul 2": ([PLACES, VALUES, torch.tensor([3, 4]), drawn(4, 5).half()], [(3, 5)], {}, "x2 is"),
    "SparseTensorDenseMatMul 3": (
        [PLACES, VALUES, torch.tensor([3, 4]), drawn(4, 5)],
        [(3, 5)],
        {"adjoint_b": True},
        "the output is",
    ),
    "CustCSRSparseMatrixToSparseTensor": (
        [torch.tensor([2]), *ROWS[1:], VALUES],
        [(4, 2, I64), (4,), (2, I64)],
        {},
        "1 values",
    ),
    "CustCSRSparseMatrixToSparseTensor 2": (
        [*ROWS[:3], ROWS[3].int(), VALUES],
        [(4, 2, I64), (4,), (2, I64)],
        {},
        "an operand with integers",
    ),
    "CustCSRSparseMatrixToSparseTensor 3": ([*ROWS, VALUES], [(4, 3, I64), (4,), (2, I64)], {}, "the indices is"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name: str) -> None:
    inputs, outputs, attributes, words = REFUSED[name]
    name = name.split()[0]
    operands = [each.npu() for each in inputs]
    made = [
        torch.zeros(
            [n for n in size if isinstance(n, int)],
            dtype=next((d for d in size if isinstance(d, torch.dtype)), torch.float32),
        ).npu()
        for size in outputs
    ]
    status, message = launch(name, operands, made, **attributes)
    assert status == INVALID_ARGUMENT and words in message and name in message, (status, message)
