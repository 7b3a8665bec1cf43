"""What both runs of a port record of each step: the same places, names and counts, and nearly the same numbers."""

import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from torchport import startup
from torchport.findings import Result
from torchport.record.recording import HEAD, VERSION, Recording
from torchport.record.session import Options

SCRIPT = Path(__file__).parents[3] / "examples" / "digits" / "train.py"
CLOSE = 1e-5
COMPILED = """
import torch, torch.nn as nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 4)
        self.register_buffer("shift", torch.ones(4))
    def forward(self, x, scale=None):
        y = self.last(torch.relu(self.first(x))) + self.shift.cuda()
        return y * torch.tensor(1.5, device=y.device) * scale
net = Net().cuda()
model = torch.compile(net, fullgraph=True)
optimizer = torch.optim.Adam(net.parameters(), 1e-2)
data, given = torch.randn(24, 4, 8), torch.zeros(4, 8, device="cuda")
scaler = torch.amp.GradScaler("cuda", init_scale=4.0)
for batch in data:
    given.copy_(batch)
    target = torch.tensor([0, 1, 2, 3], device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(model(given, scale=batch[:, :4].to("cuda")), target)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""


def recorded(out, words):
    """Both runs' one process that trained."""
    command = [sys.executable, "-m", "torchport", "port", "--out", str(out), "--json", "--timeout", "500"]
    run = subprocess.run(
        [*command, *words], capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert json.loads(run.stdout)["data"]["verdict"] == "holds"
    ((reference,), (port,)) = (Recording.from_directory(out / side).trained for side in ("reference", "npu"))
    return reference, port


def pairs(reference, port, kind, *same):
    """The events of `kind` of both sides, whose fields `same` are the same."""
    found = list(zip(reference.of_kind(kind), port.of_kind(kind), strict=True))
    assert found, kind
    for one, other in found:
        assert [one[field] for field in same] == [other[field] for field in same], kind
    return found


def test_both_runs_of_a_port_have_the_same_quantities(tmp_path):
    reference, port = recorded(tmp_path / "out", [str(SCRIPT), "--", "--epochs", "1"])
    ((one, _),) = pairs(reference, port, "parameters", "optimizer", "step", "names", "sizes")
    assert one["names"][0] == "conv1.weight"
    measured = pairs(reference, port, "norms", "optimizer", "step")
    assert len(measured) == len(reference.steps) == len(port.steps)
    for one, other in measured:
        for quantity in ("gradient", "norm", "change"):
            assert len(one[quantity]) == len(port.of_kind("parameters")[0]["names"])
            assert min(one[quantity]) > 0
            assert other[quantity] == pytest.approx(one[quantity], rel=CLOSE, abs=1e-7), one["step"]
    inputs = pairs(reference, port, "inputs", "site", "step")
    assert len(inputs) == len(reference.steps)
    for one, other in inputs:
        assert other["norms"] == pytest.approx(one["norms"], rel=CLOSE)
    # Without --amp its region is off within none, and changes nothing.
    assert reference.of_kind("autocast") == port.of_kind("autocast") == []
    # The device is read once a step, and yet the journal has things in the order in which they happened.
    told = ("inputs", "loss", "step", "settings", "parameters", "norms")
    orders = [[event["kind"] for event in one.events if event["kind"] in told] for one in (reference, port)]
    assert orders[0] == orders[1]


KILLED = """
import os, signal, sys
from torchport import vnpu
vnpu.activate()
import torch
weight = torch.nn.Parameter(torch.ones(3, device="npu"))
optimizer = torch.optim.SGD([weight], 0.1)
for step in range(4):
    for part in range(3):
        loss = (weight * (part + 1)).sum()
        (loss / 2).backward()
        loss.detach().zero_()
    if step == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    optimizer.step()
    optimizer.zero_grad()
"""


def test_a_killed_process_loses_one_loss(tmp_path):
    Result("record", data={"recording": VERSION}).write(tmp_path / HEAD)
    script = tmp_path / "train.py"
    script.write_text(KILLED)
    environment = {**os.environ, "PYTHONPATH": startup.FOLDER, "TORCHPORT_RECORD": Options(str(tmp_path)).to_variable()}
    ended = subprocess.run([sys.executable, script], env=environment, check=False)
    assert ended.returncode == -signal.SIGKILL
    (process,) = Recording.from_directory(tmp_path).processes
    losses = [event["value"] for event in process.of_kind("loss")]
    assert len(losses) == 11, "of 12"
    # Each step takes 0.3 from each of three weights: (1 + 2 + 3) / 2 * 0.1.
    weights = [1.0, 0.7, 0.4, 0.1]
    expected = [1.5 * factor * weight for weight in weights for factor in (1, 2, 3)]
    assert losses == pytest.approx(expected[:-1], rel=1e-5)
    launches = [event["launches"] for event in process.of_kind("loss")]
    assert all(before < after for before, after in itertools.pairwise(launches))


def test_a_compiled_module_is_measured_without_a_graph_break(tmp_path):
    script = tmp_path / "work" / "train.py"
    script.parent.mkdir()
    script.write_text(COMPILED)
    reference, port = recorded(tmp_path / "out", [str(script)])
    ((one, _),) = pairs(reference, port, "parameters", "names", "sizes")
    assert "_orig_mod.first.weight" in one["names"]
    assert len(pairs(reference, port, "norms", "optimizer", "step")) == 24
    assert len(pairs(reference, port, "inputs", "site", "step")[0][0]["norms"]) == 2
    pairs(reference, port, "scaler", "step", "scale", "skipped")
    # Its forward is compiled in the port, where nothing sees calls; the loop's own are the same.
    in_loop = {event["site"] for event in port.of_kind("upload")}
    assert len(in_loop) == 3
    for site in in_loop:
        both = [
            [
                (event["visit"], event["size"], event["checksum"])
                for event in one.of_kind("upload")
                if event["site"] == site
            ]
            for one in (reference, port)
        ]
        assert both[0] == both[1]
        assert [visit for visit, _, _ in both[0]] == list(range(24))
        assert all(checksum for _, _, checksum in both[0])
