"""quantization/scatter.cpp: quantised blocks into a cache."""

import pytest
import torch
import torch_npu
from aclnn import INVALID_ARGUMENT, first_phase
from oracle import random

TILING_REFUSED = 561002


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
