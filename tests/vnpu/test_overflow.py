"""Results out of range: infinities and nan, or saturation, as the chip has it and INF_NAN_MODE_* of torch_npu set it."""

from __future__ import annotations

import json
from typing import Any

import forked
import pytest
from ascendcl import UNSUPPORTED, ask, code, python

MOST = 65504.0  # the largest float16

# What a program of torch_npu sees, as JSON.
PROGRAM = """
import json
import os
from torchport import vnpu
vnpu.activate(force=True)
import torch, torch_npu
from torch_npu.npu import utils

def half(*values):
    return torch.tensor(values, dtype=torch.float16).npu()

inf, nan = float("inf"), float("nan")
found = {"supports": utils.is_support_inf_nan()}
def flag():
    return utils.get_npu_overflow_flag() if not found["supports"] else None
found["quiet"] = flag()
found["exp"] = half(12.0, 1.0, -40.0).exp().tolist()
found["raised"] = flag()
utils.clear_npu_overflow_flag()
found["cleared"] = flag()
found["sums"] = (half(60000.0, -60000.0) * 2).tolist()
found["foreach"] = [one.item() for one in torch._foreach_mul([half(60000.0)], 2.0)]
found["nan"] = half(0.0).div(half(0.0)).tolist()
found["product"] = (half(*[200.0] * 16)[None] @ half(*[200.0] * 16)[:, None] * 1).item()
found["narrowed"] = torch.tensor([1e6, -1e6]).npu().half().tolist()
utils.clear_npu_overflow_flag()
found["moved"] = torch.cat([half(inf), half(nan)]).clone().flip(0).tolist()
found["filled"] = torch.full((1,), -inf, dtype=torch.float16, device="npu").tolist()
found["wide"] = torch.tensor([1e38]).npu().mul(10).tolist()
found["still"] = flag()
status = torch.zeros(8, device="npu")
def debug():
    return torch_npu.npu_get_float_status(status, mode=1).tolist()
found["debug"] = [debug()[:2]]
half(60000.0) * 2
torch_npu.npu_clear_float_status(status)
found["debug"].append(debug()[:2])
torch_npu.npu_clear_float_status(status, mode=1)
found["debug"].append(debug()[:2])
found["check"] = [utils.npu_check_overflow(half(60000.0) * 2), utils.npu_check_overflow(half(1.0) * 2)]

parameter = torch.nn.Parameter(torch.ones(4, device="npu"))
optimizer = torch.optim.SGD([parameter], lr=0.1)
scaler = torch.npu.amp.GradScaler(init_scale=2.0**16)
for _ in range(2):
    optimizer.zero_grad()
    scaler.scale((parameter.half() * 4).sum()).backward()  # 4 * 65536 is no float16
    scaler.step(optimizer)
    scaler.update()
found["scale"], found["parameter"] = scaler.get_scale(), parameter.tolist()
print(json.dumps(found))
"""


def outcome(**variables: str) -> dict[str, Any]:
    ended = forked.python(PROGRAM, **variables)
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    "variables",
    [{"VNPU_SOC": "Ascend910A"}, {"VNPU_SOC": "Ascend910B1", "INF_NAN_MODE_FORCE_DISABLE": "1"}],
    ids=["of the chip", "on request"],
)
def test_saturation(variables: dict[str, str]) -> None:
    found = outcome(**variables)
    assert found["supports"] is False and found["quiet"] is False
    assert found["exp"] == [MOST, pytest.approx(2.71828, rel=1e-3), 0.0]
    assert found["raised"] is True and found["cleared"] is False
    assert found["sums"] == [MOST, -MOST] and found["foreach"] == [MOST] and found["nan"] == [0.0]
    # The copy for debugging, which nothing above has cleared, nor does the ordinary clearing.
    assert found["debug"] == [[1, 1], [1, 1], [0, 0]]
    assert found["product"] == MOST and found["narrowed"] == [MOST, -MOST]
    inf = float("inf")
    assert found["moved"][1] == inf and found["moved"][0] != found["moved"][0]  # nothing was computed
    assert found["filled"] == [-inf] and found["wide"] == [inf] and found["still"] is False
    assert found["check"] == [True, False]
    # Both steps are left out, and the scale is halved twice, though no gradient shows an infinity.
    assert found["scale"] == 2.0**14 and found["parameter"] == [1.0] * 4


def test_infinities() -> None:
    found = outcome(VNPU_SOC="Ascend910B1")
    inf = float("inf")
    assert found["supports"] is True and found["exp"][0] == inf and found["sums"] == [inf, -inf]
    assert found["foreach"] == [inf] and found["nan"][0] != found["nan"][0] and found["narrowed"] == [inf, -inf]
    assert found["check"] == [True, False]
    assert found["scale"] == 2.0**14 and found["parameter"] == [1.0] * 4


@pytest.mark.usefixtures("npu")
def test_the_mode_through_the_api() -> None:
    assert ask("aclrtGetDeviceSatMode") == 1
    assert code("aclrtSetDeviceSatMode", 0) == 0 and ask("aclrtGetDeviceSatMode") == 0
    assert code("aclrtSetDeviceSatMode", 1) == 0 and ask("aclrtGetDeviceSatMode") == 1
    assert code("aclrtSetDeviceSatMode", 7) != 0 and ask("aclrtGetDeviceSatMode") == 1


def test_a_chip_without_infinities_says_so() -> None:
    program = "from ascendcl import *\nprint(ask('aclrtGetDeviceSatMode'), code('aclrtSetDeviceSatMode', 1), message())"
    ended = python(program, VNPU_SOC="Ascend310P3")
    assert ended.stdout.startswith(f"0 {UNSUPPORTED} ") and "Ascend310P3 has no inf and nan mode" in ended.stdout
