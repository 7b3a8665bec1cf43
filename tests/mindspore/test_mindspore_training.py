"""Networks train on MindSpore's Ascend backend as in torch and as on its CPU: losses of ten steps, gradients of the first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from running import answers, clean, run

LOSS, GRADIENT = 1e-6, 1e-6  # relative; absolute


def trained(network: str, cwd: Path, *words: str, layers: str = "mint") -> dict[str, Any]:
    result = run("train.py", network, *words, cwd=cwd, LAYERS=layers)
    clean(result)
    (said,) = answers(result)
    assert said["torch"][-1] < said["torch"][0]
    return said


def apart(losses: list[float], others: list[float]) -> float:
    return max(abs(a - b) / abs(b) for a, b in zip(losses, others, strict=True))


@pytest.mark.parametrize("network", ["lenet", "resnet18", "bert", "gpt"])
def test_losses_and_gradients_are_torchs(network: str, tmp_path: Path) -> None:
    said = trained(network, tmp_path)
    for mode in ("pynative", "jit"):
        assert apart(said[mode], said["torch"]) <= LOSS, (mode, said)
        assert said[f"{mode}_gradients"] <= GRADIENT, mode
    assert said["pynative"] == said["jit"]


# mint's convolution and embedding have no kernel there: the networks are made of nn's layers. Not ResNet-18, whose
# gradients on MindSpore's CPU are 6e-6 from torch's.
@pytest.mark.parametrize("network", ["lenet", "bert", "gpt"])
def test_losses_and_gradients_are_those_of_mindspores_cpu(network: str, tmp_path: Path) -> None:
    ours = trained(network, tmp_path, "Ascend", str(tmp_path / "ascend"), layers="nn")
    cpus = trained(network, tmp_path, "CPU", str(tmp_path / "cpu"), layers="nn")
    for mode in ("pynative", "jit"):
        assert apart(ours[mode], cpus[mode]) <= LOSS, (mode, ours, cpus)
        first, other = (np.load(tmp_path / f"{side}_{mode}.npz") for side in ("ascend", "cpu"))
        assert max(float(np.abs(first[name] - other[name]).max()) for name in first) <= GRADIENT, mode
    assert ours["pynative"] == ours["jit"]
