"""SARIF, HTML, CSV tables, `check` and `explain`."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from torchport.cli.explain import explain
from torchport.errors import TorchportError
from torchport.findings import Edit, Finding, Location, Result, Safety, Severity
from torchport.report.sarif import sarif
from torchport.report.tables import tables
from torchport.rules.catalogue import catalogue

SRC = Path(__file__).parents[2] / "src"


def test_sarif() -> None:
    place = Location("dir with space/é.py", 2, 3, 2, 7)
    findings = [
        Finding("TP101", Severity.ERROR, Safety.REPORT, place, "message", "hint"),
        Finding("TP500", Severity.INFO, Safety.REPORT, None, "no place"),
    ]
    run = json.loads(sarif(findings, {"TP101": "a title"}))["runs"][0]
    assert run["tool"]["driver"]["rules"][0] == {"id": "TP101", "shortDescription": {"text": "a title"}}
    first, second = run["results"]
    assert (first["level"], first["message"]["text"], first["ruleIndex"]) == ("error", "message\nhint", 0)
    physical = first["locations"][0]["physicalLocation"]
    assert physical["artifactLocation"]["uri"] == "dir%20with%20space/%C3%A9.py"
    assert physical["region"] == {"startLine": 2, "startColumn": 3, "endLine": 2, "endColumn": 7}
    assert "locations" not in second


def check(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    command = [sys.executable, "-m", "torchport", "check", *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)


def test_check(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import torch\ntorch.cuda.init()\n")
    assert check(tmp_path).returncode == 0
    assert check(tmp_path, "--strict").returncode == 1
    (tmp_path / "a.py").write_text("import torch\ntorch.cuda.get_arch_list()\n")
    done = check(tmp_path, "--sarif", "out.sarif")
    assert done.returncode == 1
    assert "TP101" in done.stdout
    assert json.loads((tmp_path / "out.sarif").read_text())["runs"][0]["results"][0]["ruleId"] == "TP101"


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ("[tool.torchport]\nignore = ['TP101']\n", 0),
        ("[tool.torchport]\nexclude = ['a*']\n", 0),
        ("[tool.other]\n", 1),
        ("[tool.torchport]\nignored = []\n", 2),
        ("not toml", 2),
    ],
)
def test_check_settings(tmp_path: Path, settings: str, code: int) -> None:
    (tmp_path / "a.py").write_text("import torch\ntorch.cuda.get_arch_list()\n")
    (tmp_path / "pyproject.toml").write_text(settings)
    assert check(tmp_path).returncode == code


@pytest.mark.parametrize("code", catalogue())
def test_every_code_is_explained(code: str) -> None:
    assert code in explain(code)["text"]
    assert catalogue()[code].why.endswith(".")


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("torch.cuda.CUDAGraph", "torch.npu.NPUGraph"),
        ("torch.cuda.get_arch_list", "nothing"),
        ("NCCL_SOCKET_IFNAME", "HCCL_SOCKET_IFNAME"),
        ("flash-attn", "npu_fusion_attention"),
        ("tp120", ".npu()"),
    ],
)
def test_explain(word: str, says: str) -> None:
    assert says in explain(word)["text"]


def test_explain_what_is_not_known() -> None:
    with pytest.raises(TorchportError, match="nothing is known") as caught:
        explain("torch.cuda.CUDAGraf")
    assert "torch.cuda.CUDAGraph" in caught.value.hint


def test_tables(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "import torch\ntorch.cuda.init()\ntorch.cuda.get_arch_list(), torch.cuda.foo\n"
    )
    (tmp_path / "k.cu").write_text("__global__ void add(float* a) {}\n")
    done = check_command(tmp_path, "convert", ".", "-o", "out", "--layout", "msft", "--html", "r.html")
    assert done.returncode == 1
    folder = tmp_path / "out" / f"{tmp_path.name}_msft"
    read = {path.stem: list(csv.reader(path.open())) for path in folder.glob("*.csv")}
    assert read["change_list"][0] == ["File", "Start Line", "End Line", "Operation Type", "Message"]
    assert [row[3] for row in read["change_list"][1:]] == ["INSERT", "MODIFY"]
    assert [row[3] for row in read["unsupported_api"][1:]] == ["torch.cuda.get_arch_list"]
    assert [row[3] for row in read["unknown_api"][1:]] == ["torch.cuda.foo"]
    assert read["cuda_op_list"] == [["File", "Api"], ["k.cu", "add"]]
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")


def test_tables_hold_no_formulas() -> None:
    finding = Finding(
        "TP101", Severity.INFO, Safety.SAFE, Location("=cmd()", 1, 1, 1, 1), "@x", fix=(Edit(0, 1, b""),)
    )
    row = tables(Result("convert", (finding,)))["change_list.csv"].splitlines()[1]
    assert row == "'=cmd(),1,1,DELETE,'@x"


def check_command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    command = [sys.executable, "-m", "torchport", *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
