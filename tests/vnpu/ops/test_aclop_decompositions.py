"""Linear algebra by MindSpore's types, by what each result has to fulfil, in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from aclop import INVALID_ARGUMENT, drawn, launch, near, ran

I32, C64 = torch.int32, torch.complex64
MATRICES = drawn(2, 4, 4)
DEFINITE = MATRICES @ MATRICES.mT + 4 * torch.eye(4)
RIGHT = drawn(2, 4, 3)


def called(
    name: str, inputs: list[torch.Tensor], outputs: list[torch.Tensor], **attributes: Any
) -> list[torch.Tensor]:
    made = [each.npu() for each in outputs]
    status, message = launch(name, [each.npu() for each in inputs], made, **attributes)
    assert status == 0, message
    return [each.cpu() for each in made]


@pytest.mark.parametrize("dtype", [torch.float32, C64])
def test_values_and_vectors(dtype: torch.dtype) -> None:
    x = MATRICES.to(dtype) + (1j * drawn(2, 4, 4) if dtype == C64 else 0)
    values, vectors = called(
        "CustEig", [x], [torch.zeros(2, 4, dtype=C64), torch.zeros(2, 4, 4, dtype=C64)], compute_v=True
    )
    torch.testing.assert_close(x.to(C64) @ vectors, vectors * values[:, None, :], rtol=1e-5, atol=1e-5)
    assert torch.linalg.vector_norm(vectors, dim=1).sub(1).abs().max() < 1e-6
    (alone, _) = called(
        "CustEig", [x], [torch.zeros(2, 4, dtype=C64), torch.zeros((), dtype=C64)], compute_v=False
    )
    assert torch.equal(alone, values)


def test_the_exponential_is_its_series() -> None:
    wide, term = MATRICES.double(), torch.eye(4).double().expand(2, 4, 4)
    total = term
    for n in range(1, 60):
        term = term @ wide / n
        total = total + term
    (y,) = ran("CustMatrixExp", [MATRICES], MATRICES.shape)
    near(y / total.abs().max(), total / total.abs().max())


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
    p, lower, upper = ran(
        "CustLuUnpack", [lu, pivots], *[(2, 4, 4)] * 3, unpack_data=True, unpack_pivots=True
    )
    near(p @ lower @ upper, x.double(), 1e-5)
    assert torch.equal(p.sum(1), torch.ones(2, 4)) and torch.equal(
        lower.triu(1), torch.zeros(2, 4, 4).double()
    )
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
    near(q.mT @ q, torch.eye(3).double().expand(2, 3, 3))
    near(q @ reflected[:, :3].triu(), x.double(), 5e-6)


# Operator: inputs, outputs, attributes; words of the message.
REFUSED: dict[str, tuple[list[Any], list[Any], dict[str, Any], str]] = {
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


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name: str) -> None:
    inputs, outputs, attributes, words = REFUSED[name]
    name = name.split()[0]
    made = [torch.zeros([n for n in size if isinstance(n, int)], dtype=next((d for d in size if isinstance(d, torch.dtype)), torch.float32)).npu() for size in outputs]  # fmt: skip
    status, message = launch(name, [each.npu() for each in inputs], made, **attributes)
    assert status == INVALID_ARGUMENT and words in message and name in message, (status, message)
