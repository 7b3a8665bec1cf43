"""A product summed over two ranks, with a residual and normalised, against float64 over what both have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from aclnn import INVALID_ARGUMENT
from ranks import group, refusal, run_ranks

TILING = 561002
HALF, BFLOAT = torch.float16, torch.bfloat16
RANKS, B, S, K, N = 2, 3, 4, 16, 8
FUSED, IN_PLACE = "aclnnMatmulAllReduceAddRmsNorm", "aclnnInplaceMatmulAllReduceAddRmsNorm"


@pytest.fixture(scope="module")
def name() -> Iterator[str]:
    with group(RANKS) as made:
        yield made


def drawn(*shape: int, dtype: torch.dtype) -> list[torch.Tensor]:
    return [(torch.rand(shape) - 0.5).to(dtype) for _ in range(RANKS)]


def on(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return [tensor.to(f"npu:{rank}") for rank, tensor in enumerate(tensors)]


@pytest.mark.parametrize("dtype", [HALF, BFLOAT])
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
def test_sum_residual_and_norm(name: str, dtype: torch.dtype, in_place: bool, flat: bool, transposed: bool) -> None:
    x1 = drawn(*([B * S] if flat else [B, S]), K, dtype=dtype)
    x2, bias = drawn(K, N, dtype=dtype), drawn(N, dtype=dtype)
    # What every rank has of its own: the operator does not compare them.
    residual, gamma = drawn(B, S, N, dtype=dtype), drawn(N, dtype=dtype)
    a, c, d, e = on(x1), on(bias), on(residual), on(gamma)
    b = [each.t().contiguous().t() if transposed else each for each in on(x2)]
    y, normal = (on([torch.full((B, S, N), 7.0, dtype=dtype) for _ in range(RANKS)]) for _ in range(2))
    biased: list[Any] = [None] * RANKS if flat else c
    run_ranks(
        IN_PLACE if in_place else FUSED,
        [
            [a[r], b[r], biased[r], d[r], e[r], 1e-5, name, "sum", 0, 1, *([] if in_place else [y[r]]), normal[r]]
            for r in range(RANKS)
        ],
    )
    products = [p.double() @ q.double() + (0 if flat else z.double()) for p, q, z in zip(x1, x2, bias, strict=True)]
    total = torch.stack(products).sum(0).view(B, S, N)
    near = 2e-3 if dtype == HALF else 2e-2
    for r in range(RANKS):
        expected = total + residual[r].double()
        norm = expected / (expected.square().mean(-1, True) + 1e-5).sqrt() * gamma[r].double()
        torch.testing.assert_close((d if in_place else y)[r].cpu().double(), expected, rtol=near, atol=near)
        torch.testing.assert_close(normal[r].cpu().double(), norm, rtol=2 * near, atol=2 * near)
        if not in_place:
            assert torch.equal(d[r].cpu(), residual[r])


def half(*shape: int, dtype: torch.dtype = HALF) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype, device="npu:0")


@pytest.mark.parametrize("in_place", [False, True])
def test_what_is_refused(name: str, in_place: bool) -> None:
    def said(**changed: Any) -> tuple[int, str]:
        arguments = {
            "x1": half(B, S, K),
            "x2": half(K, N),
            "bias": None,
            "residual": half(B, S, N),
            "gamma": half(N),
            "epsilon": 1e-5,
            "group": name,
            "reduceOp": "sum",
            "commTurn": 0,
            "streamMode": 1,
            "y": half(B, S, N),
            "normOut": half(B, S, N),
        } | changed
        if in_place:
            del arguments["y"]
        return refusal(IN_PLACE if in_place else FUSED, *arguments.values())

    assert said()[0] == 0
    assert said(x1=half(0, S, K), residual=half(0, S, N))[0] == 0  # empty: nothing is done
    single = half(N, dtype=torch.float32)
    for changed, code, words in (
        ({"x2": half(K + 1, N)}, INVALID_ARGUMENT, "expected 16 rows"),
        ({"residual": half(B, S, N + 1)}, INVALID_ARGUMENT, "expected 8 columns"),
        ({"x1": half(B, S, 0), "x2": half(0, N)}, INVALID_ARGUMENT, "nothing to sum over"),
        ({"streamMode": 0}, INVALID_ARGUMENT, "streamMode is 0"),
        ({"reduceOp": "max"}, TILING, 'reduceOp is "max"'),
        ({"commTurn": 1}, TILING, "commTurn is 1"),
        ({"epsilon": 0.0}, TILING, "epsilon is 0"),
        ({"epsilon": 1.0}, TILING, "epsilon is 1"),
        ({"gamma": single}, INVALID_ARGUMENT, "gamma has dtype float32"),
        ({"gamma": half(N - 1)}, INVALID_ARGUMENT, "gamma has shape"),
        ({"residual": half(B * S, N)}, INVALID_ARGUMENT, "residual has"),
        ({"x1": half(B, S + 1, K)}, INVALID_ARGUMENT, "expected the rows of x1"),
        ({"normOut": half(B, S)}, INVALID_ARGUMENT, "normOut has shape"),
        ({"bias": half(N + 1)}, INVALID_ARGUMENT, "bias has shape"),
        ({} if in_place else {"y": half(B, S)}, 0 if in_place else INVALID_ARGUMENT, "" if in_place else "y has shape"),
    ):
        status, message = said(**changed)
        assert status == code and words in message, (changed, status, message)
