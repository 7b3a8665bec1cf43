"""moe/workers.cpp: what ranks of attention and ranks of experts hand each other by a table of addresses."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest
import torch
import torch_npu
from aclnn import first_phase
from forked import python
from oracle import random

FOLDERS = [str(folder) for folder in Path(__file__).parents[:2]]

EXPERTS, WIDTH = 5, 8  # of a token's rows the last is the shared expert's
MASKED = 2**31 - 1
Table = dict[str, Any]

# Where the fields stand, and their types.
FIELDS = {
    "sessions": (0, ctypes.c_uint32),
    "micro_batches": (4, ctypes.c_uint32),
    "micro_batch_size": (8, ctypes.c_uint32),
    "rows": (12, ctypes.c_uint32),
    "row_bytes": (20, ctypes.c_uint32),
    "attention_info": (256, ctypes.c_uint64),
    "attention_data": (272, ctypes.c_uint64),
    "attention_batch": (288, ctypes.c_uint32),
    "info": (384, ctypes.c_uint64),
    "data": (400, ctypes.c_uint64),
    "polling": (416, ctypes.c_uint64),
    "session_ids": (528, ctypes.c_uint64),
    "micro_batch_ids": (544, ctypes.c_uint64),
    "expert_ids": (560, ctypes.c_uint64),
    "sessions_out": (576, ctypes.c_uint32),
}


def table(**fields: Any) -> torch.Tensor:
    """The table on the NPU; a tensor stands for its address."""
    content = bytearray(1024)
    for name, value in fields.items():
        offset, kind = FIELDS[name]
        number = value.data_ptr() if isinstance(value, torch.Tensor) else value
        kind.from_buffer(content, offset).value = number
    return torch.frombuffer(content, dtype=torch.int8).clone().npu()


def field(context: torch.Tensor, name: str) -> int:
    offset, kind = FIELDS[name]
    return int(kind.from_buffer(bytearray(context.cpu().numpy().tobytes()), offset).value)


def combined(rows: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    rows = rows.double()
    return (rows[:, :-1] * scales.double().unsqueeze(-1)).sum(1) + rows[:, -1]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_combine_weighs_the_experts_and_adds_the_shared_one(dtype: torch.dtype) -> None:
    data = random(2, 3, EXPERTS, WIDTH).to(dtype)
    scales = random(3, EXPERTS - 1, seed=1).float()
    on_npu = data.npu()
    context = table(micro_batches=2, attention_data=on_npu, attention_batch=1)
    layer = torch.tensor([7], dtype=torch.int32, device="npu")
    kind = int(dtype == torch.bfloat16)
    y, after = torch_npu.npu_attention_worker_combine(context, scales.npu(), layer, WIDTH, token_dtype=kind)
    expected = combined(data[1], scales)
    ulp = torch.finfo(dtype).eps * expected.abs().max()
    assert (y.cpu().double() - expected).abs().max() <= ulp
    assert y.dtype == dtype
    assert after.tolist() == [8]
    assert field(context, "attention_batch") == 1


def test_combine_waits_for_its_micro_batch_and_clears_its_flags() -> None:
    data, scales = random(2, 3, EXPERTS, WIDTH).half(), random(3, EXPERTS - 1, seed=1).float()
    on_npu, flags = data.npu(), torch.zeros(2, 3, EXPERTS, dtype=torch.int32, device="npu")
    context = table(micro_batches=2, attention_data=on_npu, attention_info=flags, attention_batch=0)
    layer, on = torch.zeros(1, dtype=torch.int32, device="npu"), scales.npu()
    torch.npu.synchronize()
    y, _ = torch_npu.npu_attention_worker_combine(context, on, layer, WIDTH, need_schedule=1)
    assert not torch.npu.current_stream().query()  # nothing has come
    with torch.npu.stream(torch.npu.Stream()):
        flags.fill_(1)
    torch.npu.synchronize()
    assert (y.cpu().double() - combined(data[1], scales)).abs().max() < 1e-2
    assert flags[1].sum().item() == 0
    assert flags[0].sum().item() == flags[0].numel()
    assert field(context, "attention_batch") == 1


def expected_batches(experts: torch.Tensor, sessions: list[int], batches: list[int]) -> list[tuple[int, ...]]:
    """(expert, session, micro batch, token, row) in the order of the experts; equal ones in that of arrival."""
    found = []
    for a, of_session in enumerate(experts.tolist()):
        for place, expert in enumerate(of_session):
            if expert < 1_000_000:
                found.append((expert, sessions[a], batches[a], place // EXPERTS, place % EXPERTS))
    return sorted(found, key=lambda one: one[0])


@pytest.mark.parametrize("schedule", [0, 1])
@pytest.mark.parametrize("kind", [0, 1, 2])
def test_batching_sorts_what_has_come_by_expert(kind: int, schedule: int) -> None:
    """kind: the token_dtype, of which 2 is int8 with a scale behind each row."""
    sessions, batches, size, experts = 3, 2, 2, 4
    dtype = (torch.float16, torch.bfloat16, torch.int8)[kind]
    used = WIDTH * dtype.itemsize
    generator = torch.Generator().manual_seed(kind)
    ids = torch.randint(0, experts, (sessions, size * EXPERTS), dtype=torch.int32, generator=generator)
    ids[1, 3] = MASKED
    values = torch.randint(-100, 100, (sessions, batches, size, EXPERTS, WIDTH), generator=generator).to(dtype)
    scales = torch.rand(sessions, batches, size, EXPERTS, generator=generator)
    data = torch.zeros(sessions, batches, size, EXPERTS, used + 8, dtype=torch.uint8)
    data[..., :used] = values.view(torch.uint8).reshape(*data.shape[:-1], used)
    data[..., used : used + 4] = scales.unsqueeze(-1).view(torch.uint8)
    kept = [data.npu()]
    about: Table = {
        "sessions": sessions,
        "micro_batches": batches,
        "micro_batch_size": size,
        "rows": EXPERTS,
        "row_bytes": used + 8,
        "data": kept[0],
    }
    if schedule:
        info = torch.zeros(sessions, batches, 2 + size * EXPERTS, dtype=torch.int32)
        info[:, 1, 0], info[:, 1, 2:] = 1, ids
        kept.append(info.npu())
        about |= {"info": kept[1], "polling": 1}
        order = expected_batches(ids, [0, 1, 2], [1, 1, 1])
    else:
        kept += [torch.tensor(one, dtype=torch.int32).npu() for one in ([2, 0], [0, 1])]
        kept.append(ids[:2].contiguous().npu())
        about |= dict(zip(("session_ids", "micro_batch_ids", "expert_ids"), kept[1:], strict=True))
        about["sessions_out"] = 2
        order = expected_batches(ids[:2], [2, 0], [0, 1])
    context = table(**about)
    y, groups, of_session, of_batch, token, row, scale, total = torch_npu.npu_ffn_worker_batching(
        context, experts + 1, [sessions, size, EXPERTS, WIDTH], token_dtype=kind, need_schedule=schedule
    )
    count = len(order)
    assert total.tolist() == [count]
    columns = [one[:count].tolist() for one in (of_session, of_batch, token, row)]
    assert list(zip(*columns, strict=True)) == [one[1:] for one in order]
    at = tuple(torch.tensor(column) for column in columns)
    assert torch.equal(y[:count].cpu(), values[at])
    counts = torch.tensor([one[0] for one in order]).bincount(minlength=experts).tolist()
    listed = [[expert, number] for expert, number in enumerate(counts) if number]
    assert groups.tolist() == listed + [[0, 0]] * (experts + 1 - len(listed))
    if kind == 2:
        assert torch.equal(scale[:count].cpu(), scales[at])
    if schedule:
        assert field(context, "polling") == 0
        assert kept[1][:, 1, 0].tolist() == [0, 0, 0]
        assert kept[1][:, 1, 2:].eq(MASKED).all()


def test_what_the_first_phases_refuse() -> None:
    def i(*shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
        return torch.zeros(shape, dtype=dtype, device="npu")

    context, half, f = (i(1024, dtype=torch.int8), i(3, WIDTH, dtype=torch.float16), i(3, 4, dtype=torch.float32))
    good = [context, f, i(1), WIDTH, 0, 0, half, i(1)]
    assert first_phase("aclnnAttentionWorkerCombine", *good)[0] == 0
    for place, wrong, words in (
        (0, i(1000, dtype=torch.int8), "scheduleContext"),
        (4, 1, "y has dtype"),
        (5, 2, "needSchedule is 2"),
        (3, WIDTH + 1, "parameter y"),
    ):
        status, message = first_phase("aclnnAttentionWorkerCombine", *good[:place], wrong, *good[place + 1 :])
        assert status != 0
        assert words in message, (place, message)


def test_an_address_that_is_no_memory_is_an_error() -> None:
    """Hardware's core would stop at it."""
    result = python(
        f"""
import sys
sys.path[:0] = {FOLDERS!r}
from test_moe_workers import *
context = table(micro_batches=1, attention_data=0x5000)
layer, scales = torch.zeros(1, dtype=torch.int32).npu(), torch.ones(3, EXPERTS - 1).npu()
torch_npu.npu_attention_worker_combine(context, scales, layer, WIDTH)
torch.npu.synchronize()
"""
    )
    assert result.returncode == 1
    assert "attention.token_data_buf" in result.stderr
