"""Products of experts' rows on three ranks, by loops over the definition: run by test_ranks_matmul_grouped with
VNPU_CHECKS=any, since hardware takes eight ranks and two megabytes between any two of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from aclnn import INVALID_ARGUMENT, NULL_ARGUMENT
from ranks import group, refusal, run_ranks

RANKS, EXPERTS, H, N = 3, 2, 7, 5
TILING = 561002
Rows = list[list[list[torch.Tensor]]]  # [from or at rank][to rank][expert of that rank]


def moved(dtype: torch.dtype) -> tuple[torch.Tensor, Rows]:
    """How many rows each rank has for each expert of each rank, and the rows."""
    counts = torch.randint(0, 5, (RANKS, RANKS, EXPERTS))
    rows = [
        [[(torch.rand(int(counts[a, b, e]), H) - 0.5).to(dtype) for e in range(EXPERTS)] for b in range(RANKS)]
        for a in range(RANKS)
    ]
    return counts, rows


def flat(numbers: torch.Tensor) -> list[int]:
    return [int(number) for number in numbers.flatten()]


def versions(operator: str, calls: list[list[Any]]) -> Iterator[None]:
    """Run both versions, of which the second is told what carries the rows."""
    for version, mode in (("", []), ("V2", ["ai_cpu"])):
        run_ranks(operator + version, [[*call[:7], *mode, *call[7:]] for call in calls])
        yield


def near(actual: torch.Tensor, expected: torch.Tensor) -> None:
    tolerance = 2e-3 if actual.dtype == torch.float16 else 1.6e-2
    torch.testing.assert_close(actual.cpu().double(), expected, rtol=tolerance, atol=tolerance)


def exchange_then_multiply(name: str, dtype: torch.dtype, transposed: bool, permuted: bool) -> None:
    counts, rows = moved(dtype)
    weights = [(torch.rand(EXPERTS, H, N) - 0.5).to(dtype) for _ in range(RANKS)]
    beside = [((torch.rand(4, 6) - 0.5).to(dtype), (torch.rand(6, 3) - 0.5).to(dtype)) for _ in range(RANKS)]
    calls, results = [], []
    for r in range(RANKS):
        device, come = f"npu:{r}", counts[:, r]
        x = torch.cat([torch.cat(part) for part in rows[r]]).to(device)
        weight = weights[r].mT.contiguous() if transposed else weights[r]
        mm_weight = beside[r][1].t().contiguous() if transposed else beside[r][1]
        y = torch.zeros(int(come.sum()), N, dtype=dtype, device=device)
        mm_y = torch.zeros(4, 3, dtype=dtype, device=device)
        order = torch.zeros(int(come.sum()), H, dtype=dtype, device=device) if permuted else None
        calls.append(
            [
                x,
                weight.to(device),
                None,
                None,
                beside[r][0].to(device),
                mm_weight.to(device),
                name,
                RANKS,
                flat(counts[r]),
                flat(come),
                transposed,
                transposed,
                permuted,
                y,
                mm_y,
                order,
            ]
        )
        results.append((y, mm_y, order))
    for _ in versions("aclnnAlltoAllvGroupedMatMul", calls):
        for r, (y, mm_y, order) in enumerate(results):
            sorted_rows = [torch.cat([rows[source][r][e] for source in range(RANKS)]) for e in range(EXPERTS)]
            near(y, torch.cat([part.double() @ weights[r][e].double() for e, part in enumerate(sorted_rows)]))
            near(mm_y, beside[r][0].double() @ beside[r][1].double())
            if order is not None:
                assert torch.equal(order.cpu(), torch.cat(sorted_rows))
            y.zero_()
            mm_y.zero_()


def multiply_then_exchange(name: str, dtype: torch.dtype, transposed: bool) -> None:
    """counts[a, b, e]: what expert e of rank b has of rank a's, and gives back."""
    counts, rows = moved(dtype)
    weights = [(torch.rand(EXPERTS, H, N) - 0.5).to(dtype) for _ in range(RANKS)]
    calls, results = [], []
    for r in range(RANKS):
        device = f"npu:{r}"
        x = torch.cat([rows[owner][r][e] for e in range(EXPERTS) for owner in range(RANKS)]).to(device)
        weight = (weights[r].mT.contiguous() if transposed else weights[r]).to(device)
        y = torch.zeros(int(counts[r].sum()), N, dtype=dtype, device=device)
        calls.append(
            [
                x,
                weight,
                None,
                None,
                None,
                None,
                name,
                RANKS,
                flat(counts[:, r]),
                flat(counts[r]),
                transposed,
                False,
                y,
                None,
            ]
        )
        results.append(y)
    for _ in versions("aclnnGroupedMatMulAlltoAllv", calls):
        for r, y in enumerate(results):
            parts = [rows[r][at][e].double() @ weights[at][e].double() for at in range(RANKS) for e in range(EXPERTS)]
            near(y, torch.cat(parts))
            y.zero_()


def refused(name: str) -> None:
    half, device = torch.float16, "npu:0"
    x, weight = torch.ones(6, H, dtype=half, device=device), torch.ones(2, H, N, dtype=half, device=device)
    y, counts = torch.ones(6, N, dtype=half, device=device), [1] * 6
    tensor = torch.ones(6, dtype=torch.int64, device=device)

    def said(x: torch.Tensor, sent: torch.Tensor | None, counts: list[int], flag: bool) -> tuple[int, str]:
        return refusal(
            "aclnnAlltoAllvGroupedMatMul",
            x,
            weight,
            sent,
            None,
            None,
            None,
            name,
            RANKS,
            counts,
            [1] * 6,
            False,
            False,
            flag,
            y,
            None,
            None,
        )

    assert said(x, None, counts, False) == (0, "")
    for (status, message), code, words in (
        (said(x, tensor, counts, False), NULL_ARGUMENT, "expected to be null"),
        (said(x, None, counts[:5], False), TILING, "there are 5 counts to send"),
        (said(x[:5], None, counts, False), TILING, "expected 6 rows"),
        (said(x, None, [2, -1, 1, 1, 1, 2], False), INVALID_ARGUMENT, "a count of rows is -1"),
    ):
        assert status == code and words in message, message


def main() -> None:
    torch.manual_seed(0)
    with group(RANKS) as name:
        for dtype in (torch.float16, torch.bfloat16):
            for transposed in (False, True):
                exchange_then_multiply(name, dtype, transposed, permuted=transposed)
                multiply_then_exchange(name, dtype, transposed)
        refused(name)
    print("all right")
