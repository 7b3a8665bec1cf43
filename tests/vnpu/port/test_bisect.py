"""`torchport bisect`: the operator that takes a loss away is named, proven by a run with it alone on the CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "data" / "bisected_training.py"


@pytest.mark.ports
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("faults", "status", "outcome", "operators"),
    [
        ("gelu_backward", 1, "found", ["aten::gelu_backward"]),
        ("silu,relu", 4, "several", ["aten::relu", "aten::silu"]),
        ("data", 4, "no operator", []),
        ("none", 0, "follows", []),
    ],
)
def test_the_loss_follows_or_it_is_said_why_not(tmp_path, faults, status, outcome, operators):
    command = [sys.executable, "-m", "torchport", "bisect", "--json", "-q", str(SCRIPT), faults]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == status, ended.stderr
    said = json.loads(ended.stdout)
    assert said["outcome"] == outcome
    assert set(operators) <= set(said["operators"])
    if outcome == "found":
        assert said["operators"] == operators
        assert len(said["runs"]) <= 8
        assert {"names": operators, "count": 1, "follows": True} in [
            {name: run[name] for name in ("names", "count", "follows")} for run in said["runs"]
        ]
