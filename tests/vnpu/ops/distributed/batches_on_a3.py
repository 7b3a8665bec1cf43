"""Products of experts between two exchanges, on four dies of an A3 as a grid of 2 x 2, by loops over the definition: run
by test_ranks_batches."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from aclnn import INVALID_ARGUMENT, NULL_ARGUMENT
from ranks import group, members, refusal, run_ranks

EP, TP, OWN, ROWS, INNER, COLUMNS = 2, 2, 3, 5, 8, 6
RANKS, EXPERTS = EP * TP, EP * OWN
TILING = 561002
GATHER, SCATTER = "aclnnAlltoAllAllGatherBatchMatMul", "aclnnBatchMatMulReduceScatterAlltoAll"
ACTIVATIONS = [
    lambda x: x,
    lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    torch.nn.functional.silu,
    torch.relu,
    lambda x: x * torch.sigmoid(1.702 * x),
]


def drawn(*shape: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """One for each rank: rank ep * TP + tp."""
    return [(torch.rand(shape) - 0.5).to(dtype) for _ in range(RANKS)]


def on(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return [tensor.to(f"npu:{rank}") for rank, tensor in enumerate(tensors)]


def empty(*shape: int, dtype: torch.dtype) -> list[torch.Tensor]:
    return on([torch.full(shape, 7.0).to(dtype) for _ in range(RANKS)])


def near(actual: torch.Tensor, expected: torch.Tensor) -> None:
    tolerance = 2e-3 if actual.dtype == torch.float16 else 1.6e-2
    torch.testing.assert_close(actual.cpu().double(), expected, rtol=tolerance, atol=tolerance)


class Grid:
    """The communicators of each rank's row and column of the grid."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self.ep = [stack.enter_context(members([tp, TP + tp])) for tp in range(TP)]
        self.tp = [stack.enter_context(members([ep * TP, ep * TP + 1])) for ep in range(EP)]

    def of(self, rank: int) -> list[Any]:
        return [self.ep[rank % TP], self.tp[rank // TP], EP, TP]


def gathered(x: list[torch.Tensor], rank: int, shard: int) -> torch.Tensor:
    """The rows of the rank's experts, from all: by ep rank, within one by tp rank (rows) or beside one another (columns)."""
    experts = []
    for expert in range(rank // TP * OWN, (rank // TP + 1) * OWN):
        parts = [[x[ep * TP + tp][expert].double() for tp in range(TP)] for ep in range(EP)]
        experts.append(torch.cat([torch.cat(each, 1 if shard == 0 else 0) for each in parts]))
    return torch.stack(experts)


def gather_and_multiply(grid: Grid, dtype: torch.dtype, shard: int, activation: int, flat: bool | None) -> None:
    x = drawn(EXPERTS, ROWS, INNER // TP if shard == 0 else INNER, dtype=dtype)
    weight = drawn(OWN, INNER, COLUMNS, dtype=dtype)
    kind = torch.float32 if dtype == torch.bfloat16 else dtype
    bias = drawn(OWN, *([] if flat else [1]), COLUMNS, dtype=kind)
    rows = ROWS * EP * (1 if shard == 0 else TP)
    y = empty(OWN, rows, COLUMNS, dtype=dtype)
    all_rows, product = empty(OWN, rows, INNER, dtype=dtype), empty(OWN, rows, COLUMNS, dtype=dtype)
    # Weights lie transposed where there is no bias.
    given = on(weight) if flat is not None else [each.mT.contiguous().mT for each in on(weight)]
    a, b = on(x), on(bias)
    run_ranks(
        GATHER,
        [
            [
                a[r],
                given[r],
                None if flat is None else b[r],
                *grid.of(r),
                shard,
                activation,
                y[r],
                all_rows[r],
                product[r] if activation else None,
            ]
            for r in range(RANKS)
        ],
    )
    for r in range(RANKS):
        expected = gathered(x, r, shard)
        assert torch.equal(all_rows[r].cpu().double(), expected)
        made = expected @ weight[r].double()
        if flat is not None:
            made = made + bias[r].double().view(OWN, 1, COLUMNS)
        if activation:
            near(product[r], made)
        near(y[r], ACTIVATIONS[activation](made))


def multiply_and_scatter(grid: Grid, dtype: torch.dtype, shard: int, flat: bool | None) -> None:
    part = ROWS if shard == 0 else ROWS * TP
    x, weight = drawn(OWN, EP * part, INNER, dtype=dtype), drawn(OWN, INNER, COLUMNS, dtype=dtype)
    mine = COLUMNS // TP if shard == 0 else COLUMNS
    kind = torch.float32 if dtype == torch.bfloat16 else dtype
    bias = drawn(OWN, *([] if flat else [1]), mine, dtype=kind)
    a, b, c, out = on(x), on(weight), on(bias), empty(EXPERTS, ROWS, mine, dtype=dtype)
    run_ranks(SCATTER, [[a[r], b[r], None if flat is None else c[r], *grid.of(r), shard, out[r]] for r in range(RANKS)])
    for r in range(RANKS):
        to, tp = r // TP, r % TP
        for ep in range(EP):  # who multiplies: its experts are behind those of the ranks before
            total = sum(x[ep * TP + j].double() @ weight[ep * TP + j].double() for j in range(TP))
            assert isinstance(total, torch.Tensor)
            rows = total[:, to * part : (to + 1) * part]
            rows = rows[:, :, tp * mine : (tp + 1) * mine] if shard == 0 else rows[:, tp * ROWS : (tp + 1) * ROWS]
            if flat is not None:
                rows = rows + bias[ep * TP + tp].double().view(OWN, 1, mine)
            near(out[r][ep * OWN : (ep + 1) * OWN], rows)


def refused(grid: Grid) -> None:
    def half(*shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
        return torch.ones(shape, dtype=dtype, device="npu:0")

    ep, tp = grid.ep[0], grid.tp[0]
    x, weight, y = half(4, 3, 4), half(2, 8, 6), half(2, 6, 6)
    wide = half(2, 6, 8)
    good = [x, weight, None, ep, tp, 2, 2, 0, 0, y, None, None]
    assert refusal(GATHER, *good)[0] == 0
    rows, out = half(2, 6, 4), half(4, 3, 3)
    back = [rows, half(2, 4, 6), None, ep, tp, 2, 2, 0, out]
    assert refusal(SCATTER, *back)[0] == 0
    with group(4) as four:
        for name, usual, changes, code, words in (
            (GATHER, good, {3: ""}, NULL_ARGUMENT, "groupEp is empty"),
            (GATHER, good, {4: "x" * 128}, INVALID_ARGUMENT, "groupTp has 128 characters"),
            (GATHER, good, {0: half(4, 3, 4, dtype=torch.float32)}, INVALID_ARGUMENT, "x has dtype float32"),
            (GATHER, good, {1: half(2, 8, 6, dtype=torch.bfloat16)}, INVALID_ARGUMENT, "weight"),
            (GATHER, good, {5: 3}, INVALID_ARGUMENT, "epWorldSize is 3"),
            (GATHER, good, {7: 2}, INVALID_ARGUMENT, "xShardType is 2"),
            (GATHER, good, {8: 5}, INVALID_ARGUMENT, "actType is 5"),
            (GATHER, good, {0: half(4, 3, 3)}, INVALID_ARGUMENT, "x has shape"),
            (GATHER, good, {0: half(4, 0, 4), 9: half(2, 0, 6)}, INVALID_ARGUMENT, "no rows"),
            (GATHER, good, {2: half(2, 2, 6)}, INVALID_ARGUMENT, "biasOptional has shape"),
            (GATHER, good, {10: y}, INVALID_ARGUMENT, "y2OutOptional has shape"),
            (GATHER, good, {11: y}, INVALID_ARGUMENT, "y3OutOptional is given where actType is 0"),
            (GATHER, good, {4: ep}, TILING, "groupEp and groupTp are both"),
            (GATHER, good, {3: four}, INVALID_ARGUMENT, "epWorldSize is 2, its group has 4 ranks"),
            (GATHER, good, {10: wide, 8: 1, 11: y}, 0, ""),
            (SCATTER, back, {6: 5}, INVALID_ARGUMENT, "tpWorldSize is 5"),
            (SCATTER, back, {7: -1}, INVALID_ARGUMENT, "yShardType is -1"),
            (SCATTER, back, {1: half(2, 5, 6)}, INVALID_ARGUMENT, "weight has shape"),
            (SCATTER, back, {1: half(2, 4, 5)}, INVALID_ARGUMENT, "5 is no multiple of 2"),
            (SCATTER, back, {0: half(2, 5, 4)}, INVALID_ARGUMENT, "5 is no multiple of 2"),
            (SCATTER, back, {2: half(2, 6)}, INVALID_ARGUMENT, "biasOptional has shape"),
            (SCATTER, back, {8: half(4, 3, 6)}, INVALID_ARGUMENT, "out has shape"),
        ):
            arguments = [changes.get(i, each) for i, each in enumerate(usual)]
            status, message = refusal(name, *arguments)
            assert status == code and words in message, (name, changes, status, message)


def main() -> None:
    torch.manual_seed(0)
    with contextlib.ExitStack() as stack:
        grid = Grid(stack)
        for dtype in (torch.float16, torch.bfloat16):
            for shard in (0, 1):
                for flat in (None, False, True):
                    multiply_and_scatter(grid, dtype, shard, flat)
                    for activation in range(len(ACTIVATIONS)):
                        gather_and_multiply(grid, dtype, shard, activation, flat)
        refused(grid)
    print("all right")
