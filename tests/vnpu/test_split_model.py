"""Models on several NPUs of one process."""

from __future__ import annotations

import pytest
from forked import python

SPLIT = """
import torch, torch_npu
torch.manual_seed(0)
count = {count}
layers = [torch.nn.Linear(64, 64).to(f"npu:{{i}}") for i in range(count)]
plain = [torch.nn.Linear(64, 64) for _ in range(count)]
for one, other in zip(plain, layers):
    one.load_state_dict({{name: value.cpu() for name, value in other.state_dict().items()}})
optimizers = [torch.optim.SGD([p for one in some for p in one.parameters()], lr=0.01) for some in (layers, plain)]
for step in range(300):
    x = torch.randn(8, 64)
    for some, optimizer, spread in ((layers, optimizers[0], True), (plain, optimizers[1], False)):
        y = x
        for i, layer in enumerate(some):
            y = layer(y.to(f"npu:{{i}}") if spread else y).relu()
        optimizer.zero_grad()
        y.square().mean().backward()
        optimizer.step()
for one, other in zip(plain, layers):
    torch.testing.assert_close(other.weight.cpu(), one.weight, rtol=1e-4, atol=1e-5)
print("trained")
"""

PARALLEL = """
import copy, torch, torch_npu
torch.manual_seed(0)
plain = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
model = copy.deepcopy(plain).npu()
parallel = torch.nn.DataParallel(model, device_ids=[0, 1])
x = torch.randn(32, 16)
for step in range(300):
    for net, of, given in ((parallel, model, x.npu()), (plain, plain, x)):
        if step == 0:
            of.optimizer = torch.optim.SGD(of.parameters(), lr=0.1)
        of.optimizer.zero_grad()
        loss = (net(given) - 1).square().mean()
        loss.backward()
        of.optimizer.step()
        first = loss.item() if step == 0 else first
assert loss.item() < first / 2, (first, loss.item())
for one, other in zip(plain.parameters(), model.parameters()):
    torch.testing.assert_close(other.cpu(), one, rtol=1e-3, atol=1e-4)
print("trained")
"""


@pytest.mark.parametrize("queue", ["0", "1", "2"])
@pytest.mark.parametrize("count", [2, 4])
def test_a_model_split_over_npus(count: int, queue: str) -> None:
    """Each boundary is an event that one device's queue thread records and destroys, and the other's waits for."""
    ended = python(SPLIT.format(count=count), TASK_QUEUE_ENABLE=queue)
    assert ended.stdout == "trained\n", ended


@pytest.mark.parametrize("queue", ["0", "1", "2"])
def test_data_parallel(queue: str) -> None:
    ended = python(PARALLEL, TASK_QUEUE_ENABLE=queue)
    assert ended.stdout == "trained\n", ended


def test_a_kernel_reads_the_memory_of_a_peer() -> None:
    """torch_npu casts between NPUs on the one that it copies to, once each lets the other in."""
    program = """
import torch, torch_npu
x = torch.tensor([1.5, 2.5, 3.5, 4.5], device="npu:0")
y = torch.zeros(4, dtype=torch.int64, device="npu:1")
y.copy_(x)
print(y.tolist())
"""
    result = python(program)
    assert (result.returncode, result.stdout) == (0, "[1, 2, 3, 4]\n"), result.stderr
