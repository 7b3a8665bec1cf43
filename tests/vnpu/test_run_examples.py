"""The examples are CUDA scripts; `torchport run` trains them on the NPU as they are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(script: str, *words: str, folder: Path, options: tuple[str, ...] = ("-q",)) -> str:
    command = [sys.executable, "-m", "torchport", "run", *options, str(EXAMPLES / script), "--", *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.parametrize(
    ("script", "words", "says"),
    [
        ("vae/train.py", ["--epochs", "2"], "on cuda: sample mean"),
        ("lstm/train.py", ["--steps", "11"], "MiB on Ascend910B1"),
        *(
            pytest.param(*row, marks=pytest.mark.ports)
            for row in (
                ("reinforce/train.py", ["--episodes", "5"], "trained on GPU"),
                ("gan/train.py", ["--epochs", "1"], "on Ascend910B1"),
                ("gpt/train.py", ["--steps", "2", "--layers", "1"], "step    1  loss"),
                ("apex/train.py", ["--epochs", "1"], "epoch 0  loss"),
            )
        ),
    ],
)
def test_trains(tmp_path: Path, script: str, words: list[str], says: str) -> None:
    assert says in run(script, *words, folder=tmp_path)


@pytest.mark.ports
def test_imagenet_trains_resumes_and_evaluates(tmp_path: Path) -> None:
    one = ["--gpu", "0", "--limit", "64", "--seed", "1"]
    trained = run("imagenet/main.py", "--epochs", "1", "--amp", "--checkpoint", "x.pt", *one, folder=tmp_path)
    resumed = run("imagenet/main.py", "--resume", "x.pt", "--evaluate", *one, folder=tmp_path)
    assert "=> loading checkpoint 'x.pt'" in resumed
    assert trained.splitlines()[-1] == resumed.splitlines()[-1]  # the accuracy


def test_imagenet_with_a_process_per_device(tmp_path: Path) -> None:
    words = ["--epochs", "1", "--limit", "64", "--multiprocessing-distributed", "--world-size", "1", "--rank", "0"]
    text = run("imagenet/main.py", *words, folder=tmp_path, options=("-q", "--device-list", "0,1"))
    assert text.count(" * Acc@1") == 2
    assert len({line for line in text.splitlines() if line.startswith(" * Acc@1")}) == 1
