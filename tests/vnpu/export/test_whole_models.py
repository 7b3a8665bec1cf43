"""Whole models, ours and libraries', from checkpoints of the CPU and of an NPU, in opset 11 and the newest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import library_networks
import pytest
from forked import python
from networks import NETWORKS

HERE = Path(__file__).parent
LIBRARIES = HERE.parents[2] / "build" / "libraries"
STORED = HERE / "exported.json"  # docs/reference/exports.md shows it; `make exports UPDATE=1` writes it
pytestmark = pytest.mark.exports
SAVE = """
import sys; sys.path[:0] = [{here!r}, *{libraries!r}]
import torch, {module}
model = {module}.make({name!r}).to({device!r})
names = {{("module." if {prefix} else "") + name: value for name, value in model.state_dict().items()}}
torch.save({{"epoch": 3, "state_dict": names}}, {path!r})
"""


def export(module: str, name: str, path: Path, opset: str, *, libraries: bool = False) -> dict:
    """The JSON of `torchport export`, which has to hold."""
    factory, inputs, options = (library_networks.NETWORKS if libraries else NETWORKS)[name]
    words = ["export", str(path), "--model", f"{module}:{factory}", "-o", str(path.with_name("model.onnx")), *options]
    words += [word for text in inputs for word in ("--input", text)]
    environment = os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    if libraries:
        environment |= {"PYTHONPATH": str(LIBRARIES), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "torchport", *words, "--opset", opset, "--json"],
        cwd=HERE,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    result = json.loads(done.stdout)
    assert result["word"] == "holds" and result["opset"] == (11 if opset == "11" else 20)
    assert max(row["relative"] for row in result["rows"]) < 1e-4
    found = {"exporter": result["exporter"], "nodes": result["nodes"]}
    found["relative"] = float(f"{max(row['relative'] for row in result['rows']):.1e}")
    print(name, opset, found)
    if os.environ.get("UPDATE"):
        stored = json.loads(STORED.read_text()) if STORED.exists() else {}
        stored.setdefault(module, {}).setdefault(name, {})[opset] = found
        STORED.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n")
    return result


# How each was saved: where, and with DistributedDataParallel's prefix.
@pytest.mark.parametrize(("opset", "device", "prefix"), [("11", "npu", True), ("newest", "cpu", False)])
@pytest.mark.parametrize("name", NETWORKS)
def test_model_is_the_same_in_onnx(name: str, opset: str, device: str, prefix: bool, tmp_path: Path) -> None:
    path = tmp_path / "saved.pth.tar"
    given = {"here": str(HERE), "libraries": [], "module": "networks", "path": str(path)}
    saved = python(SAVE.format(name=name, device=device, prefix=prefix, **given))
    assert saved.returncode == 0, saved.stderr
    result = export("networks", name, path, opset)
    assert result["loaded"]["removed"] == (["module."] if prefix else [])
    assert {row["sizes"].split("x")[0] for row in result["rows"]} == {"1", "3", "8"}
    assert result["taken"]["refused"] == {} or opset != "11"


@pytest.mark.skipif(not LIBRARIES.exists(), reason="the libraries are not installed: make exports does it")
@pytest.mark.parametrize("opset", ["11", "newest"])
@pytest.mark.parametrize("name", library_networks.NETWORKS)
def test_model_of_a_library_is_the_same_in_onnx(name: str, opset: str, tmp_path: Path) -> None:
    path = tmp_path / "saved.pth"
    given = {"here": str(HERE), "libraries": [str(LIBRARIES)], "module": "library_networks", "path": str(path)}
    saved = python(SAVE.format(name=name, device="cpu", prefix=False, **given))
    assert saved.returncode == 0, saved.stderr
    export("library_networks", name, path, opset, libraries=True)
