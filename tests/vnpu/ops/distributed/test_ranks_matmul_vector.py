"""Matrix products fused with a collective of the vector cores, against products and sums in float64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch_npu
from aclnn import INVALID_ARGUMENT
from ranks import group, refusal, run_ranks

TILING = 561002
HALF, BFLOAT, INT8 = torch.float16, torch.bfloat16, torch.int8
RANKS, K, N = 2, 256, 6


@pytest.fixture(scope="module")
def name() -> Iterator[str]:
    with group(RANKS) as made:
        yield made


class Operands:
    """What the ranks have, and their products in float64."""

    def __init__(self, m: int, kind: str) -> None:
        self.scales: list[list[Any]] = [[None, None] for _ in range(RANKS)]
        if kind in ("float16", "bfloat16"):
            self.dtype = getattr(torch, kind)
            self.x1, self.x2 = (
                [(torch.rand(shape) - 0.5).to(self.dtype) for _ in range(RANKS)] for shape in ((m, K), (K, N))
            )
            rows, columns = [torch.ones(m, 1)] * RANKS, [torch.ones(1, N)] * RANKS
        else:
            self.dtype = HALF if kind == "packed" else BFLOAT
            self.x1, self.x2 = (
                [torch.randint(-20, 20, shape, dtype=INT8) for _ in range(RANKS)] for shape in ((m, K), (K, N))
            )
            rows = [torch.rand(m, 1) for _ in range(RANKS)]
            columns = [0.001 + torch.rand(1, N) / 1000 for _ in range(RANKS)]
            given = columns
            if kind == "packed":
                given = [torch_npu.npu_trans_quant_param(one.npu()).cpu() for one in columns]
                columns = [(one & 0xFFFFFFFF).to(torch.int32).view(torch.float32) for one in given]
            self.scales = [[rows[r].to(f"npu:{r}"), given[r].to(f"npu:{r}")] for r in range(RANKS)]
        self.rows, self.columns = rows, columns

    def product(self, left: int, right: int) -> torch.Tensor:
        value = self.x1[left].double() @ self.x2[right].double()
        return value * self.rows[left].double() * self.columns[right].double()

    def near(self, actual: torch.Tensor, expected: torch.Tensor) -> None:
        tolerance = 2e-3 if self.dtype == HALF else 1.6e-2
        torch.testing.assert_close(actual.cpu().double(), expected, rtol=tolerance, atol=tolerance * 20)


KINDS = ("float16", "bfloat16", "packed", "float32 scales")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("transposed", [True, False])
def test_all_gather(name: str, kind: str, transposed: bool) -> None:
    held = Operands(3, kind)
    calls, outs = [], []
    for r in range(RANKS):
        device = f"npu:{r}"
        x2 = held.x2[r].t().contiguous().to(device).t() if transposed else held.x2[r].to(device)
        out = torch.zeros(3 * RANKS, N, dtype=held.dtype, device=device)
        gathered = torch.zeros(3 * RANKS, K, dtype=held.x1[r].dtype, device=device)
        scales = [None, *held.scales[r], None]
        calls.append([held.x1[r].to(device), x2, *scales, 0, name, 0, 0, 1, 0, "aiv", out, gathered, None])
        outs.append((out, gathered))
    run_ranks("aclnnAllGatherMatmulV2", calls)
    for r, (out, gathered) in enumerate(outs):
        held.near(out, torch.cat([held.product(source, r) for source in range(RANKS)]))
        assert torch.equal(gathered.cpu(), torch.cat(held.x1))


@pytest.mark.parametrize("kind", KINDS)
def test_reduce_scatter(name: str, kind: str) -> None:
    held = Operands(4, kind)
    calls, outs = [], []
    for r in range(RANKS):
        device = f"npu:{r}"
        outs.append(torch.zeros(2, N, dtype=held.dtype, device=device))
        operands = [held.x1[r].to(device), held.x2[r].to(device), None, *held.scales[r], None]
        calls.append([*operands, 0, name, "sum", 0, 1, 0, "aiv", outs[r], None])
    run_ranks("aclnnMatmulReduceScatterV2", calls)
    total = torch.stack([held.product(r, r) for r in range(RANKS)]).sum(0)
    for r, out in enumerate(outs):
        held.near(out, total[2 * r : 2 * r + 2])


def test_refused(name: str) -> None:
    def h(*shape: int, dtype: torch.dtype = HALF) -> torch.Tensor:
        return torch.ones(shape, dtype=dtype, device="npu:0")

    def said(x1: torch.Tensor, x2: torch.Tensor, scale: torch.Tensor | None = None, bias: Any = None) -> Any:
        out = h(2 * len(x1), N)
        tail = [None, 0, name, 0, 0, 1, 0, "aiv", out, h(0, dtype=x1.dtype), None]
        return refusal("aclnnAllGatherMatmulV2", x1, x2, bias, None, scale, *tail)

    assert said(h(3, 8), h(8, N)) == (0, "")
    for (status, message), code, words in (
        (said(h(3, 8), h(8, N), bias=h(N)), INVALID_ARGUMENT, "bias is given"),
        (said(h(3, 8), h(8, N), torch.ones(1, N, device="npu:0")), INVALID_ARGUMENT, "x2Scale is given"),
        (said(h(8, 3).t(), h(8, N)), INVALID_ARGUMENT, "transposed"),
        (said(h(3, 8), h(8, 2 * N)[:, ::2]), INVALID_ARGUMENT, "neither contiguous nor transposed"),
        (said(h(3, 8, dtype=INT8), h(8, N, dtype=INT8), torch.ones(2, device="npu:0")), TILING, "6 columns"),
    ):
        assert status == code and words in message, message
    few = [h(4, 255), h(255, N), None, None, None, None, 0, name, "sum", 0, 1, 0, "aiv", h(2, N), None]
    status, message = refusal("aclnnMatmulReduceScatterV2", *few)
    assert status == INVALID_ARGUMENT and "allowed are 256 to 65534" in message, message
