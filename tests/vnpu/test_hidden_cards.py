"""A script that hides its cards trains on the CPU: under `torchport run`, and converted under plain python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from torchport import vnpu
from torchport.convert import convert_tree

HIDE = """\
if "CUDA_VISIBLE_DEVICES" not in os.environ:
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
"""
TRAIN = """\
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    net = torch.nn.Linear(4, 2).to(device)
    scaler = torch.cuda.amp.GradScaler(enabled=False)
    loader = DataLoader(torch.ones(6, 4), batch_size=3, num_workers=1, pin_memory=True)
    for kind in (torch.optim.SGD, torch.optim.Adam, torch.optim.RMSprop):
        optimizer = kind(net.parameters(), lr=0.1)
        for data in loader:
            with torch.cuda.amp.autocast(enabled=False):
                loss = checkpoint(net, data.to(device), use_reentrant=False).square().sum()
            scaler.scale(loss).backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimizer)
    print(net.weight.device, torch.isfinite(net.weight).all().item())
    if device.type == "cpu":
        print(torch.cuda.is_bf16_supported())


if __name__ == "__main__":
    main()
"""
BEFORE = "import os\n" + HIDE + "import torch\n" + TRAIN
BEHIND = "import os\nimport torch\n" + HIDE + TRAIN
CHOSEN = BEHIND.replace(' = "-1"', ' = "-1" if os.environ.get("CPU", "1") else "0"')


def run(*command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | vnpu.environment() | variables
    return subprocess.run(
        [sys.executable, *map(str, command)], env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("outside", [{}, {"CUDA_VISIBLE_DEVICES": ""}, {"CUDA_VISIBLE_DEVICES": "0"}])
def test_run(outside: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(BEHIND)
    ended = run("-m", "torchport", "run", "-q", tmp_path / "train.py", **outside)
    expected = "cuda:0 True\n" if outside == {"CUDA_VISIBLE_DEVICES": "0"} else "cpu True\nFalse\n"
    assert (ended.stdout, ended.returncode) == (expected, 0), ended.stderr


@pytest.mark.parametrize("script", [BEFORE, BEHIND, CHOSEN], ids=["before the import", "behind the import", "chosen"])
@pytest.mark.parametrize("outside", [{}, {"ASCEND_RT_VISIBLE_DEVICES": "0"}])
def test_converted(script: str, outside: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "train.py").write_text(script)
    convert_tree(tmp_path / "in", tmp_path / "out")
    ended = run(tmp_path / "out" / "train.py", **outside)
    expected = "npu:0 True\n" if outside else "cpu True\nFalse\n"
    assert (ended.stdout, ended.returncode) == (expected, 0), ended.stderr
