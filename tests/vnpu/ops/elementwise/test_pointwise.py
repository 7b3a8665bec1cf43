"""elementwise/pointwise.cpp: clamp, lerp, addcmul, addcdiv, where."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from aclnn import INVALID_ARGUMENT, NULL_ARGUMENT, first_phase, run
from oracle import DEVICE, check, compare, layouts, random
from torch import Tensor

FUNCTIONS: list[Callable[..., Any]] = [
    lambda x, y, z: torch.clamp(x, -0.5, 0.7),
    lambda x, y, z: torch.clamp(x, min=-0.5),
    lambda x, y, z: torch.clamp(x, max=0.7),
    lambda x, y, z: torch.clamp_min(x, 0.1),
    lambda x, y, z: torch.clamp_max(x, 0.1),
    lambda x, y, z: torch.clamp(x, y, y + 1),
    lambda x, y, z: torch.clamp(x, min=y),
    lambda x, y, z: torch.clamp(x, max=y),
    lambda x, y, z: torch.clamp_min(x, y),
    lambda x, y, z: torch.clamp_max(x, y),
    lambda x, y, z: torch.lerp(x, y, 0.3),
    lambda x, y, z: torch.lerp(x, y, z),
    lambda x, y, z: torch.addcmul(x, y, z, value=0.5),
    lambda x, y, z: torch.addcdiv(x, y, z + 3, value=0.5),
    lambda x, y, z: torch.where(x > 0, y, z),
    lambda x, y, z: torch.where(x > 0, y, 0.25),
]
IN_PLACE: list[Callable[..., Any]] = [
    lambda x, y, z: x.clamp_(-0.5, 0.7),
    lambda x, y, z: x.clamp_min_(0.1),
    lambda x, y, z: x.clamp_max_(0.1),
    lambda x, y, z: x.clamp_min_(y),
    lambda x, y, z: x.clamp_max_(y),
    lambda x, y, z: x.lerp_(y, 0.7),
    lambda x, y, z: x.lerp_(y, z),
    lambda x, y, z: x.addcmul_(y, z, value=0.5),
    lambda x, y, z: x.addcdiv_(y, z + 3, value=0.5),
]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_values_and_gradients(function: Callable[..., Any]) -> None:
    x, y, z = random(3, 4), random(3, 4, seed=1), random(3, 4, seed=2)
    check(function, x, y, z, ulps=4)
    check(function, x, random(4, seed=1), random(3, 1, seed=2), ulps=4)
    check(function, random(), random(seed=1), random(seed=2), ulps=4)
    check(function, random(0, 4), random(4), random(0, 4))
    for view in layouts(x):
        check(function, view, y, z.t().contiguous().t(), dtypes=[torch.float32], grad=False, ulps=4)


@pytest.mark.parametrize("function", IN_PLACE)
def test_in_place(function: Callable[..., Any]) -> None:
    for view in layouts(random(3, 4)):
        if 0 not in view.stride():
            check(function, view, random(4, seed=1), random(3, 4, seed=2), grad=False, ulps=4)


def test_integers_and_infinite_bounds() -> None:
    x = torch.tensor([-7, -1, 0, 5, 12])
    check(lambda t: torch.clamp(t, -2, 6), x, grad=False)
    check(lambda t: torch.addcmul(t, t, t, value=2), x, grad=False)
    half = torch.tensor([-3.0, 60000.0], dtype=torch.float64)
    check(lambda t: torch.clamp(t, -1e9, 1e9), half, dtypes=[torch.float16], grad=False)
    check(lambda t: torch.clamp(t, min=float("nan")), half, grad=False)
    check(lambda t: torch.where(t > 0, t, 7), x, grad=False)


@pytest.mark.parametrize("name", ["addcmul", "addcdiv"])
def test_kernels_that_keep_half_round_each_step(name: str) -> None:
    """As NumPy does in float16 (op-plugin's test_foreach_add*_scalar_list); bfloat16 is rounded once."""
    a, b, c = (random(50, 40, low=0.5, seed=i) for i in range(3))
    x, y, z = (t.half().numpy() for t in (a, b, c))
    expected = x + (y * z if name == "addcmul" else y / z) * np.float16(-1.3)
    for function in (getattr(torch, name), getattr(Tensor, f"{name}_")):
        found = function(*(t.half().npu() for t in (a, b, c)), value=-1.3)
        assert torch.equal(found.cpu(), torch.from_numpy(expected))
    once = getattr(torch, name)(*(t.bfloat16().double() for t in (a, b, c)), value=-1.3)
    compare(getattr(torch, name)(*(t.bfloat16().npu() for t in (a, b, c)), value=-1.3), once, torch.bfloat16)


def test_where_promotes() -> None:
    x = random(4)
    result = torch.where(x.to(DEVICE) > 0, torch.ones(4, dtype=torch.int32, device=DEVICE), x.float().to(DEVICE))
    compare(result, torch.where(x > 0, torch.ones(4), x.float()).double(), torch.float32)


def test_by_c_name() -> None:
    x, y = random(3, 4).float().to(DEVICE), random(3, 4, seed=5).float().to(DEVICE)
    expected = torch.minimum(x.cpu(), y.cpu()).double()
    run("aclnnInplaceClampMaxTensor", x, y)
    compare(x, expected, torch.float32)
    run("aclnnInplaceClampMinTensor", x, y)
    compare(x, torch.maximum(expected, y.cpu().double()), torch.float32)


def test_refused() -> None:
    x, out = torch.ones(2, 3, device=DEVICE), torch.empty(2, 3, device=DEVICE)
    status, message = first_phase("aclnnClamp", x, None, None, out)
    assert status == NULL_ARGUMENT
    assert "clipValueMin and clipValueMax are null" in message
    status, message = first_phase("aclnnLerp", x, x.half(), x, out)
    assert status == INVALID_ARGUMENT
    assert "end has dtype float16, expected float32" in message
    status, message = first_phase("aclnnSWhere", x, x, x, out)
    assert status == INVALID_ARGUMENT
    assert "condition has dtype float32, allowed are" in message
    status, message = first_phase("aclnnAddcmul", x, torch.ones(4, device=DEVICE), x, 1, out)
    assert status == INVALID_ARGUMENT
    assert "does not broadcast" in message


def test_where_rounds_what_is_wider_than_its_output() -> None:
    condition, wide = torch.tensor([True, False, False]), torch.tensor([1.0, 1 + 2**-12, 3.0])
    narrow, out = torch.full((3,), 7.0).half(), torch.zeros(3, dtype=torch.float16, device=DEVICE)
    for one, two in ((narrow, wide), (wide, narrow)):
        run("aclnnSWhere", condition.to(DEVICE), one.to(DEVICE), two.to(DEVICE), out)
        assert torch.equal(out.cpu(), torch.where(condition, one.half(), two.half()))


def test_lerp_says_last_what_it_was_checking() -> None:
    """Programs look for those words: they are the last line of CANN's message."""
    x, end = torch.ones(2, 1, device="npu"), torch.ones(2, 6, device="npu")
    with pytest.raises(RuntimeError, match=r"same size.*CheckShape failed"):
        x.lerp_(end, 0.5)
    assert torch.equal(end.lerp_(x, 0.5).cpu(), torch.ones(2, 6))
