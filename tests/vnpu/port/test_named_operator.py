"""`torchport port` names the operator that is wrong first where the losses part, without being asked."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "data" / "bisected_training.py"


def torchport(folder, *words):
    command = [sys.executable, "-m", "torchport", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.ports
@pytest.mark.timeout(900)
@pytest.mark.parametrize("level", ["statistics", "none"])
def test_beside_a_reference_that_was_recorded_elsewhere_too(tmp_path, level):
    (tmp_path / SCRIPT.name).write_bytes(SCRIPT.read_bytes())
    script = [SCRIPT.name, "gelu_backward"]
    made = torchport(tmp_path, "run", "-q", "--record", "rec", "--on", "cpu", "--level", level, *script)
    assert made.returncode == 0, made.stderr
    ended = torchport(tmp_path, "port", "--json", "-q", "--no-control", "--reference", "rec", *script)
    assert ended.returncode == 1, ended.stderr
    result = json.loads(ended.stdout)
    culprit = result["data"]["comparison"]["culprit"]
    assert culprit["first"]["operator"] == "aten::gelu_backward"
    assert culprit["causes"] == []
    assert result["data"]["reason"].startswith("first wrong: ")
    assert culprit["steps"]["reference"] == (6 if level == "statistics" else 0)
    # The port alone ran again.
    places = tmp_path / "torchport-out" / SCRIPT.stem / "compare" / "operators"
    assert [one.name for one in places.iterdir()] == ["npu"]


@pytest.mark.ports
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("fault", "operator"), [("gelu_backward", "aten::gelu_backward"), ("none", "")])
def test_the_operator_is_named_where_the_losses_part(tmp_path, fault, operator):
    (tmp_path / SCRIPT.name).write_bytes(SCRIPT.read_bytes())
    ended = torchport(tmp_path, "port", "--json", "-q", "--no-control", SCRIPT.name, fault)
    result = json.loads(ended.stdout)
    culprit = result["data"]["comparison"]["culprit"]
    codes = [finding["code"] for finding in result["findings"]]
    if not operator:
        assert ended.returncode == 0, ended.stderr
        assert culprit is None and "TP357" not in codes
        return
    assert ended.returncode == 1, ended.stderr
    assert culprit["first"]["operator"] == operator
    assert culprit["first"]["wrong"]
    named = next(finding for finding in result["findings"] if finding["code"] == "TP357")
    assert named["message"].startswith("first wrong: ") and operator in named["message"]
    assert result["data"]["reason"] == named["message"]
    assert "--op aten::gelu_backward:0" in named["hint"]
    place = tmp_path / "torchport-out" / SCRIPT.stem / "compare" / "operators" / "npu"
    assert f"torchport case {place} --step 0" in named["hint"]
    assert (place / "recording.json").is_file()
