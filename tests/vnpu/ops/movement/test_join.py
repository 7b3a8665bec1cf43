"""movement/join.cpp: cat, stack, split, flip, roll, repeat, unfold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from aclnn import refused, run
from oracle import DEVICE, check, compare, layouts, random

FUNCTIONS: list[Callable[..., Any]] = [
    lambda x, y: torch.cat([x, y], 0),
    lambda x, y: torch.cat([x, y, x], -1),
    lambda x, y: torch.stack([x, y]),
    lambda x, y: torch.stack([x, y], -1),
    lambda x, y: torch.stack([x, y], 1),
    lambda x, y: x.flip(0),
    lambda x, y: x.flip(0, 1),
    lambda x, y: x.flip(-1),
    lambda x, y: torch.stack([x, y]).flip(0, 2),
    lambda x, y: x.roll(1, 0),
    lambda x, y: x.roll((2, -1), (0, 1)),
    lambda x, y: x.roll(3),
    lambda x, y: x.repeat(2, 3),
    lambda x, y: x.repeat(2, 1, 2),
    lambda x, y: x.repeat_interleave(2, 0),
    lambda x, y: x.repeat_interleave(3),
    lambda x, y: x.unfold(1, 2, 1),
    lambda x, y: x.unfold(0, 3, 2),
    lambda x, y: torch.chunk(x, 2, 1),
    lambda x, y: torch.split(x, [1, 2], 0),
    lambda x, y: x.permute(1, 0).reshape(-1),
    lambda x, y: torch.tile(x, (2,)),
    lambda x, y: torch.hstack([x, y]),
]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_values_and_gradients(function: Callable[..., Any]) -> None:
    x, y = random(3, 4), random(3, 4, seed=1)
    check(function, x, y)
    check(function, (x * 9).int(), (y * 9).int(), grad=False)
    check(function, x > 0, y > 0, grad=False)
    for view in layouts(x):
        check(function, view, y.t().contiguous().t(), dtypes=[torch.float32], grad=False)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.float64, torch.complex64, torch.complex128])
def test_flips_move_elements_of_every_size(dtype: torch.dtype) -> None:
    x = random(3, 50, low=0, high=100).to(dtype)
    out = torch.empty_like(x, device=DEVICE).t()  # rows of it are columns in memory
    run("aclnnFlip", x.to(DEVICE), [1], out.t())
    assert torch.equal(out.t().cpu(), x.flip(1))
    run("aclnnFlip", x.t().to(DEVICE), [0, 1], out)
    assert torch.equal(out.cpu(), x.t().flip(0, 1))


def test_zero_size() -> None:
    check(lambda x, y: torch.cat([x, y]), random(0, 4), random(2, 4))
    check(lambda x, y: torch.cat([x, y]), random(0), random(2, 4))
    check(lambda x: torch.stack([x, x]), random(0, 4))
    check(lambda x: torch.stack([x, x]), random())
    check(lambda x: x.flip(0), random(0, 4))
    check(lambda x: x.flip(0), random(4, 0), grad=False)
    check(lambda x: torch.flip(x, ()), random())
    check(lambda x: x.repeat(2, 0), random(3, 4), grad=False)
    check(lambda x: x.repeat(3), random())


def test_cat_promotes() -> None:
    x = torch.cat([torch.ones(2, dtype=torch.float16, device=DEVICE), torch.ones(1, device=DEVICE)])
    assert x.dtype == torch.float32
    assert x.tolist() == [1, 1, 1]


@pytest.mark.parametrize("chunks", [1, 2, 3, 7])
def test_chunk_cat(chunks: int) -> None:
    """What FSDP2 lays its gradients out with: rows that do not divide evenly are padded with zeros."""
    tensors = [random(5, 3), random(4), random(1, 2, 2)]

    def reference(tensor: torch.Tensor) -> torch.Tensor:
        rows = -(-len(tensor) // chunks)
        padded = torch.zeros(rows * chunks, *tensor.shape[1:], dtype=tensor.dtype)
        padded[: len(tensor)] = tensor
        return padded.reshape(chunks, -1)

    got = torch._chunk_cat([tensor.to(DEVICE) for tensor in tensors], 0, chunks)
    torch.testing.assert_close(got.cpu(), torch.cat([reference(tensor) for tensor in tensors], 1).to(got.dtype))
    wide = torch.empty(got.shape, dtype=torch.float32, device=DEVICE)
    torch._chunk_cat([tensor.half().to(DEVICE) for tensor in tensors], 0, chunks, out=wide)
    expected = torch.cat([reference(tensor.half()) for tensor in tensors], 1).float()
    torch.testing.assert_close(wide.cpu(), expected, rtol=0, atol=0)


def test_repeat_each_by_its_own_count() -> None:
    counts = torch.tensor([2, 0, 3])
    check(lambda x: x.repeat_interleave(counts.to(x.device), 0), random(3, 2), grad=False)
    check(lambda x: x.repeat_interleave(counts.to(x.device)), random(3), grad=False)
    compare(torch.repeat_interleave(counts.to(DEVICE)), torch.repeat_interleave(counts), torch.int64)


def test_channel_shuffle() -> None:
    check(lambda x: torch.nn.functional.channel_shuffle(x, 3), random(2, 6, 3), grad=False)


def test_by_c_name() -> None:
    x = random(5, 2).float()
    parts = [torch.empty(1, 2, device=DEVICE), torch.empty(4, 2, device=DEVICE)]
    run("aclnnSplitWithSize", x.to(DEVICE), [1, 4], 0, parts)
    assert torch.equal(torch.cat([part.cpu() for part in parts]), x)
    counts, out = torch.tensor([2, 0, 1, 0, 1], device=DEVICE), torch.empty(4, 2, device=DEVICE)
    run("aclnnRepeatInterleaveWithDim", x.to(DEVICE), counts, 0, 4, out)
    assert torch.equal(out.cpu(), x[[0, 0, 2, 4]])
    flat = torch.empty(4, device=DEVICE)
    run("aclnnRepeatInterleave", x[:, 0].contiguous().to(DEVICE), counts, 4, flat)
    assert torch.equal(flat.cpu(), x[[0, 0, 2, 4], 0])
    twice = torch.empty(10, 2, device=DEVICE)
    run("aclnnRepeatInterleaveIntWithDim", x.to(DEVICE), 2, 0, 10, twice)
    assert torch.equal(twice.cpu(), x.repeat_interleave(2, 0))
    flat = torch.empty(20, device=DEVICE)
    run("aclnnRepeatInterleaveInt", x.to(DEVICE), 2, 20, flat)
    assert torch.equal(flat.cpu(), x.repeat_interleave(2))
    which = torch.empty(4, dtype=torch.int64, device=DEVICE)
    run("aclnnRepeatInterleaveTensor", counts, 4, which)
    assert which.tolist() == [0, 0, 2, 4]
    out = torch.empty(2, 6, 3, device=DEVICE)
    x = random(2, 6, 3).float()
    run("aclnnChannelShuffle", x.to(DEVICE), 3, out)
    assert torch.equal(out.cpu(), torch.channel_shuffle(x, 3))


def test_refused() -> None:
    x = torch.ones(2, 3, device=DEVICE)
    assert "out has shape [2, 3], expected [4, 3]" in refused("aclnnCat", [x, x], 0, x)
    assert "which differ outside dim 0" in refused("aclnnCat", [x, x[:, :1]], 0, x)
    assert "dim is 5" in refused("aclnnCat", [x, x], 5, x)
    assert "expected [2, 3]" in refused("aclnnStack", [x, x[:1]], 0, x)
    assert "repeats has 1 values" in refused("aclnnRepeat", x, [2], x)
    assert "dim is 2" in refused("aclnnFlip", x, [2], x)
    assert "shifts has 2 values, dims has 1" in refused("aclnnRoll", x, [1, 1], [0], x)
    assert "must be 1 if the size of dims is 0" in refused("aclnnRoll", x, [], [], x)
    assert "dim is 2" in refused("aclnnRoll", x, [1], [2], x)
    number = torch.ones((), device=DEVICE)
    assert "allowed are none" in refused("aclnnRoll", number, [1], [0], number)


def test_what_rolls_all_the_same() -> None:
    """(ops-math: aclnn_roll.cpp)"""
    number, out = torch.tensor(3.0, device=DEVICE), torch.zeros((), device=DEVICE)
    run("aclnnRoll", number, [1], [], out)
    assert out.item() == 3
    empty = torch.ones(0, 3, device=DEVICE)
    run("aclnnRoll", empty, [1], [7], empty)  # where there is nothing, no dimension is wrong
