"""A model of more than 2 GB: its weights are beside it, and in memory once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.exports
MODEL = """
import torch
from torch import nn
class Large(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8192, 8192) for _ in range(9))
    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x)) + x * 0.5
        return x
def make():
    torch.manual_seed(0)
    return Large()
if __name__ == "__main__":
    torch.save(make().state_dict(), "large.pth")
"""
WORDS = ["large.pth", "--model", "large:make", "--input", "x:1,8192", "--json"]


def test_weights_are_written_beside_and_held_once(tmp_path: Path) -> None:
    (tmp_path / "large.py").write_text(MODEL)
    environment = os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    subprocess.run([sys.executable, "large.py"], cwd=tmp_path, env=environment, check=True)
    size = (tmp_path / "large.pth").stat().st_size
    for words in (["-o", "large.onnx"], ["--check", "large.onnx"]):
        with open(tmp_path / "said", "w+") as said:
            command = [sys.executable, "-m", "torchport", "export", *WORDS, *words]
            running = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=said)
            _, status, usage = os.wait4(running.pid, 0)
            running.returncode = os.waitstatus_to_exitcode(status)
            said.seek(0)
            answer = json.load(said)
        assert running.returncode == 0 and answer["word"] == "holds"
        print(words[0], usage.ru_maxrss * 1024 / size)
        assert usage.ru_maxrss * 1024 <= 1.5 * size  # of the largest process
    assert size > 2**31
    assert (tmp_path / "large.onnx").stat().st_size < 100_000
    assert (tmp_path / "large.onnx.data").stat().st_size > 2**31
    for path in tmp_path.glob("large.[op]*"):
        path.unlink()  # gigabytes that pytest would keep
