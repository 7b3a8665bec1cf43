"""Every model family trains on the NPU with the CPU's gradients; `measure` defines the figures."""

from __future__ import annotations

import statistics

import pytest
import torch

from models import FAMILIES
from models.measure import Step, steps

# What a step costs on a CPU without float16 instructions: ATen's float16 convolution takes seconds for a ResNet,
# so that the quick suite compares few steps of them and `make models` all. Of the families whose operators the others
# have too, the quick suite compares float32.
FURTHER = ("densenet", "efficientnet", "swin", "ssd", "diffusion", "t5", "experts", "recommendation")
FEW = {
    **{(name, dtype): 0 for name in FURTHER for dtype in (torch.bfloat16, torch.float16)},
    ("resnet18", torch.float32): 2,
    ("resnet18", torch.bfloat16): 1,
    ("resnet18", torch.float16): 1,
    ("resnet50", torch.float32): 2,
    ("resnet50", torch.bfloat16): 1,
    ("resnet50", torch.float16): 1,
}


def cases(*dtypes: torch.dtype) -> list:
    """(family, dtype, steps): quick ones and, where the quick one is cut short, the whole one marked slow."""
    made = []
    for name, family in FAMILIES.items():
        for dtype in dtypes:
            label = f"{name}-{str(dtype).removeprefix('torch.')}"
            few = FEW.get((name, dtype), family.steps)
            if few > 0:
                made.append(pytest.param(name, dtype, few, id=label))
            if few < family.steps:
                whole = [pytest.mark.models, pytest.mark.timeout(1800)]
                made.append(pytest.param(name, dtype, family.steps, id=f"{label}-all", marks=whole))
    return made


def over_steps(measured: list[Step], error: str) -> dict[str, float]:
    """Root of the mean square error of each parameter over the steps."""
    found: dict[str, list[float]] = {}
    for step in measured:
        for name, value in getattr(step, error).items():
            found.setdefault(name, []).append(value)
    return {name: statistics.fmean(x * x for x in values) ** 0.5 for name, values in found.items()}


@pytest.mark.parametrize(("name", "dtype", "count"), cases(torch.float32))
def test_float32_gradients_are_the_cpu_s(name: str, dtype: torch.dtype, count: int) -> None:
    measured = list(steps(FAMILIES[name], dtype, count))
    assert all(step.device for step in measured)
    # A ReLU that is at zero within rounding moves a single step.
    beyond = [max(step.device.items(), key=lambda item: item[1]) for step in measured if step.largest > 1e-4]
    assert len(beyond) <= count // 10 + (count < 10), beyond


@pytest.mark.parametrize(("name", "dtype", "count"), cases(torch.bfloat16, torch.float16))
def test_half_gradients_err_no_more_than_the_cpu_s(name: str, dtype: torch.dtype, count: int) -> None:
    measured = list(steps(FAMILIES[name], dtype, count))
    mine, theirs = over_steps(measured, "device"), over_steps(measured, "cpu")
    assert mine
    assert statistics.median(mine[key] / theirs[key] for key in mine) <= 1.2
    # A ReLU that ties in this dtype moves single parameters, on either device.
    worse = {key: (mine[key], theirs[key]) for key in mine if not mine[key] <= 1.5 * theirs[key]}
    assert len(worse) <= len(mine) // 10, worse
