"""`torchport compare --model`: each module of a model by itself, on the NPU and on the CPU, in train and in eval mode."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

# What is wrong is wrong on the device alone: a module by itself, one in a container, a gradient, a container's own code.
NET = """
import torch
from torch import nn

print("importing prints")


def off(x):
    return x.dtype == torch.float32 and x.device.type == "DEVICE"


class Coarse(nn.Module):
    def forward(self, x):
        return x.bfloat16().to(x.dtype) if off(x) else x


class Backwards(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 1.001 if off(gradient) else gradient


class Gradient(nn.Module):
    def forward(self, x):
        return Backwards.apply(x)


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(16, 16)

    def forward(self, x, *, factor=1.0):
        return x * (1.01 if off(x) else 1.0) + factor * self.inner(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), Coarse(), nn.ReLU(inplace=True))
        self.hidden = Residual()
        self.act, self.drop = nn.GELU(), nn.Dropout()
        self.gradient, self.out = Gradient(), nn.Linear(16, 4)

    def forward(self, x):
        return self.out(self.gradient(self.drop(self.act(self.hidden(self.first(x), factor=0.5)))))


def make():
    torch.manual_seed(0)
    return Net(), torch.randn(32, 8)


def alone():
    return Net()


def narrow():
    return nn.Sequential(nn.Linear(3, 4)), (torch.randn(2, 8),)
"""


def compare(folder, device, *words, **variables):
    (folder / "net.py").write_text(NET.replace("DEVICE", device))
    command = [sys.executable, "-m", "torchport", "compare", *words]
    return subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", **variables},
    )


def test_the_modules_that_are_wrong_on_the_device_are_named(tmp_path):
    ended = compare(tmp_path, "npu", "--model", "net:make", "--json")
    assert ended.returncode == 1, ended.stderr
    said = json.loads(ended.stdout)
    assert said["device"] == "npu"
    rows = said["modules"]
    wrong = {(row["mode"], row["module"], row["result"]) for row in rows if row["wrong"]}
    assert {(mode, name) for mode, name, _ in wrong} == {
        (mode, name) for mode in ("train", "eval") for name in ("first.2", "hidden", "gradient")
    }
    assert {result for _, name, result in wrong if name == "gradient"} == {"gradient of input 0"}
    held = {(row["mode"], row["module"]): row["holds"] for row in rows if row["holds"]}
    assert held == {("train", "first"): "first.2", ("eval", "first"): "first.2", ("eval", ""): "first.2"}
    unjudged = {(row["mode"], row["kind"]): row["why"] for row in rows if row["why"]}
    assert unjudged == dict.fromkeys([("train", "Net"), ("train", "Dropout")], "it draws random numbers")
    assert len(rows) == 24
    right = [row for row in rows if not (row["wrong"] or row["holds"] or row["why"])]
    assert max(row["score"] for row in right) < 3
    assert all(row["results"] >= 2 for row in right)  # forward and backward


def test_nothing_is_wrong_where_nothing_is(tmp_path):
    ended = compare(tmp_path, "nowhere", "--model", "net:make")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "nothing is wrong on npu\n22 modules judged" in ended.stdout
    assert "importing prints" not in ended.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--model", "net:absent", "--device", "cpu"], "cannot be made: AttributeError"),
        (["--model", "net:alone", "--device", "cpu"], "gives no pair"),
        (["--model", "net:narrow", "--device", "cpu"], "does not run on the CPU: mat1 and mat2"),
        (["--model", "nowhere:make", "--device", "cpu"], "cannot be made: ModuleNotFoundError"),
    ],
)
def test_what_is_no_model(tmp_path, words, said):
    ended = compare(tmp_path, "cpu", *words)
    assert ended.returncode == 2
    assert said in ended.stderr
