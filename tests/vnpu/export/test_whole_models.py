"""What people train, from checkpoints of the CPU and of an NPU, with and without prefix, in opset 11 and the newest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from forked import python
from networks import NETWORKS

HERE = Path(__file__).parent
pytestmark = pytest.mark.exports
SAVE = """
import sys; sys.path.insert(0, {here!r})
import torch, networks
model = networks.make({name!r}).to({device!r})
names = {{("module." if {prefix} else "") + name: value for name, value in model.state_dict().items()}}
torch.save({{"epoch": 3, "state_dict": names}}, {path!r})
"""


# How each was saved: where, and with DistributedDataParallel's prefix.
@pytest.mark.parametrize(("opset", "device", "prefix"), [("11", "npu", True), ("newest", "cpu", False)])
@pytest.mark.parametrize("name", NETWORKS)
def test_model_is_the_same_in_onnx(name: str, opset: str, device: str, prefix: bool, tmp_path: Path) -> None:
    path = tmp_path / "saved.pth.tar"
    saved = python(SAVE.format(here=str(HERE), name=name, device=device, prefix=prefix, path=str(path)))
    assert saved.returncode == 0, saved.stderr
    factory, inputs, options = NETWORKS[name]
    words = ["export", str(path), "--model", f"networks:{factory}", "-o", str(tmp_path / "model.onnx"), *options]
    words += [word for text in inputs for word in ("--input", text)]
    environment = os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "torchport", *words, "--opset", opset, "--json"],
        cwd=HERE,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["opset"] == (11 if opset == "11" else 20)
    assert result["loaded"]["removed"] == (["module."] if prefix else [])
    assert {row["sizes"].split("x")[0] for row in result["rows"]} == {"1", "3", "8"}
    assert max(row["relative"] for row in result["rows"]) < 1e-4
    assert result["taken"]["refused"] == {} or opset != "11"
    print(name, opset, result["exporter"], result["nodes"], max(row["relative"] for row in result["rows"]))
