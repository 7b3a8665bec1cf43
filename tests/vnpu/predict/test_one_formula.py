"""The calibration's formula (Python) is that of the virtual clock (C++): each kernel's time, and a step's."""

from __future__ import annotations

from pathlib import Path

import pytest
from forked import python

from torchport.predict import calibration
from torchport.predict.timeline import Task, read_timeline
from torchport.vnpu import chips

# A kernel of each unit, small and large; on 910A with conversions.
KERNELS = """
import torch
torch.npu.config.allow_internal_format = False
half = torch.float16
matrix = torch.ones(8192, 8192, device="npu", dtype=half)
for size in (16, 8192):
    matrix[:size] @ matrix.t()
images = torch.ones(8, 32, 56, 56, device="npu", dtype=half, requires_grad=True)
dense, depthwise = (torch.nn.Conv2d(32, 32, 9, groups=groups).npu().half() for groups in (1, 32))
norm = torch.nn.BatchNorm2d(32).npu()
y = norm(depthwise(dense(images)))
torch.nn.functional.max_pool2d(y, 2).sum().backward()
for size in (10, 1 << 20, 1 << 27):
    x = torch.ones(size, device="npu")
    x + x
matrix.t().contiguous()
matrix[torch.tensor([3, 1] * 1024, device="npu")]
torch.zeros(1 << 22).npu(non_blocking=True)
torch.npu.synchronize()
"""
STEP = """
import torch
x = torch.ones({size}, device="npu")
torch.npu.synchronize()
marks = [torch.npu.Event(enable_timing=True) for _ in range(2)]
marks[0].record()
for _ in range(400):
    x = x + 1
marks[1].record()
torch.npu.synchronize()
print(marks[0].elapsed_time(marks[1]))
"""


def constants_of(soc: str) -> tuple[dict[str, float], dict[str, object]]:
    """The time model's constants of a chip, by way of the one that it is like, and the chip."""
    profiles = chips.load_chips()
    like = soc
    while "like" in profiles[like]["time"]:
        like = profiles[like]["time"]["like"]
    return {name: row["value"] for name, row in profiles[like]["time"].items()}, dict(profiles[soc])


def tasks(folder: Path, soc: str) -> list[Task]:
    log = folder / "log"
    done = python(KERNELS, VNPU_MODE="dry", VNPU_TIME="model", VNPU_SOC=soc, VNPU_TIMELINE=str(log))
    assert done.returncode == 0, done.stderr
    return [task for task in read_timeline(log).tasks if task.unit != "none"]


def off(found: list[Task], constants: dict[str, float], chip: dict[str, object]) -> list[str]:
    """Tasks whose time the formula does not give to the nanosecond, which the log counts in."""
    return [
        task.name
        for task in found
        if abs(
            calibration.predict_kernel_time(task.unit, task.flops, task.bytes, task.converted, constants, chip) * 1e9
            - task.virtual_time
        )
        > 1 + 1e-9 * task.virtual_time
    ]


@pytest.mark.parametrize("soc", ["Ascend910A", "Ascend910B3"])
def test_each_kernel_takes_what_the_formula_says(soc: str, tmp_path: Path) -> None:
    constants, chip = constants_of(soc)
    found = tasks(tmp_path, soc)
    assert {task.unit for task in found} >= {
        "cube",
        "depthwise",
        "stream",
        "norm",
        "pool",
        "move",
        "gather",
        "host_copy",
    }
    assert any(task.converted for task in found)
    assert off(found, constants, chip) == []
    # Each constant of the formula is in some task's time: changed, the two differ.
    for name in ("cube", "depthwise", "stream", "norm", "pool", "move", "gather", "floor_us", "pcie_gbs", "copy_us"):
        assert off(found, constants | {name: constants[name] * 1.01}, chip), name
    if constants["l2_share"] > 0:
        assert off(found, constants | {"l2_gbs": constants["l2_gbs"] * 1.01}, chip)


@pytest.mark.parametrize(("size", "bound"), [(1, "host"), (1 << 28, "device")])
def test_a_step_is_bound_as_the_calibration_says(size: int, bound: str) -> None:
    constants, chip = constants_of("Ascend910A")
    done = python(STEP.format(size=size), VNPU_MODE="dry", VNPU_TIME="model", VNPU_SOC="Ascend910A")
    row = calibration.Row("", "", 1, 1.0, (("stream", 0.0, 8.0 * size, 0.0, 400),))
    expected = calibration.predict_step_time(row, constants, chip)
    assert float(done.stdout) == pytest.approx(expected, rel=0.01)
    launches = 400 * constants["host_us"] * 1e-3
    assert expected == pytest.approx(launches) if bound == "host" else expected > 2 * launches
