"""`analyze --run`: the operators of a script's first steps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from torchport.report import render_operators

pytestmark = pytest.mark.processes

SRC = Path(__file__).parents[2] / "src"
SCRIPT = """\
import argparse

import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--length", type=int, default=4)
parser.add_argument("--fail", action="store_true")
length = parser.parse_args().length
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
table = torch.linalg.eigh(torch.eye(4))  # on the host
for step in range(100):
    x = torch.randn(length, 4).sinc().cuda()  # sinc on the host
    y = model(x)
    values = torch.linalg.eigh(y.T @ y)[0]
    wide = y.double() @ y.double().T
    loss = torch.histc(y.detach(), 4).sum() * 0 + y.square().mean() + torch.zeros(1, device="cuda").sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    length += 1
    print("step", step)
    if parser.parse_args().fail:
        raise ValueError("no more")
"""


def analyze(folder: Path, *words: str) -> tuple[int, dict[str, Any], str]:
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    command = [sys.executable, "-m", "torchport", "analyze", "train.py", "--run", "--json", *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout), done.stderr


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "train.py").write_text(SCRIPT)
    return folder


@pytest.fixture(scope="module")
def seen(project: Path) -> tuple[int, dict[str, Any], str]:
    return analyze(project, "--steps", "2", "--", "--length", "6")


def rows(result: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [row for row in result["data"]["operators"]["rows"] if row["operator"] == name]


def test_ends_after_the_steps(seen: tuple[int, dict[str, Any], str]) -> None:
    code, result, stderr = seen
    assert code == 1
    assert result["data"]["operators"]["steps"] == 2
    assert "step 0" in stderr and "step 2" not in stderr  # the script's output is on stderr


def test_phases_dtypes_shapes_and_places(seen: tuple[int, dict[str, Any], str]) -> None:
    _, result, _ = seen
    forward = rows(result, "addmm")
    assert {row["phase"] for row in forward} == {"forward"}
    assert (forward[0]["path"], forward[0]["line"]) == ("train.py", 15)
    assert forward[0]["calls"] == 4
    assert "8 6x4 4x8" in forward[0]["shapes"][0] and "8 7x4 4x8" in forward[0]["shapes"][1]
    assert [row["phase"] for row in rows(result, "threshold_backward")] == ["backward"]
    assert {row["phase"] for row in rows(result, "_foreach_lerp_.Scalar")} == {"optimizer"}
    assert {tuple(row["dtypes"]) for row in rows(result, "mm")} >= {("float64",), ("float32",)}


def test_judged(seen: tuple[int, dict[str, Any], str]) -> None:
    _, result, _ = seen
    assert rows(result, "addmm")[0]["how"] == "native"
    found = {(one["code"], one["location"]["line"]): one for one in result["findings"] if one["code"] >= "TP7"}
    assert "aten::_linalg_eigh is computed on the CPU" in found["TP711", 16]["message"]
    assert "aten::mm does not take float64" in found["TP712", 17]["message"]
    assert "first at aten::" in found["TP713", 15]["message"]
    assert "TP701" in {one["code"] for one in result["findings"]}  # the static findings are there as well


def test_the_host_does_not_count(seen: tuple[int, dict[str, Any], str]) -> None:
    _, result, _ = seen
    assert rows(result, "sinc") == rows(result, "randn") == []
    assert {row["line"] for row in rows(result, "_linalg_eigh")} == {16}


def test_failing_script(project: Path) -> None:
    code, result, _ = analyze(project, "--", "--fail")
    assert code == 1
    (finding,) = (one for one in result["findings"] if one["code"] == "TP715")
    assert "after 1 steps: ValueError: no more" in finding["message"]
    assert finding["location"]["line"] == 25
    assert rows(result, "addmm")


def test_text(seen: tuple[int, dict[str, Any], str]) -> None:
    text = render_operators(seen[1]["data"]["operators"])
    assert text.startswith("operators in 2 steps: ")
    lines = text.splitlines()
    assert lines[1].split()[0] == "refused" and "train.py:17" in lines[1]


def test_needs_a_script_and_consent(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    command = [sys.executable, "-m", "torchport", "analyze"]
    for words, says in ((["none.py", "--run"], "is not a script"), ([".", "--", "--x"], "Add --run")):
        done = subprocess.run([*command, *words], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 2 and says in done.stderr


UNUSUAL = """\
import torch

x = torch.randn(2, 3, 4, 4, device="cuda")
y = x.to(memory_format=torch.channels_last)
z = torch.nn.functional.gelu(torch.randn(2, 4, 4, 3, device="cuda").permute(0, 3, 1, 2))
s = torch.eye(3).to_sparse().cuda()
p = torch.sparse.mm(s, torch.ones(3, 3, device="cuda"))
j = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged).cuda()
k = torch.nn.Linear(3, 3).cuda()(j) * 2
fine = torch.nn.functional.gelu(x), s + s, x.permute(0, 2, 3, 1).relu(), x.clone(memory_format=torch.channels_last)
"""


def test_how_tensors_lie_in_memory(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(UNUSUAL)
    code, result, _ = analyze(tmp_path)
    found = [one for one in result["findings"] if one["code"] == "TP717"]
    assert [(one["location"]["line"], one["message"].split()[0]) for one in found] == [
        (4, "aten::_to_copy"),
        (5, "aten::gelu"),
        (7, "aten::_sparse_addmm"),
    ]
    codes = {one["code"] for one in result["findings"]}
    assert code == 1 and not codes & {"TP714", "TP716"}  # what a nested tensor is asked for is no operator


def test_a_run_without_a_device_is_an_alarm(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\nx = torch.ones(3) * 2\n")
    code, result, _ = analyze(tmp_path)
    assert code == 1
    (finding,) = [one for one in result["findings"] if one["code"].startswith("TP71")]
    assert finding["code"] == "TP716" and "no operator on a CUDA device" in finding["message"]
