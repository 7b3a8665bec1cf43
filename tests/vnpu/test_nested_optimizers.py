"""An optimizer that calls another one within its step: both are one step of the training."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from torchport.record.recording import Recording

CONTAINER = """
import torch
from torch import nn


class Container(torch.optim.Optimizer):
    def __init__(self, parameters, **options):
        self.inner = torch.optim.AdamW(parameters, **options)
        super().__init__(parameters, options)

    def step(self, closure=None):
        {before}
        self.inner.step()

    def zero_grad(self, *args, **kwargs):
        self.inner.zero_grad(*args, **kwargs)


torch.manual_seed(1)
net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2)).cuda()
optimizer = Container(list(net.parameters()), lr=1e-2)
for _ in range(8):
    loss = net(torch.randn(4, 8, device="cuda")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    {after}
"""
TWICE = "self.inner.step()"


def record(tmp_path: Path, script: str) -> Recording:
    (tmp_path / "train.py").write_text(script)
    command = [sys.executable, "-m", "torchport", "run", "-q", "--record", "out", "--level", "none", "train.py"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    return Recording.from_directory(tmp_path / "out")


@pytest.mark.parametrize("before", ["pass", TWICE])
def test_a_step_within_a_step_is_no_other(tmp_path: Path, before: str) -> None:
    recording = record(tmp_path, CONTAINER.format(before=before, after="pass"))
    assert recording.steps == 8
    (process,) = recording.trained
    norms = process.of_kind("norms")
    assert len(norms) == 8
    assert all(value for event in norms for value in event["change"]), "the update that the inner one has made"


def test_an_optimizer_of_other_parameters_keeps_its_steps(tmp_path: Path) -> None:
    script = CONTAINER.format(before="aside.step()", after="pass")
    aside = "aside = torch.optim.SGD([torch.ones(2, device='cuda', requires_grad=True)], 0.1)\nfor _ in range(8):"
    recording = record(tmp_path, script.replace("for _ in range(8):", aside))
    assert recording.steps == 16


def test_a_step_that_raised_leaves_nothing_behind(tmp_path: Path) -> None:
    script = CONTAINER.format(before="if _ == 3: raise ValueError", after="pass").replace(
        "    optimizer.step()\n", "    try:\n        optimizer.step()\n    except ValueError:\n        pass\n"
    )
    assert record(tmp_path, script).steps == 7
