"""The reference's pretence of CUDA: its checks run in one process of their own, each is one test here."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

CHECKS = Path(__file__).with_name("data") / "reference_checks.py"
NAMES = [node.name for node in ast.parse(CHECKS.read_text()).body if getattr(node, "name", "").startswith("check_")]


@pytest.fixture(scope="module")
def outcomes():
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "OMP_NUM_THREADS": "1"}
    run = subprocess.run([sys.executable, CHECKS], env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.mark.parametrize("name", NAMES)
def test_check(outcomes, name):
    assert outcomes[name] == "", outcomes[name]


def test_there_are_checks():
    assert len(NAMES) > 20
