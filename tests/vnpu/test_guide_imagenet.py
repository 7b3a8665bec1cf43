"""ImageNet's main.py with the porting guide's changes: on one device, and with a process for each of two. And the way
without changes: torch_npu's own redirection, which the guide has scripts import.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("data") / "guide_imagenet.py"
LINE = re.compile(r"epoch (\d+) on npu:(\d) of (-?\d+): accuracy ([\d.]+)")


def run(folder: Path, *words: str) -> list[tuple[int, int, int, float]]:
    """Epoch, device, world size and accuracy of each line."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [sys.executable, "-m", "torchport", "run", "-q", str(SCRIPT), "--", "--port", port, *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    return sorted(
        (int(epoch), int(device), int(world), float(accuracy))
        for epoch, device, world, accuracy in LINE.findall(ended.stdout)
    )


def test_single_device(tmp_path: Path) -> None:
    ((*first, _), (*second, accuracy)) = run(tmp_path, "--device-list", "1")
    assert (first, second) == ([0, 1, -1], [1, 1, -1])
    assert accuracy > 0.5  # of four classes


@pytest.mark.ports
def test_several_devices_with_mixed_precision_and_resume(tmp_path: Path) -> None:
    words = ["--multiprocessing-distributed", "--world-size", "1", "--rank", "0", "--device-list", "1,0", "--amp"]
    trained = run(tmp_path, *words)
    assert [line[:3] for line in trained] == [(0, 0, 2), (0, 1, 2), (1, 0, 2), (1, 1, 2)]
    assert trained[2][3] == trained[3][3] > 0.5
    (line, _) = run(tmp_path, *words, "--resume", "checkpoint.pth.tar", "--epochs", "3")
    assert line[:3] == (2, 0, 2)
    assert line[3] >= trained[2][3] - 0.05


def test_redirection_of_torch_npu(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\nimport torch_npu\nfrom torch_npu.contrib import transfer_to_npu\n"
        "model = torch.nn.Linear(2, 1).cuda()\nx = torch.ones(4, 2, device='cuda:0')\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "losses = []\nfor _ in range(3):\n    loss = model(x).square().mean()\n    optimizer.zero_grad()\n"
        "    loss.backward()\n    optimizer.step()\n    losses.append(loss.item())\n"
        "torch.cuda.synchronize()\nprint(x.device, losses[2] < losses[0])\n"
    )
    command = [sys.executable, "-m", "torchport", "run", "--as-is", str(script)]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.stdout.splitlines()[-1] == "npu:0 True", ended.stderr
