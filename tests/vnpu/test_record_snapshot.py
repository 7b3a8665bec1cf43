"""What a recording keeps of a run's start beside weights: enough to draw the same numbers, and nobody's secrets."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
import torch

from torchport.record import snapshot
from torchport.record.recording import Recording


def drawn() -> list[float]:
    return [random.random(), float(numpy.random.rand()), torch.rand(()).item()]


def test_kept_generators_draw_the_same_again(tmp_path: Path) -> None:
    drawn()
    torch.save(snapshot.read_generator_states(torch), tmp_path / "states.pt")
    expected = drawn()
    assert drawn() != expected
    states = torch.load(tmp_path / "states.pt", weights_only=True)
    version, words, gauss = states["python"]
    random.setstate((version, tuple(words), gauss))
    numpy.random.set_state(states["numpy"])
    torch.set_rng_state(states["torch"])
    assert drawn() == expected


def test_asking_for_generators_draws_nothing() -> None:
    torch.manual_seed(3)
    random.seed(3)
    numpy.random.seed(3)
    expected = drawn()
    torch.manual_seed(3)
    random.seed(3)
    numpy.random.seed(3)
    snapshot.read_generator_states(torch)
    assert drawn() == expected


def test_of_the_environment_only_what_changes_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setenv("MY_API_KEY", "secret")
    torch.use_deterministic_algorithms(True)
    try:
        found = snapshot.collect_environment(torch)
    finally:
        torch.use_deterministic_algorithms(False)
    assert found["variables"]["OMP_NUM_THREADS"] == "7"
    assert "secret" not in json.dumps(found)
    assert found["versions"]["torch"] == torch.__version__
    assert (found["deterministic"], found["default_dtype"]) == (True, "float32")
    assert snapshot.collect_environment(torch)["deterministic"] is False


@pytest.mark.parametrize("on", ["cpu", "npu"])
def test_flags_and_packages_are_those_that_the_script_has_chosen(tmp_path: Path, on: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import h5py, torch\n"
        "torch.set_float32_matmul_precision('medium')\n"
        "weight = torch.ones(2, device='cuda', requires_grad=True)\n"
        "optimizer = torch.optim.SGD([weight], lr=0.1)\n"
        "weight.sum().backward()\n"
        "optimizer.step()\n"
    )
    words = ["run", "-q", "--record", str(tmp_path / "rec"), "--level", "none", "--on", on, str(script)]
    subprocess.run([sys.executable, "-m", "torchport", *words], check=True, capture_output=True)
    (event,) = Recording.from_directory(tmp_path / "rec").of_kind("surroundings")
    assert event["flags"]["torch.get_float32_matmul_precision"] == "medium"
    assert {"torch", "h5py", "numpy"} <= event["packages"].keys()
    assert not {"json", "argparse"} & event["packages"].keys()
