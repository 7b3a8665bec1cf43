"""Long use of one process: nothing grows, threads do not disturb each other, memory runs out and comes back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ascendcl import python

PROGRAM = """
import torchport.vnpu; torchport.vnpu.activate(force=True)
import json, os, threading, torch, torch_npu
from torch import nn

kept = []

def size():
    resident = int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGESIZE") >> 20
    return resident, len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))

model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 4)).npu()
optimizer = torch.optim.Adam(model.parameters())

def train(steps):
    for step in range(steps):
        loss = nn.functional.cross_entropy(model(torch.randn(8, 16).npu()), torch.randint(0, 4, (8,)).npu())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.npu.synchronize()
    return size()

def hoard(count):
    kept.extend(torch.ones(1 << 16).npu() for _ in range(count))
    return size()

def streams(count):
    for _ in range(count):
        stream, mark = torch.npu.Stream(), torch.npu.Event(enable_timing=True)
        with torch.npu.stream(stream):
            torch.ones(1000, device="npu").add_(1)
            mark.record()
        mark.synchronize()
    return size()

def threads():
    right = []
    def work(number):
        device = f"npu:{number % 2}"
        torch.npu.set_device(device)
        with torch.npu.stream(torch.npu.Stream(device)):
            for _ in range(20):
                a = torch.full((64, 64), float(number + 1), device=device)
                right.append((a @ a).sum().item() == 64**3 * (number + 1) ** 2)
    all = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in all: thread.start()
    for thread in all: thread.join()
    return right.count(True), len(right)

def across():
    a = torch.arange(1000.0, device="npu:0")
    b, side = a.to("npu:1"), torch.npu.Stream("npu:1")
    side.wait_stream(torch.npu.current_stream("npu:1"))
    with torch.npu.stream(side):
        c = b * 2
    torch.npu.current_stream("npu:1").wait_stream(side)
    return bool((c.cpu() == torch.arange(1000.0) * 2).all())

def exhausted():
    kept = []
    try:
        while len(kept) < 40:
            kept.append(torch.empty(64 << 20, dtype=torch.uint8, device="npu"))
    except torch.OutOfMemoryError:
        pass
    blocks = len(kept)
    kept.clear()
    torch.npu.empty_cache()
    return blocks, torch.ones(10, device="npu").sum().item()

print(json.dumps({
    "hoarding": [size(), hoard(STEPS)],
    "training": [train(60), train(STEPS)],
    "streams": [streams(40), streams(STEPS // 2)],
    "threads": threads(), "across": across(), "exhausted": exhausted(),
}))
"""
STEPS = 240


@pytest.fixture(scope="module")
def outcome() -> Any:
    result = python(
        PROGRAM.replace("STEPS", str(STEPS)), VNPU_HOST_LIMIT="1GiB", OMP_NUM_THREADS="1", TORCH_NPU_WARNING_DISABLE="1"
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return json.loads(result.stdout.splitlines()[-1])


GROWTH = 12  # MiB resident


def test_a_tensor_kept_in_each_step_is_noticed(outcome: Any) -> None:
    early, late = outcome["hoarding"]
    assert late[0] - early[0] > 2 * GROWTH


@pytest.mark.parametrize("what", ["training", "streams"])
def test_nothing_grows(outcome: Any, what: str) -> None:
    early, late = outcome[what]
    assert late[0] - early[0] <= GROWTH, "MiB resident"
    assert late[1:] == early[1:], "threads, files"


def test_six_threads_on_two_devices_get_their_own_results(outcome: Any) -> None:
    assert outcome["threads"] == [120, 120]


def test_a_copy_between_devices_is_ordered_by_streams(outcome: Any) -> None:
    assert outcome["across"] is True


def test_memory_that_ran_out_comes_back(outcome: Any) -> None:
    blocks, total = outcome["exhausted"]
    assert 10 <= blocks <= 16
    assert total == 10
