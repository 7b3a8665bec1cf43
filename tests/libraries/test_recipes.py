"""`torchport port` on trainers, with the commands that their projects print, on one rank and on two.

recipes/<name>/prepare.py lays out the project in an empty folder: a clone of its repository, a tiny random model and
random data. The options of `port` are the default ones, the control run included. OpenCLIP computes in float32, not in its
default `--precision amp`: half precision is left out, because rounding alone fills the bias of the keys in its attention.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import environment, torchport

RECIPES = Path(__file__).with_name("recipes")
# By name and ranks: the folder of the project in which the command is given, and the words after `torchport port`.
OPENCLIP = (
    "-m open_clip_train.main --train-data train.csv --dataset-type csv --model local-dir:tiny --batch-size 16 "
    "--epochs 1 --warmup 2 --workers 0 --precision fp32 --name tiny"
)
TORCHTITAN = "bash run_train.sh --training.steps 5 --training.seq_len 128 --training.local_batch_size 2"
COMMANDS = {
    ("lightning", 1): (".", "train.py 1"),
    ("lightning", 2): (".", "--nproc 2 train.py 2"),
    ("openclip", 1): ("src", OPENCLIP),
    ("openclip", 2): ("src", f"--nproc 2 {OPENCLIP}"),
    ("torchtitan", 1): (".", f"-- NGPU=1 {TORCHTITAN}"),
    ("torchtitan", 2): (".", f"-- NGPU=2 {TORCHTITAN}"),
}


@pytest.mark.parametrize(("name", "ranks"), COMMANDS)
def test_port_of_recipe_holds(tmp_path: Path, name: str, ranks: int) -> None:
    project = tmp_path / name
    project.mkdir()
    prepare = [sys.executable, str(RECIPES / name / "prepare.py")]
    subprocess.run(prepare, env=environment(tmp_path), cwd=project, check=True)
    folder, words = COMMANDS[name, ranks]
    out = tmp_path / "out"
    command = [sys.executable, "-m", "torchport", "port", "--json", "--out", str(out), *words.split()]
    ended = torchport(command, project / folder)
    assert ended.stdout.startswith("{"), ended.stderr
    data = json.loads(ended.stdout)["data"]
    assert data["verdict"] == "holds", data["reason"]
    assert ended.returncode == 0


def test_every_recipe_has_one_and_two_ranks() -> None:
    names = [path.parent.name for path in RECIPES.glob("*/prepare.py")]
    assert COMMANDS.keys() == {(name, ranks) for name in names for ranks in (1, 2)}
