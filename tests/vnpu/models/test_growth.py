"""A thousand training steps hold no more memory, threads and files than the first hundred. (`make test` runs 200.)"""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

MIB = 1024.0  # /proc counts in KiB
ALLOWED = 4.0  # MiB; one leaked 4 KiB object a step would be 3.5


def resident() -> dict[str, float]:
    """Resident memory of this process in MiB: private, and shared (which holds the device's memory)."""
    rows = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {name: int(rows[name].split()[0]) / MIB for name in ("RssAnon", "RssShmem")}


def held() -> dict[str, int]:
    """What must not grow at all: device memory in bytes, by torch and by the driver; threads and open files."""
    free, total = torch.npu.mem_get_info()
    return {
        "allocated": torch.npu.memory_allocated(),
        "reserved": torch.npu.memory_reserved(),
        "used on the device": total - free,
        "threads": len(list(Path("/proc/self/task").iterdir())),
        "files": len(list(Path("/proc/self/fd").iterdir())),
    }


@pytest.mark.parametrize("steps", [200, pytest.param(1000, marks=pytest.mark.models)])
def test_training_does_not_grow(steps: int) -> None:
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.1),
        nn.Flatten(),
        nn.Linear(72, 10),
    ).to("npu")
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler("npu")
    images, classes = torch.randn(8, 1, 8, 8), torch.randint(10, (8,))

    def train(steps: int) -> None:
        for step in range(steps):
            optimizer.zero_grad()
            with torch.autocast("npu", torch.float16, enabled=step % 2 == 0):
                loss = functional.cross_entropy(model(images.to("npu")), classes.to("npu"))
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            assert loss.isfinite()

    train(100)
    gc.collect()
    torch.npu.synchronize()
    kept, before = held(), resident()
    train(steps)
    gc.collect()
    torch.npu.synchronize()
    after = resident()
    assert held() == kept
    grown = {name: after[name] - before[name] for name in before}
    assert all(growth < ALLOWED for growth in grown.values()), grown
