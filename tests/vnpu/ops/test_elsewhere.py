"""Operators that CANN has for other chips only: 910B refuses them, and VNPU_CHECKS=any runs them."""

from __future__ import annotations

import pytest
import torch
from aclnn import INVALID_ARGUMENT, SIGNATURES, first_phase
from first_phases import only
from forked import python

from torchport import vnpu

HERE = __file__.rpartition("/")[0]
PROGRAM = f"""
from torchport import vnpu
vnpu.activate(force=True)
import sys
sys.path.insert(0, {HERE!r})
import torch, torch_npu
from aclnn import run
torch.manual_seed(0)
half = torch.float16


def near(actual, expected):
    assert bool(((actual.cpu().double() - expected.clamp(-128, 127)).abs() <= 0.502).all())


x, scale, offset = torch.rand(4, 8).half(), (5 + 25 * torch.rand(8)).half(), torch.rand(8).half() - 9
for form in ("none", "tanh"):
    gelu = torch.nn.functional.gelu(x.double(), approximate=form)
    y, by = torch.empty(4, 8, dtype=torch.int8, device="npu"), torch.empty(4, device="npu")
    run("aclnnGeluQuant", x.npu(), scale.npu(), offset.npu(), form, "static", "rint", torch.int8, y, None)
    near(y, gelu * scale.double() + offset.double())
    run("aclnnGeluQuant", x.npu(), scale.npu(), None, form, "dynamic", "rint", torch.int8, y, by)
    value = gelu * scale.double()
    torch.testing.assert_close(by.cpu().double(), value.abs().amax(-1) / 127, rtol=1e-5, atol=0)
    near(y, value / (value.abs().amax(-1, keepdim=True) / 127))

place = torch.empty(3, dtype=torch.int64, device="npu")
boundaries = torch.tensor([0.0, 1.0], device="npu")
run("aclnnBucketize", torch.tensor([-1.0, 0.5, 2.0], device="npu"), boundaries, False, False, place)
assert place.tolist() == [0, 1, 2]

for dtype in (torch.float32, half, torch.bfloat16):
    grad = torch.rand(10, 13).to(dtype)
    packed = torch.randint(0, 256, (32,), dtype=torch.uint8)
    kept = (packed.unsqueeze(1) >> torch.arange(8) & 1).flatten()[:130].view(10, 13).double()
    back = torch.empty(10, 13, dtype=dtype, device="npu")
    run("aclnnDropoutV3Grad", grad.npu(), packed.npu(), 1.25, back)
    torch.testing.assert_close(back.cpu(), (grad.double() * kept * 1.25).to(dtype), rtol=1e-2, atol=0)
    run("aclnnMaskedScale", grad.npu(), kept.to(dtype).npu(), 1.5, back)
    torch.testing.assert_close(back.cpu(), (grad.double() * kept * 1.5).to(dtype), rtol=1e-2, atol=0)
print("all right")
"""


@pytest.mark.parametrize(
    ("name", "parameter"),
    [
        ("aclnnGeluQuant", "self"),
        ("aclnnBucketize", "self"),
        ("aclnnDropoutV3Grad", "gradY"),
        ("aclnnMaskedScale", "self"),
    ],
)
def test_refused_here(name: str, parameter: str) -> None:
    tensor = torch.ones(2, 3, dtype=torch.float16).npu()
    status, message = first_phase(name, *only(name, {parameter: tensor}))
    assert status == INVALID_ARGUMENT and "allowed are none on Ascend910B1" in message


def test_computed_where_the_user_asks_for_it() -> None:
    ended = python(PROGRAM, VNPU_CHECKS="any")
    assert ended.stdout.splitlines()[-1:] == ["all right"], ended.stderr


@pytest.mark.parametrize(
    ("name", "code"), [("aclnnStridedSlice", 161002), ("aclnnCIoU", 361001), ("aclnnDynamicMxQuant", 561003)]
)
def test_what_no_chip_of_ours_has_answers_as_theirs(name: str, code: int) -> None:
    status, message = first_phase(name, *only(name, {}))
    assert status == code and f"{name}: CANN has it for Ascend950 only, not for Ascend910B1" in message


def test_none_of_these_is_taken() -> None:
    names = [row["name"] for row in vnpu.operators() if row["status"] == "elsewhere"]
    assert len(names) > 30
    for name in names:
        assert SIGNATURES[name]["params"] is not None and first_phase(name, *only(name, {}))[0] != 0
