"""`torchport port` names the operator that is wrong first where the losses part, without being asked."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "data" / "bisected_training.py"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("fault", "operator"), [("gelu_backward", "aten::gelu_backward"), ("none", "")])
def test_the_operator_is_named_where_the_losses_part(tmp_path, fault, operator):
    (tmp_path / SCRIPT.name).write_bytes(SCRIPT.read_bytes())
    command = [sys.executable, "-m", "torchport", "port", "--json", "-q", "--no-control", SCRIPT.name, fault]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=850)
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
