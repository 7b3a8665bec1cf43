"""Two ranks on one card: the reference refuses what NCCL refuses, and no script with cards of its own."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

SCRIPT = Path(__file__).with_name("data") / "reference_cards.py"
_TABLES = {
    node.targets[0].id: [one.id for one in node.value.elts]
    for node in ast.parse(SCRIPT.read_text()).body
    if isinstance(node, ast.Assign)
}
SAYS = "DistBackendError: Duplicate GPU detected : rank 1 and rank 0 both on CUDA device "
CARDS = {"same_set_device": "1", "same_device_id": "1", "same_visible": "3"}


@pytest.fixture(scope="module")
def said():
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "OMP_NUM_THREADS": "1"}
    run = subprocess.run([sys.executable, SCRIPT], env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.mark.parametrize("case", _TABLES["REFUSED"])
def test_two_ranks_on_one_card_are_refused(said, case):
    assert said[case] == [SAYS + CARDS.get(case, "0")] * 2


@pytest.mark.parametrize("case", _TABLES["SILENT"])
def test_others_are_not(said, case):
    assert said[case] == ["", ""]
