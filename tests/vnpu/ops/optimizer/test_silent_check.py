"""Silent checks: levels, state and what ends a run, by the page of aclnnSilentCheck."""

from __future__ import annotations

import math
from typing import Any

import forked
import pytest
import torch
import torch_npu
from aclnn import INVALID_ARGUMENT, first_phase

ERROR, WARNING, ERROR_JUMP, WARNING_JUMP = 1e6, 1e4, 1e5, 5e3


def check(value: float, state: torch.Tensor, step: torch.Tensor, detect: int = 1, least: int = 3) -> int:
    gradient = torch.ones(4, device="npu")
    limits = (least, ERROR, ERROR_JUMP, WARNING, WARNING_JUMP)
    result = torch_npu._npu_silent_check_v2(torch.tensor(value, device="npu"), gradient, state, step, *limits, detect)
    assert result.dtype == torch.int32 and gradient.tolist() == [1.0] * 4
    return int(result.item())


def fresh() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.zeros(3, device="npu"), torch.zeros(1, dtype=torch.int64, device="npu")


def test_the_state_is_the_last_smallest_and_largest_value() -> None:
    state, step = fresh()
    for value, seen in ((2.0, [2.0, 2.0, 2.0]), (1.0, [1.0, 1.0, 2.0]), (3.0, [3.0, 1.0, 3.0]), (2.5, [2.5, 1.0, 3.0])):
        assert check(value, state, step) == 0 and state.tolist() == seen
    assert step.item() == 4


@pytest.mark.parametrize(
    ("value", "level"), [(9e3, 0), (1.1e4, 2), (9e5, 2), (1.1e6, 1), (math.inf, 1), (-math.inf, 1), (math.nan, 1)]
)
def test_values_beyond_a_threshold(value: float, level: int) -> None:
    state, step = fresh()
    assert check(value, state, step) == level
    assert step.item() == 1  # told, and gone on


@pytest.mark.parametrize(("value", "level"), [(1.0 + 0.4, 0), (1.0 + 0.6, 2), (1.0 + 11.0, 1)])
def test_jumps(value: float, level: int) -> None:
    """Seen values lie within 1e-4 of each other: half of 1 is a jump by 5,000 of that, 10 one by 100,000."""
    state, step = torch.tensor([1.0, 1.0, 1.0001], device="npu"), torch.tensor([3], device="npu")
    assert check(value, state, step) == level
    early, second = torch.tensor([1.0, 1.0, 1.0001], device="npu"), torch.tensor([2], device="npu")
    assert check(value, early, second) == 0  # fewer than `least` were seen


def test_no_jump_is_known_where_all_values_were_the_same() -> None:
    state, step = torch.tensor([1.0, 1.0, 1.0], device="npu"), torch.tensor([9], device="npu")
    assert check(2.0, state, step) == 0
    assert check(1.1e6, state, step) == 1


def test_refusals() -> None:
    one, step, result = (torch.ones(1, device="npu"), fresh()[1], torch.zeros(1, dtype=torch.int32, device="npu"))
    tail = (3, ERROR, ERROR_JUMP, WARNING, WARNING_JUMP, 1, result)
    status, message = first_phase("aclnnSilentCheck", one[0], one, one, step, *tail)
    assert status == INVALID_ARGUMENT and "not 1 values" in message
    status, message = first_phase("aclnnSilentCheck", one[0], one, fresh()[0], step.int(), *tail)
    assert status == INVALID_ARGUMENT and "stepRef" in message


# What ends a run, in a process of its own: nothing can be computed after it.
ENDING = """
from torchport import vnpu
vnpu.activate(force=True)
import os, torch, torch_npu
inf = torch.tensor(float("inf"), device="npu")
gradient, limits = torch.ones(4, device="npu"), (3, 1e6, 1e5, 1e4, 5e3)
before, step = torch.zeros(3, device="npu"), torch.zeros(1, dtype=torch.int64, device="npu")
try:
    if {version} == 2:
        torch_npu._npu_silent_check_v2(inf, gradient, before, step, *limits, {detect})
    else:
        one, count = torch.ones(1, device="npu"), torch.zeros(1, dtype=torch.int32, device="npu")
        torch_npu._npu_silent_check(gradient, inf, one, one, one, count, *limits)
    torch.npu.synchronize()
    print("went on")
except RuntimeError as error:
    print("ended", "507018" in str(error), "Silent check: the norm of a gradient is inf" in str(error))
"""


@pytest.mark.parametrize(
    ("version", "detect", "said"),
    [(2, 1, "went on"), (2, 2, "ended True True"), (2, 3, "ended True True"), (1, 0, "ended True True")],
)
def test_an_error_ends_the_run_unless_it_is_only_to_be_told(version: int, detect: int, said: str) -> None:
    ended: Any = forked.python(ENDING.format(version=version, detect=detect))
    assert ended.stdout.split("\n")[0] == said, ended.stdout + ended.stderr


def test_the_first_version_keeps_three_tensors() -> None:
    last, least, most = (torch.tensor(v, device="npu") for v in (0.0, 1e10, -1e10))
    gradient, count = torch.ones(4, device="npu"), torch.zeros((), dtype=torch.int32, device="npu")
    limits = (7, ERROR, ERROR_JUMP, WARNING, WARNING_JUMP)
    levels = []
    for value in (2.0, 5.0, 2e4, 3.0):
        val = torch.tensor(value, device="npu")
        levels.append(torch_npu._npu_silent_check(gradient, val, last, least, most, count, *limits).item())
    assert levels == [0, 0, 2, 0]
    assert (last.item(), least.item(), most.item()) == (3.0, 2.0, 2e4)
    assert gradient.tolist() == [1.0] * 4
