"""A script for one device, converted for several and started in each of the ways that the guide and pytorch/examples
have: two ranks train as one does."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from torchport import vnpu
from torchport.convert import Extras, convert_tree
from torchport.convert.launcher import LAUNCHER, plan_launcher
from torchport.rules import Style

SCRIPT = Path(__file__).with_name("data") / "launched_training.py"
LOOP = """\
for rank in 0 1; do
  RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=2 python train.py --batch-size 4 & ranks="$ranks $!"
done
for rank in $ranks; do wait $rank || exit; done
"""
SPAWN = """\
import os, runpy, sys
import torch.multiprocessing as mp

def work(rank):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2")
    sys.argv = ["train.py", "--batch-size", "4"]
    runpy.run_path("train.py", run_name="__main__")

if __name__ == "__main__":
    mp.spawn(work, nprocs=2)
"""
SHAPES = {
    "shell loop": "bash loop.sh",
    "spawn": "python spawn.py",
    "launch": "python -m torch.distributed.launch --nproc_per_node=2 --master_port={port} train.py --batch-size 4",
    "torchrun": "torchrun --standalone --nproc_per_node=2 train.py --batch-size 4",
    "rendezvous": "torchrun --nnodes=1 --nproc_per_node=2 --rdzv_id=101 --rdzv_backend=c10d"
    " --rdzv_endpoint=localhost:{port} train.py --batch-size 4",
    "own launcher": "env NPROC_PER_NODE=2 bash run_distributed_npu.sh --batch-size 4",
}


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the converted script and what starts it."""
    folder = tmp_path_factory.mktemp("several")
    (folder / "train.py").write_text(SCRIPT.read_text())
    convert_tree(folder / "train.py", folder / "out", Style.NPU, Extras("train.py"))
    plan_launcher("train.py").write(folder / "out" / LAUNCHER)
    (folder / "out" / "loop.sh").write_text(LOOP)
    (folder / "out" / "spawn.py").write_text(SPAWN)
    return folder / "out"


@pytest.fixture(scope="module")
def alone(converted: Path) -> list[str]:
    """The lines that the script prints on one device."""
    said = _run(f"python -m torchport run -q {shlex.quote(str(SCRIPT))}", converted)
    assert len(said) == 3
    return said


@pytest.mark.parametrize(
    "shape", [pytest.param(name, marks=[pytest.mark.ports] * (name not in ("launch", "shell loop"))) for name in SHAPES]
)
def test_two_ranks_train_as_one(shape: str, converted: Path, alone: list[str]) -> None:
    assert _run(SHAPES[shape], converted) == alone


def _run(command: str, folder: Path) -> list[str]:
    """The lines with a loss that the command prints; the port is free, so that jobs at one time do not meet."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    given = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    words = shlex.split(command.format(port=port))
    environment = {**given, **vnpu.environment(given)}
    ended = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return [line for line in ended.stdout.splitlines() if line.startswith("epoch")]
