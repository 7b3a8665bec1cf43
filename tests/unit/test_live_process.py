"""auto and record change a live torch: their checks run in one process of its own, each is one test here."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKS = Path(__file__).with_name("data") / "torch_checks.py"
NAMES = [node.name for node in ast.parse(CHECKS.read_text()).body if getattr(node, "name", "").startswith("check_")]


@pytest.fixture(scope="module")
def outcomes():
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "OMP_NUM_THREADS": "1"}
    run = subprocess.run([sys.executable, CHECKS], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.mark.processes
@pytest.mark.parametrize("name", NAMES)
def test_check(outcomes, name):
    assert outcomes[name] == "", outcomes[name]


def test_there_are_checks():
    assert len(NAMES) > 15


@pytest.mark.parametrize("module", ["torchport.auto", "torchport.record.reference", "torchport.record.recorder"])
def test_import_is_light(module, imports_little):
    assert imports_little(module)


def test_a_heavy_import_is_seen(imports_little):
    assert not imports_little("sympy")
