"""SARIF, HTML, CSV tables, `check` and `explain`."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from torchport.analyze import analyze_tree
from torchport.cli.explain import explain_word
from torchport.errors import TorchportError
from torchport.findings import Edit, Finding, Location, Result, Safety, Severity
from torchport.knowledge.codes import load_codes
from torchport.report.sarif import render_sarif
from torchport.report.tables import render_csv_tables
from torchport.rules import list_rules
from torchport.rules.catalogue import build_catalogue
from torchport.rules.custom import CUSTOM
from torchport.rules.distribute import distribution_rules
from torchport.rules.files import file_rules
from torchport.rules.stops import stop_rules
from torchport.rules.torch_support import SUPPORT

SRC = Path(__file__).parents[2] / "src"


def test_sarif() -> None:
    place = Location("dir with space/é.py", 2, 3, 2, 7)
    findings = [
        Finding("TP101", Severity.ERROR, Safety.REPORT, place, "message", "hint"),
        Finding("TP500", Severity.INFO, Safety.REPORT, None, "no place"),
    ]
    run = json.loads(render_sarif(findings, {"TP101": "a title"}))["runs"][0]
    assert run["tool"]["driver"]["rules"][0] == {"id": "TP101", "shortDescription": {"text": "a title"}}
    first, second = run["results"]
    assert (first["level"], first["message"]["text"], first["ruleIndex"]) == ("error", "message\nhint", 0)
    physical = first["locations"][0]["physicalLocation"]
    assert physical["artifactLocation"]["uri"] == "dir%20with%20space/%C3%A9.py"
    assert physical["region"] == {"startLine": 2, "startColumn": 3, "endLine": 2, "endColumn": 7}
    assert "locations" not in second


def test_sarif_keeps_the_rules_of_the_format(tmp_path: Path) -> None:
    """What SARIF 2.1.0 asks of the properties we write (sections 3.14, 3.27, 3.29, 3.30, 3.49 of the standard)."""
    (tmp_path / "a é.py").write_text("import torch\ntorch.cuda.get_arch_list()\nx = torch.ones(1).cuda()\n")
    (tmp_path / "b.py").write_bytes(b"import torch\0cuda")
    document = json.loads(render_sarif(analyze_tree(tmp_path).findings))
    assert set(document) == {"$schema", "version", "runs"} and document["version"] == "2.1.0"
    (run,) = document["runs"]
    assert run["columnKind"] in ("utf16CodeUnits", "unicodeCodePoints")
    rules = run["tool"]["driver"]["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules)
    assert len(run["results"]) >= 4
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("none", "note", "warning", "error")
        assert result["message"]["text"]
        (place,) = result["locations"]
        uri, region = (place["physicalLocation"]["artifactLocation"]["uri"], place["physicalLocation"]["region"])
        assert re.fullmatch(r"[A-Za-z0-9._~/%-]+", uri)
        assert region["startLine"] >= 1 and region["startColumn"] >= 1
        assert (region["endLine"], region["endColumn"]) >= (region["startLine"], region["startColumn"])


def check(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    command = [sys.executable, "-m", "torchport", "check", *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def test_check(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import torch\ntorch.cuda.init()\n")
    assert check(tmp_path).returncode == 0
    assert check(tmp_path, "--strict").returncode == 1
    (tmp_path / "a.py").write_text("import torch\ntorch.cuda.get_arch_list()\n")
    done = check(tmp_path, "--sarif", "out.sarif")
    assert done.returncode == 1
    assert "TP101" in done.stdout
    assert json.loads((tmp_path / "out.sarif").read_text())["runs"][0]["results"][0]["ruleId"] == "TP101"


def test_every_code_of_a_finding_is_known() -> None:
    used = {
        code
        for path in (SRC / "torchport").rglob("*.py")
        for code in re.findall(r'"(TP\d{3})"', path.read_text(encoding="utf-8"))
    }
    assert len(used) > 40
    assert used <= set(build_catalogue())


def test_codes_mean_one_thing() -> None:
    rule_codes = [
        rule.code for rule in (*list_rules(), *distribution_rules(), *file_rules(), *stop_rules(), CUSTOM, *SUPPORT)
    ]
    assert len(rule_codes) == len(set(rule_codes))
    assert not set(rule_codes) & set(load_codes())


@pytest.mark.parametrize("code", build_catalogue())
def test_every_code_is_explained(code: str) -> None:
    assert code in explain_word(code)["text"]
    assert build_catalogue()[code].why.endswith(".")


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("torch.cuda.CUDAGraph", "torch.npu.NPUGraph"),
        ("torch.cuda.get_arch_list", "nothing"),
        ("NCCL_SOCKET_IFNAME", "HCCL_SOCKET_IFNAME"),
        ("flash-attn", "npu_fusion_attention"),
        ("tp120", ".npu()"),
        ("TP301", "The step where it starts tells where to look"),
        ("torch.linalg.eigh", "on the CPU"),
        ("linalg.eigh", "aten::_linalg_eigh"),
        ("torch.Tensor.add_", "on the NPU"),
        ("aten::add.Tensor", "on the NPU"),
        ("torch.symeig", "torch.linalg.eigh"),
        ("torch.no_grad", "not measured"),
        ("cuda.Stream", "torch.npu.Stream"),
        ("nn.DataParallel", "TP202: DataParallel has to become"),
        (".is_cuda", "TP121"),
        ("nccl", "TP201"),
        ("apex.optimizers.FusedLAMB", "NpuFusedLamb"),
    ],
)
def test_explain(word: str, says: str) -> None:
    assert says in explain_word(word)["text"]


def test_explain_what_is_not_known() -> None:
    with pytest.raises(TorchportError, match="nothing is known") as caught:
        explain_word("torch.cuda.CUDAGraf")
    assert "torch.cuda.CUDAGraph" in caught.value.hint


def test_tables(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "import torch\ntorch.cuda.init()\ntorch.cuda.get_arch_list(), torch.cuda.foo\ntorch.linalg.eigh, torch.symeig\n"
    )
    (tmp_path / "k.cu").write_text("__global__ void add(float* a) {}\n")
    (tmp_path / "ops.cpp").write_text('PYBIND11_MODULE(x, m) {\n  m.def("mul", &mul);\n  m.def("div", &div);\n}\n')
    (tmp_path / "many.py").write_text("import torch\nfrom torch.nn import DataParallel  # cuda\nm = DataParallel(m)\n")
    (tmp_path / "setup.py").write_text("from torch.utils.cpp_extension import BuildExtension, CUDAExtension\n")
    done = check_command(tmp_path, "convert", ".", "-o", "out", "--layout", "msft", "--html", "r.html")
    assert done.returncode == 1
    folder = tmp_path / "out" / f"{tmp_path.name}_msft"
    read = {path.stem: list(csv.reader(path.open())) for path in folder.glob("*.csv")}
    assert read["change_list"][0] == ["File", "Start Line", "End Line", "Operation Type", "Message"]
    assert [row[3] for row in read["change_list"][1:]] == ["INSERT", "MODIFY"]
    assert [row[3] for row in read["unsupported_api"][1:]] == [
        "torch.cuda.get_arch_list",
        "torch.linalg.eigh",
        "DataParallel",
        "torch.utils.cpp_extension.CUDAExtension",
    ]
    assert [row[3] for row in read["unknown_api"][1:]] == ["torch.cuda.foo", "torch.symeig"]
    assert read["cuda_op_list"] == [["File", "Api"], ["k.cu", "add"], ["ops.cpp", "mul"], ["ops.cpp", "div"]]
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")


def test_tables_hold_no_formulas() -> None:
    finding = Finding("TP101", Severity.INFO, Safety.SAFE, Location("=cmd()", 1, 1, 1, 1), "@x", fix=(Edit(0, 1, b""),))
    row = render_csv_tables(Result("convert", (finding,)))["change_list.csv"].splitlines()[1]
    assert row == "'=cmd(),1,1,DELETE,'@x"


def check_command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    command = [sys.executable, "-m", "torchport", *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
