"""Every way to start training under `torchport run`: each gets to the NPU, with its arguments."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TEXT = """
import os, sys
import torch
x = torch.ones(2).cuda()
print(x.device.type, torch.ones(2).to("cuda").sum().item(), sys.argv[1:], os.environ.get("WORLD_SIZE"), flush=True)
"""
SAYS = "cuda 2.0 ['--lr', '1'] {}"
TWICE = [SAYS.format(2)] * 2
ONCE = [SAYS.format(None)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "part.py").write_text("import torch\n")
    (tmp_path / "pkg" / "train.py").write_text(f"from .part import torch\n{TEXT}")
    (tmp_path / "train.py").write_text(TEXT)
    (tmp_path / "train.sh").write_text('exec python train.py "$@"\n')
    cells = ["%matplotlib inline\n", TEXT.strip()]
    notebook = {"cells": [{"cell_type": "code", "source": text} for text in cells]}
    (tmp_path / "nb.ipynb").write_text(json.dumps(notebook))
    return tmp_path


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("train.py --lr 1 -q", ONCE),
        ("-q -m pkg.train --lr 1", ONCE),
        ("-q nb.ipynb --lr 1", ONCE),
        ("-q - --lr 1", ONCE),
        pytest.param("-q -- python -u train.py --lr 1", ONCE, marks=pytest.mark.ports),
        ("-q -- bash train.sh --lr 1", ONCE),
        pytest.param("-q --nproc 2 -m pkg.train --lr 1", TWICE, marks=pytest.mark.ports),
        ("-q -- OMP_NUM_THREADS=1 torchrun --nproc-per-node 2 nested/../train.py --lr 1", TWICE),
    ],
)
def test_it_runs_on_the_npu(folder: Path, words: str, says: list[str]) -> None:
    (folder / "nested").mkdir()
    command = [sys.executable, "-m", "torchport", "run", *words.split()]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"}
    ended = subprocess.run(
        command, env=environment, cwd=folder, input=TEXT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == says
