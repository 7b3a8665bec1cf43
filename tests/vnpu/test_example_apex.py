"""examples/apex runs unmodified under `torchport run`, on amp's stand-in, and learns."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

EXAMPLE = Path(__file__).parents[2] / "examples" / "apex" / "train.py"


@pytest.mark.parametrize(("level", "scale"), [("O1", "dynamic"), ("O2", "128.0")])
def test_example_runs_unmodified(level: str, scale: str, tmp_path: Path) -> None:
    file = tmp_path / "checkpoint.pt"
    command = [sys.executable, "-m", "torchport", "run", str(EXAMPLE), "--", "--epochs", "3"]
    arguments = ["--opt-level", level, "--loss-scale", scale, "--checkpoint", str(file)]
    run = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    accuracies = [float(value) for value in re.findall(r"accuracy ([\d.]+)", run.stdout)]
    assert len(accuracies) == 3 and accuracies[-1] > 0.9
    saved = torch.load(file, map_location="cpu")
    assert {value.dtype for value in saved["model"].values()} == {torch.float32}
    assert saved["amp"]["loss_scaler0"]["loss_scale"] == (2.0**16 if scale == "dynamic" else 128.0)
    assert saved["optimizer"]["state"][0]["exp_avg"].dtype == torch.float32


@pytest.mark.ports
def test_port_holds(tmp_path: Path) -> None:
    """Both runs of `torchport port`, on the CPU and on the NPU, import the stand-in."""
    command = [sys.executable, "-m", "torchport", "port", str(EXAMPLE), "--out", str(tmp_path / "out"), "--json"]
    run = subprocess.run(
        [*command, "--", "--epochs", "1", "-b", "256"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    comparison = json.loads(run.stdout)["data"]["comparison"]
    assert comparison["steps"] == {"kind": "optimizer step", "reference": 5, "port": 5}
    assert comparison["worst"]["first"] <= 1e-3
