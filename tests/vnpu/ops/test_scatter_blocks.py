"""Rows from a table, blocks into lists and caches, and vLLM's step."""

import pytest
import torch
import torch_npu
from aclnn import INVALID_ARGUMENT, first_phase, run
from oracle import random

TILING_REFUSED = 561002


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool])
def test_gather_rows(dtype: torch.dtype) -> None:
    table = (random(5, 3, 2) * 4).to(dtype)
    index = torch.tensor([[4, 0, 2], [2, 2, 1]])
    out = torch.empty(2, 3, 3, 2, dtype=dtype, device="npu")
    run("aclnnGatherV3", table.npu(), 0, index.npu(), 0, 1, out)
    assert torch.equal(out.cpu(), table[index])
    run("aclnnGatherV3", table.npu().mT.contiguous().mT, 0, index.int().npu(), 0, 1, out)
    assert torch.equal(out.cpu(), table[index])
    assert torch.equal(torch_npu.npu_gather_sparse_index(table.npu(), index.npu()).cpu(), table[index])


@pytest.mark.parametrize(("dim", "batch", "mode"), [(1, 0, 1), (0, 1, 1), (0, 0, 0)])
def test_other_gathers_are_of_other_chips(dim: int, batch: int, mode: int) -> None:
    table, index = torch.ones(2, 3).npu(), torch.zeros(2, dtype=torch.int64).npu()
    out = torch.empty(2, 3).npu()
    assert first_phase("aclnnGatherV3", table, 0, index, 0, 1, out)[0] == 0
    assert first_phase("aclnnGatherV3", table, dim, index, batch, mode, out)[0] == INVALID_ARGUMENT


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int8])
@pytest.mark.parametrize("axis", [-2, -1])
@pytest.mark.parametrize("lengths", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_scatter_list(dtype: torch.dtype, axis: int, lengths: bool, masked: bool) -> None:
    variables = [(random(2, 6, 8, seed=i) * 20).to(dtype) for i in range(3)]
    updates = (random(3, 2, 2, 8, seed=9) * 20).to(dtype)
    if axis == -1:
        updates = updates.mT.contiguous()
        variables = [each.mT.contiguous() for each in variables]
    starts, counts = torch.tensor([0, 4, 2]), torch.tensor([2, 1, 0])
    indices = torch.stack([starts, counts], 1) if lengths else starts
    mask = torch.tensor([1, 0, 1], dtype=torch.uint8) if masked else None
    expected = [each.clone() for each in variables]
    for i, each in enumerate(expected):
        if mask is None or mask[i]:
            count = int(counts[i]) if lengths else 2
            each.narrow(axis, int(starts[i]), count).copy_(updates[i].narrow(axis, 0, count))
    device = [each.npu() for each in variables]
    where = None if mask is None else mask.npu()
    found = torch_npu.npu_scatter_list(device, indices.npu(), updates.npu(), where, "update", axis)
    assert all(torch.equal(each.cpu(), right) for each, right in zip(found, expected, strict=True))
    torch_npu.npu_scatter_list_(device, indices.npu(), updates.npu(), where, "update", axis)
    assert all(torch.equal(each.cpu(), right) for each, right in zip(device, expected, strict=True))


def test_a_list_that_does_not_fit() -> None:
    def said(rows: int, axis: int, reduce: str = "update") -> int:
        lists = [torch.ones(2, 4, 8).npu() for _ in range(rows)]
        index, updates = torch.zeros(3, dtype=torch.int64).npu(), torch.ones(3, 2, 1, 8).npu()
        return first_phase("aclnnScatterList", lists, index, updates, None, reduce, axis)[0]

    assert said(3, -2) == 0
    assert said(2, -2) == TILING_REFUSED and said(3, 0) == TILING_REFUSED
    assert said(3, -2, "add") == INVALID_ARGUMENT


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("offset", [False, True])
def test_quant_scatter(dtype: torch.dtype, offset: bool) -> None:
    half = dtype == torch.float16
    cache = torch.randint(-128, 127, (3, 5, 32), dtype=torch.int8)
    updates = random(2, 2, 32, low=-40, high=40).to(dtype)
    scale = random(1, 1, 32, low=0.25, high=2, seed=1).to(torch.float32 if half else dtype)
    zero = random(1, 1, 32, low=-9, high=9, seed=2).round().to(torch.int32 if half else dtype)
    value = updates.double() / scale.double() + (zero.double() if offset else 0)
    expected = cache.double()
    for row, start in enumerate((3, 0)):
        expected[row, start : start + 2] = value[row].clamp(-128, 127)
    places = torch.tensor([3, 0]).npu()
    arguments = (places, updates.npu(), scale.npu(), zero.npu() if offset else None, -2, -1, "update")
    found = torch_npu.npu_quant_scatter(cache.npu(), *arguments)
    assert bool(((found.cpu().double() - expected).abs() <= 0.502).all())
    in_place = cache.npu()
    torch_npu.npu_quant_scatter_(in_place, *arguments)
    assert torch.equal(in_place, found)


def test_quant_scatter_refuses() -> None:
    cache, places = torch.zeros(2, 4, 32, dtype=torch.int8).npu(), torch.zeros(2, dtype=torch.int32).npu()
    updates, scale = torch.ones(2, 1, 32, dtype=torch.float16).npu(), torch.ones(1, 1, 32).npu()
    name = "aclnnInplaceQuantScatter"
    assert first_phase(name, cache, places, updates, scale, None, -2, -1, 1)[0] == 0
    assert first_phase(name, cache, places, updates, scale.bfloat16(), None, -2, -1, 1)[0] == INVALID_ARGUMENT
    assert first_phase(name, cache, places, updates, scale, None, -1, -1, 1)[0] == TILING_REFUSED
    narrow = [each[..., :16].contiguous() for each in (cache, updates, scale)]
    assert first_phase(name, narrow[0], places, *narrow[1:], None, -2, -1, 1)[0] == TILING_REFUSED


def test_advance_step() -> None:
    """Three queries and two rows that fill up the batch, of which the first is cleared: CANN's kernel leaves the rest."""
    tokens, positions = torch.arange(5) + 10, torch.arange(5) + 20
    lengths, slots = torch.tensor([3, 8, 5, 7, 9]), torch.full((5,), 77)
    sampled, tables = torch.tensor([[1], [2], [3]]), torch.arange(15).view(5, 3) + 100
    device = [each.npu() for each in (tokens, sampled, positions, lengths, slots, tables)]
    torch_npu.npu_advance_step_flashattn(*device, 5, 3, 4)
    flat = tables.flatten()
    expected = [(int(flat[length // 4]) + 3 * row) * 4 + length % 4 for row, length in enumerate((3, 8, 5))]
    assert device[0].cpu().tolist() == [1, 2, 3, 0, 14]
    assert device[2].cpu().tolist() == [3, 8, 5, 0, 24]
    assert device[3].cpu().tolist() == [4, 9, 6, 7, 9]
    assert device[4].cpu().tolist() == [*expected, -1, 77]
    assert first_phase("aclnnAdvanceStep", *device, 5, 3, 4)[0] == 0
    assert first_phase("aclnnAdvanceStep", *device, 5, 5, 4)[0] == TILING_REFUSED


@pytest.mark.parametrize("guessed", [0, 2])
def test_advance_step_with_guesses(guessed: int) -> None:
    rows, each, block = 3, guessed + 1, 4
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(1, 50, (rows * each,), generator=generator)
    sampled = torch.randint(1, 50, (rows, each), generator=generator)
    if guessed:
        sampled[0] = -1  # none at all
        sampled[1, 1:] = -1
        sampled[2, 2:] = -1
    positions = torch.randint(0, 9, (rows * each,), generator=generator)
    accepted, spec = torch.tensor([2, 0, 1]), torch.randint(1, 50, (rows, guessed), generator=generator)
    tables = torch.arange(rows * 4).view(rows, 4) + 100
    slots, lengths = torch.zeros(rows * each, dtype=torch.int64), torch.zeros(rows * each, dtype=torch.int64)
    device = [one.npu() for one in (tokens, sampled, positions, lengths, slots, tables)]
    torch_npu.npu_advance_step_flashattn(
        *device, rows, rows, block, spec_token=spec.npu(), accepted_num=accepted.npu()
    )
    places = [int(positions[i]) + int(accepted[i // each]) + 1 for i in range(rows * each)]
    last = [int([*row, -1][[*row, -1].index(-1) - 1]) for row in sampled.tolist()]
    assert device[2].cpu().tolist() == places
    assert device[3].cpu().tolist() == [place + 1 for place in places]
    assert device[0].cpu().tolist() == [token for i in range(rows) for token in (last[i], *spec[i].tolist())]
    assert device[4].cpu().tolist() == [
        int(tables[i // each, place // block]) * block + place % block for i, place in enumerate(places)
    ]


@pytest.mark.parametrize("inner", [False, True])
def test_add_lora(inner: bool) -> None:
    rows, rank, width = 5, 16, 32
    y, x = random(rows, 64).half(), random(rows, 48 if inner else rank, seed=1).half()
    a, b = random(3, 2, rank, 48, seed=2).half(), random(3, 2, width, rank, seed=3).half()
    indices = torch.tensor([2, 0, 3, -1, 2], dtype=torch.int32)  # 3 and -1 name no weights
    expected = y.double()
    for row, which in enumerate(indices.tolist()):
        if 0 <= which < 3:
            between = (x[row].double() @ a[which, 1].double().T).half().double() if inner else x[row].double()
            expected[row, 8 : 8 + width] += between @ b[which, 1].double().T * 0.5
    out = torch_npu.npu_batch_gather_matmul_(  # the one that is not in place returns y as it was
        y.npu(), x.npu(), b.npu(), indices.npu(), a.npu() if inner else None,
        layer_idx=1, scale=0.5, y_offset=8, y_slice_size=width,
    )  # fmt: skip
    torch.testing.assert_close(out.cpu(), expected.half(), rtol=2e-3, atol=4e-3)


def test_add_lora_refuses_what_has_no_plan() -> None:
    def said(layer: int, width: int) -> int:
        half = torch.float16
        y, x = torch.ones(2, 32, dtype=half).npu(), torch.ones(2, 16, dtype=half).npu()
        b, index = torch.ones(2, 1, 32, 16, dtype=half).npu(), torch.zeros(2, dtype=torch.int32).npu()
        return first_phase("aclnnAddLora", y, x, b, index, None, layer, 1.0, 0, width, y)[0]

    assert said(0, 32) == 0
    assert said(1, 32) == TILING_REFUSED and said(0, 16) == TILING_REFUSED
