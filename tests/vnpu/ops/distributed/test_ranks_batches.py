"""Products of experts between an exchange of experts and one of their parts (batches_on_a3.py), which CANN has for A3."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from aclnn import first_phase
from first_phases import only
from forked import python

NO_KERNEL = 561003
START = f"""
from torchport import vnpu
vnpu.activate(force=True)
import sys
sys.path[:0] = {[str(folder) for folder in Path(__file__).parents[:2]]!r}
import torch, torch_npu
import batches_on_a3
batches_on_a3.main()
"""


def test_on_a_grid_of_four() -> None:
    ended = python(START, VNPU_SOC="Ascend910_9391")
    assert ended.stdout.splitlines()[-1:] == ["all right"], ended.stderr


@pytest.mark.parametrize("name", ["aclnnAlltoAllAllGatherBatchMatMul", "aclnnBatchMatMulReduceScatterAlltoAll"])
def test_a_910b_has_none(name: str) -> None:
    tensor = torch.ones(2, 2, 2, dtype=torch.float16).npu()
    status, message = first_phase(name, *only(name, {"x": tensor, "weight": tensor, "y1Out": tensor, "out": tensor}))
    assert status == NO_KERNEL and "A3 (Ascend910_93...) only" in message, message
