"""`torchport case` on the NPU: the tests that it writes hold forward and backward, and fail where an operator is wrong."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from torchport import vnpu

TRAIN = """
import torch, torch_npu

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Tanh()).npu()
x = torch.randn(2, 4, 8).npu().requires_grad_()
for _ in range(2):
    y = net(x)
    out = torch_npu.npu_fusion_attention(y, y, y, 2, "BSH", scale=0.5)[0]
    out.sum().backward()
    net.zero_grad()
"""
# What computes on the device in a test that a case is: the NPU's own kernel, or a wrong one.
WRONG = """
import torch
import torch_npu

library = torch.library.Library("aten", "IMPL")
library.impl("tanh", lambda x: torch.sigmoid(2 * x) * 2 - 1.001, "PrivateUse1")
library.impl("tanh_backward", lambda gradient, y: gradient * (1 - y * y) * 1.001, "PrivateUse1")
"""
CASES = ("gelu", "gelu_backward", "tanh", "npu_fusion_attention")


def run(folder, *words):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **vnpu.environment(os.environ)}
    return subprocess.run(
        [sys.executable, "-m", *words], cwd=folder, capture_output=True, text=True, check=False, env=environment
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("cases")
    (made / "train.py").write_text(TRAIN)
    words = ["--record", "rec", "--on", "npu", "--level", "tensor", "--filter", "step=0", "train.py"]
    assert (ended := run(made, "torchport", "run", "-q", *words)).returncode == 0, ended.stderr
    for name in CASES:
        ended = run(made, "torchport", "case", "rec", "--op", f"{name}:0", "-o", name)
        assert ended.returncode == 0, ended.stderr
    words = ["--operator", "aten::softplus", "--input", "4x32:float16:-5:5", "-o", "spec"]
    assert run(made, "torchport", "case", *words).returncode == 0
    return made


def outcomes(folder):
    """By case and test."""
    words = ["-q", "-p", "no:cacheprovider", "-rA", "--import-mode=importlib"]
    ended = run(folder, "pytest", *words, *(f"{name}/test_case.py" for name in (*CASES, "spec")))
    found = re.findall(r"^(PASSED|FAILED|SKIPPED|ERROR) (\S+)/test_case.py::test_(\S+)", ended.stdout, re.M)
    return {(case, test): word for word, case, test in found}, ended.stdout


def test_the_npu_holds_its_cases_forward_and_backward(folder):
    found, said = outcomes(folder)
    right = {(name, test): "PASSED" for name in CASES for test in ("recorded", "forward", "backward")}
    right |= {("spec", test): "PASSED" for test in ("forward", "backward")}
    # Autograd does not follow a gradient; nothing of a spec was recorded.
    del right["gelu_backward", "backward"]
    assert found == right, said


@pytest.mark.parametrize("device", [{}, {"DEVICE": "cpu"}], ids=["npu", "cpu"])
def test_pytest_runs_a_case_as_printed(folder, device):
    """In a shell that knows nothing of the virtual NPU, where torch alone would fail to load torch_npu."""
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=folder / "gelu",
        env={**vnpu.environment_without(os.environ), "OMP_NUM_THREADS": "1", **device},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "3 passed" in ended.stdout, ended.stdout


def test_a_wrong_kernel_fails_its_case_alone(folder):
    (folder / "conftest.py").write_text(WRONG)
    try:
        found, said = outcomes(folder)
    finally:
        (folder / "conftest.py").unlink()
    assert {one for one, word in found.items() if word != "PASSED"} == {("tanh", "forward"), ("tanh", "backward")}, said
