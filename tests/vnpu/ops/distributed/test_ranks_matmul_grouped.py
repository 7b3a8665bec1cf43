"""Products of experts' rows before or behind an exchange between ranks (grouped_on_ranks.py), which CANN has for A3."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from aclnn import first_phase
from first_phases import only
from forked import python

NO_KERNEL, TILING = 561003, 561002
START = f"""
from torchport import vnpu
vnpu.activate(force=True)
import sys
sys.path[:0] = {[str(folder) for folder in Path(__file__).parents[:2]]!r}
import torch, torch_npu
"""
LIMITS = f"""
from ranks import group, refusal
x, weight, y = (torch.ones(shape, dtype=torch.float16, device="npu:0") for shape in ((64, 32), (2, 32, 8), (64, 8)))
for size, words in ((2, "epWorldSize is 2, allowed are 8"), (8, "allowed are 2 to 100 MB")):
    with group(size) as name:
        counts = [32 // size] * (2 * size)
        status, message = refusal("aclnnGroupedMatMulAlltoAllv", x, weight, None, None, None, None, name, size, counts,
                                  counts, False, False, y, None)
        assert status == {TILING} and words in message, message
with group(2) as name:
    for mode, code in (("ai_cpu", {TILING}), ("ccu", 161002)):
        status, message = refusal("aclnnGroupedMatMulAlltoAllvV2", x, weight, None, None, None, None, name, mode, 2,
                                  [16] * 4, [16] * 4, False, False, y, None)
        assert status == code and ("commMode" in message) == (mode == "ccu"), message
print("all right")
"""


def test_where_the_user_asks_for_it() -> None:
    ended = python(START + "import grouped_on_ranks\ngrouped_on_ranks.main()\n", VNPU_CHECKS="any")
    assert ended.stdout.splitlines()[-1:] == ["all right"], ended.stderr


def test_limits_of_an_a3() -> None:
    ended = python(START + LIMITS, VNPU_SOC="Ascend910_9391")
    assert ended.stdout.splitlines()[-1:] == ["all right"], ended.stderr


@pytest.mark.parametrize("version", ["", "V2"])
@pytest.mark.parametrize("name", ["aclnnAlltoAllvGroupedMatMul", "aclnnGroupedMatMulAlltoAllv"])
def test_a_910b_has_none(name: str, version: str) -> None:
    name += version
    tensor = torch.ones(2, 3, dtype=torch.float16).npu()
    status, message = first_phase(name, *only(name, {"gmmX": tensor, "gmmWeight": tensor}))
    assert status == NO_KERNEL and "A3 (Ascend910_93...) only" in message, message
