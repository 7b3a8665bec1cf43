"""Where tokens and experts go, from loops over the definitions."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch_npu
from aclnn import first_phase
from forked import python

OPS = str(Path(__file__).parents[1])
TILING, NO_KERNEL = 561002, 561003
HALF = torch.float16


def routed(numbers: torch.Tensor) -> list[int]:
    """Which row comes where: by expert, then by the rank that it came from."""
    starts, row = {}, 0
    for rank in range(numbers.size(0)):
        for expert in range(numbers.size(1)):
            starts[rank, expert] = row
            row += int(numbers[rank, expert])
    return [
        starts[rank, expert] + i
        for expert in range(numbers.size(1))
        for rank in range(numbers.size(0))
        for i in range(int(numbers[rank, expert]))
    ]


@pytest.mark.parametrize("dtype", [HALF, torch.bfloat16, torch.int8])
@pytest.mark.parametrize("counts", [torch.int32, torch.int64])
@pytest.mark.parametrize("scaled", [True, False])
def test_tokens_are_sorted_by_expert(dtype: torch.dtype, counts: torch.dtype, scaled: bool) -> None:
    numbers = torch.randint(0, 4, (3, 5), dtype=counts)
    rows = int(numbers.sum())
    tokens = torch.randint(-9, 9, (rows, 7)).to(dtype)
    scales = torch.rand(rows)
    order = torch.tensor(routed(numbers))
    permuted, permuted_scales, index, total = torch_npu.npu_moe_re_routing(
        tokens.npu(), numbers.npu(), per_token_scales=scales.npu() if scaled else None
    )
    assert torch.equal(permuted.cpu(), tokens[order])
    assert torch.equal(index.cpu(), order.int())
    assert torch.equal(total.cpu(), numbers.sum(0).to(counts))
    if scaled:
        assert torch.equal(permuted_scales.cpu(), scales[order])


def test_no_tokens() -> None:
    numbers = torch.zeros(2, 3, dtype=torch.int32).npu()
    permuted, _, index, total = torch_npu.npu_moe_re_routing(torch.empty(0, 4, dtype=HALF).npu(), numbers)
    assert permuted.shape == (0, 4) and index.shape == (0,) and total.tolist() == [0, 0, 0]


@pytest.mark.parametrize(("kind", "index", "code"), [(1, 0, 0), (0, 0, TILING), (1, 1, TILING)])
def test_kinds_of_numbers_and_indices(kind: int, index: int, code: int) -> None:
    tokens, numbers = torch.ones(4, 8, dtype=HALF).npu(), torch.ones(2, 2, dtype=torch.int32).npu()
    places, total = torch.empty(4, dtype=torch.int32).npu(), torch.empty(2, dtype=torch.int32).npu()
    status, message = first_phase(
        "aclnnMoeReRouting", tokens, numbers, None, kind, index, tokens.clone(), None, places, total
    )
    assert status == code, message


# --- on A3, which alone has it

UPDATE = f"""
from torchport import vnpu
vnpu.activate(force=True)
import sys
sys.path.insert(0, {OPS!r})
import torch, torch_npu
from aclnn import first_phase
torch.manual_seed(0)
ranks, experts, tokens, k = 5, 6, 9, 4
table = torch.zeros(experts, ranks + 1, dtype=torch.int32)
for expert in range(experts):
    copies = expert % ranks + 1
    table[expert, 0] = copies
    table[expert, 1 : copies + 1] = torch.randperm(20)[:copies]
for kind in (torch.int32, torch.int64):
    chosen = torch.randint(0, experts, (tokens, k)).to(kind)
    for mode in (0, 1):
        for rank in range(ranks):
            expected = torch.empty_like(chosen)
            for token in range(tokens):
                for i in range(k):
                    row = table[chosen[token, i]].tolist()
                    share = -(-ranks // row[0])
                    expected[token, i] = row[1 + (rank // share if mode == 0 else token % row[0])] if row[0] > 1 else row[1]
            got, _ = torch_npu.npu_moe_update_expert(
                chosen.npu(), table.npu(), local_rank_id=rank, world_size=ranks, balance_mode=mode)
            assert torch.equal(got.cpu(), expected), (kind, mode, rank)
for dtype in (torch.float16, torch.bfloat16, torch.float32):
    scales = torch.rand(tokens, k).sort(1, descending=True)[0].to(dtype)
    threshold = torch.tensor([0.1, 0.2, 0.25, 0.15])
    stays = scales.double() >= threshold.double() * scales.double().sum(1, keepdim=True)
    active = torch.arange(tokens) < 6
    for mask in (None, active):
        _, kept = torch_npu.npu_moe_update_expert(
            chosen.npu(), table.npu(), expert_scales=scales.npu(), pruning_threshold=threshold.npu(),
            active_mask=None if mask is None else mask.npu(), local_rank_id=0, world_size=ranks)
        assert torch.equal(kept.cpu(), stays if mask is None else stays & active[:, None]), dtype
out, mask = chosen.npu(), torch.ones(tokens, k, dtype=torch.bool).npu()
for rank, scales, code in ((0, None, 0), (5, None, {TILING}), (0, torch.ones(tokens, k).npu(), {TILING})):
    status, message = first_phase("aclnnMoeUpdateExpert", chosen.npu(), table.npu(), scales, None, None, rank, ranks, 0, out, mask)
    assert status == code, message
print("all right")
"""


def test_experts_with_copies() -> None:
    ended = python(UPDATE, VNPU_SOC="Ascend910_9391")
    assert ended.stdout.splitlines()[-1:] == ["all right"], ended.stderr


def test_a_910b_has_no_experts_with_copies() -> None:
    chosen, table = torch.zeros(2, 2, dtype=torch.int32).npu(), torch.ones(4, 3, dtype=torch.int32).npu()
    kept = torch.ones(2, 2, dtype=torch.bool).npu()
    status, message = first_phase(
        "aclnnMoeUpdateExpert", chosen, table, None, None, None, 0, 2, 0, chosen.clone(), kept
    )
    assert status == NO_KERNEL and "A3 (Ascend910_93...) only" in message, message
