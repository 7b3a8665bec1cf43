"""Two recordings of other numbers of processes: the global batch is put together, nothing healthy is named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from torchport.compare.culprit import find_culprit
from torchport.errors import TorchportError

pytestmark = pytest.mark.distributed
SCRIPT = Path(__file__).parent / "batch_parts.py"
# Name: device, processes, seed of the data, level.
RUNS = {
    "alone": ("cpu", 1, 1, "tensor"),
    "two": ("cpu", 2, 1, "tensor"),
    "npu": ("npu", 2, 1, "tensor"),
    "other": ("npu", 2, 2, "tensor"),
    "statistics": ("cpu", 2, 1, "statistics"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("ranks")
    for name, (device, processes, seed, level) in RUNS.items():
        words = ["run", "-q", "--record", name, "--on", device, "--level", level, "--filter", "step=0"]
        words += ["--nproc", str(processes)] if processes > 1 else []
        ended = subprocess.run(
            [sys.executable, "-m", "torchport", *words, str(SCRIPT), str(seed)],
            cwd=made,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        assert ended.returncode == 0, ended.stderr
    return made


@pytest.mark.parametrize("name", ["two", "npu"])
def test_the_same_global_batch_of_one_and_of_two_processes(folder, name):
    found = find_culprit(folder / "alone", folder / name)
    assert found is not None
    assert [cause.text for cause in found.causes] == []
    assert found.replay is not None
    assert found.replay.wrong == []


def test_other_samples_are_named(folder):
    found = find_culprit(folder / "alone", folder / "other")
    assert found is not None
    assert found.to_json()["class"] == "data"
    assert "8 of the 8 samples of the global batch are others in step 0" in found.causes[0].text
    assert "rebuilt from 1 and 2 processes" in found.causes[0].text


def test_what_has_no_samples_is_said(folder):
    with pytest.raises(TorchportError, match="does not have what the model was given, so a batch cannot be rebuilt"):
        find_culprit(folder / "alone", folder / "statistics")
