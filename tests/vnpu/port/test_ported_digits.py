"""`torchport port` on the example: the bounds that a port of it has to hold."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "examples" / "digits" / "train.py"


def port(out, *arguments):
    command = [sys.executable, "-m", "torchport", "port", str(SCRIPT), "--out", str(out), "--json", "--timeout", "500"]
    run = subprocess.run([*command, "--", *arguments], capture_output=True, text=True, check=False)
    assert run.stdout, run.stderr
    result = json.loads(run.stdout)
    assert run.returncode == 0, [finding["message"] for finding in result["findings"]]
    return result["data"]["comparison"]


def accuracy(comparison):
    (row,) = (row for row in comparison["metrics"] if row["name"] == "test accuracy")
    return row["reference"], row["port"]


def test_fp32_holds_step_by_step(tmp_path):
    comparison = port(tmp_path / "out", "--epochs", "3")
    assert comparison["method"] == "step by step"
    assert comparison["steps"] == {"kind": "optimizer step", "reference": 132, "port": 132}
    assert comparison["worst"]["first"] <= 1e-4
    assert comparison["worst"]["run"] <= 1e-2
    original, ported = accuracy(comparison)
    assert min(original, ported) >= 97
    assert abs(original - ported) <= 0.5


@pytest.mark.ports
def test_dropout_is_compared_step_by_step(tmp_path):
    comparison = port(tmp_path / "out", "--epochs", "2", "--dropout", "0.3")
    assert (comparison["method"], comparison["chance"]) == ("step by step", [])
    assert comparison["worst"]["first"] <= 1e-4


@pytest.mark.ports
def test_mixed_precision_is_compared_with_the_same_precision(tmp_path):
    comparison = port(tmp_path / "out", "--epochs", "1", "--amp")
    assert comparison["tolerance"]["dtype"] == "float16"
    assert comparison["method"] == "step by step at first, then statistically"
    # The reference rounds to float16 as well: closer than the bound for half precision against float32.
    assert comparison["worst"]["first"] <= 1e-2


@pytest.mark.ports
def test_a_checkpoint_is_resumed_on_both_sides(tmp_path):
    checkpoint = str(tmp_path / "checkpoint.pt")
    port(tmp_path / "first", "--epochs", "1", "--checkpoint", checkpoint)  # what the port leaves, both resume
    comparison = port(tmp_path / "second", "--epochs", "2", "--resume", checkpoint)
    assert comparison["steps"] == {"kind": "optimizer step", "reference": 44, "port": 44}
    (curve,) = comparison["curves"]
    assert curve["reference"][0] < 0.5
    assert comparison["worst"]["first"] <= 1e-4
