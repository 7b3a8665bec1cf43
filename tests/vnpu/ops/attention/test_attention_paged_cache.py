"""Tokens into and out of a paged cache, against loops."""

from typing import Any

import pytest
import torch
import torch_npu
from aclnn import INVALID_ARGUMENT, first_phase
from oracle import random

BLOCKS, SIZE, HEADS, WIDTHS = 4, 16, 2, (32, 16)
DTYPES = [torch.float16, torch.bfloat16, torch.int8]


def fractals(cache: torch.Tensor) -> torch.Tensor:
    """[blocks, size, heads, width] as [blocks, heads * width / w, size, w]."""
    inner = 32 if cache.element_size() == 1 else 16
    return cache.flatten(2).unflatten(2, (-1, inner)).transpose(1, 2).contiguous()


def numbers(*shape: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    return random(*shape, low=-99, high=99, seed=seed).round().to(dtype)


def caches(dtype: torch.dtype) -> list[torch.Tensor]:
    widths = (64, 32) if dtype == torch.int8 else WIDTHS
    return [numbers(BLOCKS, SIZE, HEADS, w, dtype=dtype, seed=i) for i, w in enumerate(widths)]


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float32, torch.int32, torch.uint8])
@pytest.mark.parametrize("mode", ["Norm", "PA_NZ", None])
@pytest.mark.parametrize("slots", [torch.int32, torch.int64])
def test_scatter(dtype: torch.dtype, mode: str | None, slots: torch.dtype) -> None:
    """A negative slot is padding."""
    expected = caches(dtype)
    tokens = [numbers(5, HEADS, c.shape[3], dtype=dtype, seed=9) for c in expected]
    places = torch.tensor([63, 0, -1, 17, 32], dtype=slots)
    form: Any = fractals if mode == "PA_NZ" else torch.clone
    before = [form(c).npu() for c in expected]
    for cache, rows in zip(expected, tokens, strict=True):
        for row, slot in zip(rows, places.tolist(), strict=True):
            if slot >= 0:
                cache[slot // SIZE, slot % SIZE] = row
    on_npu = [t.npu() for t in tokens]
    copies = torch_npu.npu_scatter_pa_kv_cache_functional(*on_npu, *before, places.npu(), cache_mode=mode)
    torch_npu.npu_scatter_pa_kv_cache(*on_npu, *before, places.npu(), cache_mode=mode)
    for found in (copies, before):
        for a, e in zip(found, expected, strict=True):
            assert torch.equal(a.cpu(), form(e))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("running", [False, True])
@pytest.mark.parametrize("offset", [False, True])
def test_gather(dtype: torch.dtype, running: bool, offset: bool) -> None:
    """A block that is none of the cache's gives zeros."""
    key, value = caches(dtype)
    table = torch.tensor([[1, 3, 0], [2, -1, 9]], dtype=torch.int32)
    lengths, first = [20, 37], [16, 0] if offset else [0, 0]
    expected = []
    for cache in (key, value):
        rows = []
        for b, length in enumerate(lengths):
            for j in range(length):
                column = first[b] // SIZE + j // SIZE
                block = int(table[b, column]) if column < 3 else -1
                rows.append(cache[block, j % SIZE] if 0 <= block < BLOCKS else torch.zeros_like(cache[0, 0]))
        expected.append(torch.stack(rows))
    given = torch.tensor([0, 20, 57] if running else lengths, dtype=torch.int32).npu()
    out = [torch.full_like(e, 7).npu() for e in expected]
    options: dict[str, Any] = {"is_seq_lens_cumsum": running}
    if offset:
        options["seq_offset"] = torch.tensor(first, dtype=torch.int32).npu()
    torch_npu.npu_gather_pa_kv_cache(key.npu(), value.npu(), table.npu(), given, *out, **options)
    copies = torch_npu.npu_gather_pa_kv_cache_functional(key.npu(), value.npu(), table.npu(), given, *out, **options)
    for found in (out, copies):
        for a, e in zip(found, expected, strict=True):
            assert torch.equal(a.cpu(), e)


def test_refusals() -> None:
    key, value = (c.npu() for c in caches(torch.float16))
    rows = [torch.ones(3, HEADS, w).half().npu() for w in WIDTHS]
    slots = torch.arange(3).int().npu()
    right = [rows[0], key, slots, rows[1], value, None, None, None, "Norm", "None", None, None]
    assert first_phase("aclnnScatterPaKvCache", *right) == (0, "")
    for place, wrong, words in (
        (0, rows[1], "does not fit"),
        (2, slots[:2], "slotMapping has shape [2]"),
        (5, slots, "does not compress"),
        (8, "NZ", 'cacheMode is "NZ"'),
        (9, "Rope", 'scatterModeOptional is "Rope"'),
    ):
        status, message = first_phase("aclnnScatterPaKvCache", *right[:place], wrong, *right[place + 1 :])
        assert status == INVALID_ARGUMENT and words in message, message
    table, lengths = torch.zeros(2, 1).int().npu(), torch.ones(2).int().npu()
    gathered = [key, value, table, lengths, rows[0], rows[1], None, "Norm", False]
    assert first_phase("aclnnGatherPaKvCache", *gathered) == (0, "")
    for place, wrong, words in ((5, rows[1][:2], "the key"), (8, True, "seqLens has shape [2]")):
        status, message = first_phase("aclnnGatherPaKvCache", *gathered[:place], wrong, *gathered[place + 1 :])
        assert status == INVALID_ARGUMENT and words in message, message
