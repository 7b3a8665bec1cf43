"""Memory that was written over while it is in use is found, and named with what ran meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from torchport.compare.culprit import find_culprit
from torchport.compare.overwritten import Overwritten, find_overwritten
from torchport.findings import Severity
from torchport.record.operators.reading import Operators

START = """
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4)).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(32, 8).cuda(), torch.randn(32, 4).cuda()


def step(loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
"""
# tanh's kernel of the device, which also writes into the last result of relu.
ROGUE = """
import sys

last = []
key = "PrivateUse1" if "torch_npu" in sys.modules else "CPU"
kernels = {name: torch.library.get_kernel(f"aten::{name}", key) for name in ("relu", "tanh")}
library = torch.library.Library("aten", "IMPL")


def relu(keys, x):
    result = kernels["relu"].call_boxed(keys, x)
    last[:] = [result.detach()]
    return result


def tanh(keys, x):
    result = kernels["tanh"].call_boxed(keys, x)
    last[0].data.view(-1)[3:7] = 2.5
    return result


if "torch_npu" in sys.modules:
    library.impl("relu", relu, "PrivateUse1", with_keyset=True, allow_override=True)
    library.impl("tanh", tanh, "PrivateUse1", with_keyset=True, allow_override=True)
for _ in range(3):
    step((net(x) - y).square().mean())
"""
# Two tensors in the same memory, of which torch does not know. By torch_npu's own functions: torch's make a storage that
# torch_npu 2.13.0 takes for one of its own, and reads beyond.
ALIAS = """
import torch_npu

for _ in range(3):
    hidden = net[1](net[0](x))
    about = {"data_ptr": hidden.data_ptr(), "nbytes": hidden.untyped_storage().nbytes(), "size": (512,), "stride": (1,)}
    about |= {"dtype": torch.float32, "device": hidden.device, "storage_offset": 0}
    storage = torch_npu._C._construct_storage_from_data_pointer(about["data_ptr"], about["device"], about["nbytes"])
    other = torch_npu._C._construct_NPU_Tensor_From_Storage_And_Metadata(about, storage)
    other[8:16].fill_(2.5)
    step((net[4](net[3](net[2](hidden))) - y).square().mean())
"""
HEALTHY = {
    "training": "for _ in range(3):\n    step((net(x) - y).square().mean())\n",
    "in place": """
        for _ in range(3):
            z = torch.zeros(32, 8, device="cuda")
            z.add_(x).mul_(2)
            z[:4] = 1
            z.data.view(-1)[3:7] = 2.5
            with torch.no_grad():
                net[0].weight.data.mul_(0.999)
                z.t().copy_(z.t().clone())
            step((net(z) - y).square().mean())
    """,
    "out and views": """
        room = torch.empty(32, 8, device="cuda")
        for _ in range(3):
            torch.mul(x, 2, out=room)
            one, two = room.chunk(2, dim=1)
            torch.add(two, 1, out=one)
            step((net(room) - y).square().mean() + one.T.contiguous().sum() * 0)
    """,
    "streams that wait": """
        side = torch.cuda.Stream()
        for _ in range(3):
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                z = x * 2
            torch.cuda.current_stream().wait_stream(side)
            z.record_stream(torch.cuda.current_stream())
            z.add_(1)
            step((net(z) - y).square().mean())
    """,
    "batch norm": """
        norm = nn.BatchNorm1d(8).cuda()
        optimizer.add_param_group({"params": norm.parameters()})
        for _ in range(3):
            step((net(norm(norm(x))) - y).square().mean() + norm.running_mean.sum() * 0)
    """,
    "memory used again": """
        for _ in range(3):
            for size in range(1, 30):
                z = torch.randn(size, 1000, device="cuda")
                w = z.tanh()
                del z
                w = (w * 2).sum()
            step((net(x) - y).square().mean())
    """,
    "fused": """
        optimizer = torch.optim.AdamW(net.parameters(), fused=True)
        scaler = torch.amp.GradScaler("cuda")
        for _ in range(3):
            with torch.autocast("cuda", torch.float16):
                loss = (net(x) - y).square().mean()
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    """,
    "memory given back and taken again": """
        room = torch.empty(32, 8, device="cuda")
        for turn in range(3):
            room.copy_(x)
            step((net(room) - y).square().mean())
            room.untyped_storage().resize_(0)
            other = torch.full((32, 8), float(turn), device="cuda") * 2
            print(other.sum().item())
            del other
            room.untyped_storage().resize_(32 * 8 * 4)
            room.view(-1).t()
            room.copy_(x)
    """,
    "captured": """
        graph, room = torch.cuda.CUDAGraph(), x.clone()
        with torch.no_grad():
            net(room)
            torch.cuda.synchronize()
            with torch.cuda.graph(graph):
                result = net(room)
        for _ in range(3):
            first = (result * 1).sum()
            room.copy_(x * 2)
            graph.replay()
            second = (result * 1).sum()
            step((net(x) - y).square().mean() + 0 * (first + second))
    """,
}


def record(tmp_path: Path, text: str, on: str = "npu") -> Operators:
    script = tmp_path / "train.py"
    script.write_text(START + textwrap.dedent(text), encoding="utf-8")
    words = ["run", "-q", "--on", on, "--record", str(tmp_path / on), "--level", "tensor", str(script)]
    ended = subprocess.run(
        [sys.executable, "-m", "torchport", *words],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return Operators.read(tmp_path / on)


def only(found: list[Overwritten]) -> Overwritten:
    assert len(found) == 1, [one.sentence for one in found]
    return found[0]


def test_a_kernel_that_writes_beyond_its_results_is_named(tmp_path: Path) -> None:
    one = only(find_overwritten(record(tmp_path, ROGUE)))
    assert (one.step, one.elements, one.size) == (0, 4, 32 * 16)
    assert one.owner is not None
    assert one.owner.operator == "aten::relu"
    # In the first step a later reader finds it; from then on the result is looked at behind each call.
    assert one.when > one.step
    assert one.writer is not None
    assert one.writer.operator == "aten::tanh"
    assert "only aten::tanh in 3 (train.py" in one.sentence


def test_who_reads_what_was_written_over_is_not_accused(tmp_path: Path) -> None:
    record(tmp_path, ROGUE, "cpu")
    record(tmp_path, ROGUE)
    culprit = find_culprit(tmp_path / "cpu", tmp_path / "npu")
    assert culprit is not None
    assert culprit.replay is not None
    assert culprit.replay.wrong == []
    assert [finding.code for finding in culprit.findings if finding.severity is Severity.ERROR] == ["TP366"]
    data = culprit.to_json()
    assert data["class"] == "overwritten memory"
    assert data["first"]["operator"] == "aten::tanh"


def test_who_was_given_the_same_memory_is_named(tmp_path: Path) -> None:
    one = only(find_overwritten(record(tmp_path, ALIAS)))
    assert (one.step, one.elements, one.size) == (0, 8, 32 * 16)
    assert one.owner is not None
    assert one.owner.operator == "aten::relu"
    assert one.writer is not None
    assert one.shared
    assert one.writer.operator == "aten::fill_"
    assert one.sentence.endswith("was given the same memory meanwhile")


@pytest.mark.parametrize("name", HEALTHY)
def test_what_a_program_may_do_with_its_memory_is_no_fault(tmp_path: Path, name: str) -> None:
    recorded = record(tmp_path, HEALTHY[name])
    with recorded.rank(0).step(0) as step:
        assert step.about["checked"]
    assert find_overwritten(recorded) == []
