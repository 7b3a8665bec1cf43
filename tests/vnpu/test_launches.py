"""vnpu.launches(): what counts as evidence that a program computed on the NPU, and what does not."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable

import pytest
import torch
import torch_npu

from torchport import vnpu


def counted(action: Callable[[], object]) -> int:
    """What `action` adds to the count once all that it asked for has run."""
    torch.npu.synchronize()
    before = vnpu.launches()
    kept = action()
    torch.npu.synchronize()
    after = vnpu.launches()
    del kept
    assert before is not None
    assert after is not None
    return after - before


def test_each_operator_counts_once() -> None:
    x = torch.ones(8, device="npu")
    torch.add(x, x)  # the first operator of a process initialises more than itself
    assert counted(lambda: [torch.add(x, x) for _ in range(10)]) == 10


def test_copies_and_allocations_do_not_count() -> None:
    cpu = torch.arange(12.0).reshape(3, 4)
    on_npu = cpu.npu()
    assert counted(lambda: cpu.npu()) == 0
    assert counted(lambda: on_npu.cpu()) == 0
    assert counted(lambda: on_npu.clone()) == 0
    assert counted(lambda: on_npu.t().contiguous()) == 0  # a kernel of its own, which only moves
    assert counted(lambda: torch.empty(64, device="npu")) == 0
    assert counted(lambda: torch.npu.Event().record()) == 0


def test_legacy_operators_count_unless_they_only_move() -> None:
    x = torch.rand(3, 4, 5, device="npu")
    assert counted(lambda: torch_npu.npu_transpose(x, (2, 0, 1))) == 0
    assert counted(lambda: torch.linalg.vector_norm(x, 0.5, dim=(0, 2))) > 0


def test_what_is_captured_counts_when_it_is_replayed() -> None:
    x = torch.ones(4, device="npu")
    out = torch.zeros(4, device="npu")
    graph = torch.npu.NPUGraph()

    def capture() -> None:
        with torch.npu.graph(graph):
            out.copy_(x * 2 + 1)

    assert counted(capture) == 0
    once = counted(graph.replay)
    assert once >= 2
    assert counted(lambda: [graph.replay(), graph.replay()]) == 2 * once


def test_a_training_step_counts() -> None:
    net = torch.nn.Linear(4, 2).npu()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    x = torch.ones(3, 4, device="npu")

    def step() -> None:
        net(x).sum().backward()
        optimizer.step()

    assert counted(step) > 3


def alone(text: str, *, activate: bool = True) -> str:
    """What a process of its own prints."""
    start = "import torchport.vnpu as vnpu\n" + ("vnpu.activate(force=True)\n" if activate else "")
    done = subprocess.run(
        [sys.executable, "-c", start + textwrap.dedent(text)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()[-1]


TRAINING = """
import torch
device = torch.device({device!r})
x = torch.ones(3, 4).npu().cpu().to(device)  # a copy there and back is no computing
net = torch.nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    net(x).sum().backward()
    optimizer.step()
torch.npu.synchronize()
print(vnpu.launches())
"""


@pytest.mark.parametrize(("device", "used"), [("cpu", False), ("npu", True)])
def test_training_on_the_cpu_beside_an_npu_counts_nothing(device: str, used: bool) -> None:
    assert (int(alone(TRAINING.format(device=device))) > 0) is used


def test_nobody_counts_where_no_virtual_npu_is_loaded() -> None:
    assert alone("print(vnpu.launches())") == "None"  # loaded with torch_npu, not before
    assert alone("print(vnpu.launches())", activate=False) == "None"
