"""What stops on torch_npu is found, and what works beside it is left alone; tests/vnpu/test_what_stops.py tries both."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from torchport.analyze import analyze_tree
from torchport.convert import convert_source, preview_tree
from torchport.findings import Safety, Severity
from torchport.rules import Rule, Style
from torchport.rules.stops import stop_rules

CASES = tomllib.loads((Path(__file__).parent / "stop_cases.toml").read_text())["case"]
HEAD = "import torch\nimport torch_npu\nimport torch.nn as nn\nimport torch.nn.functional as F\nd = 'npu'\n"


def found(folder: Path, text: str) -> list[str]:
    (folder / "a.py").write_text(HEAD + text + "\n")
    return [one.code for one in analyze_tree(folder).findings if one.code >= "TP72" and one.code < "TP74"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["code"])
def test_what_works_is_left_alone(tmp_path: Path, case: dict[str, str]) -> None:
    assert found(tmp_path, case["works"]) == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["code"])
def test_what_stops_is_found(tmp_path: Path, case: dict[str, str]) -> None:
    assert set(found(tmp_path, case["stops"])) == {case["code"]}


@pytest.mark.parametrize("rule", stop_rules(), ids=lambda rule: rule.code)
def test_every_rule_says_what_to_do(rule: Rule) -> None:
    assert rule.safety is Safety.REPORT and not rule.rewrites
    assert rule.severity is not Severity.INFO
    assert rule.why.endswith(".") and rule.reference.startswith("https://")
    assert {case["code"] for case in CASES} >= {rule.code}
    assert rule.reports and rule.ignores


@pytest.mark.parametrize("rule", stop_rules(), ids=lambda rule: rule.code)
def test_examples(tmp_path: Path, rule: Rule) -> None:
    for texts, expected in ((rule.reports, True), (rule.ignores, False)):
        for text in texts:
            (tmp_path / "a.py").write_text(text)
            assert (rule.code in {one.code for one in analyze_tree(tmp_path).findings}) is expected, text


@pytest.mark.parametrize(
    "text",
    [
        "y = x @ z\ny = torch.matmul(x, z)\n",
        "x = y.double()\nx = y.float()\nz = x @ x\n",
        "y = x.to_sparse()\ny = x\nz = y @ y\n",
        "def f(x):\n    return x.long() + 1\n",
        "m = nn.LSTM(3, 4, num_layers=n)\n",
        "m = nn.LSTM(*sizes, dropout=0.5)\n",
        "m = nn.LSTM(3, 4, 2, dropout=0.0)\n",
        "m = torch.compile(m, backend=args.backend)\n",
        "m = torch.compile(m, disable=True)\n",
        "if hasattr(torch, 'compile'):\n    pass\n",
        "t = torch.nested.nested_tensor(a, layout=layout)\n",
        "e = nn.TransformerEncoder(layer, 2)\n",
        "h = torch.func.jacfwd(f)(x)\n",
        "u = nn.MaxUnpool2d(2)\n",
        "g = factory()\ng.instantiate()\n",
        "y = F.gelu(x.permute(0, 2, 1))\n",
        "class Adam:\n    pass\no = Adam().double()\n",
    ],
)
def test_what_is_not_seen_is_not_said(tmp_path: Path, text: str) -> None:
    assert found(tmp_path, text) == []


def test_convert_leaves_what_works_without_a_word(tmp_path: Path) -> None:
    text = "import torch\nx = torch.ones(2).cuda()\ny = x.float() @ x\nm = torch.compile(m, backend='eager')\n"
    (tmp_path / "a.py").write_text(text)
    assert [one.code for one in preview_tree(tmp_path).findings] == ["TP001", "TP120"]


def test_convert_reports_what_stops(tmp_path: Path) -> None:
    """Also where no file names CUDA; what runs on the CPU, or another torch has, is only analyze's to say."""
    (tmp_path / "a.py").write_text("import torch\nm = torch.compile(torch.nn.LSTM(2, 2, 2, dropout=0.5))\n")
    (tmp_path / "b.py").write_text("import torch\ny = torch.sparse.mm(a, b)\nu = torch.linalg.eigh(x)\n")
    result = preview_tree(tmp_path)
    assert sorted(one.code for one in result.findings) == ["TP702", "TP723", "TP724"]
    assert result.data["summary"].decisions == 2 and result.data["summary"].blockers == 1
    assert "TP701" in {one.code for one in analyze_tree(tmp_path).findings}


def test_memory_formats_in_both_styles() -> None:
    text = "import torch\nx = x.to(memory_format=torch.channels_last)\n"
    assert convert_source(text.encode(), "a.py").output.decode() == text.replace("channels_last", "contiguous_format")
    guarded = convert_source(text.encode(), "a.py", Style.AGNOSTIC)
    assert guarded.output.decode() == text.replace(
        "torch.channels_last", '(torch.contiguous_format if hasattr(torch, "npu") else torch.channels_last)'
    )
    assert convert_source(guarded.output, "a.py", Style.AGNOSTIC).output == guarded.output
    imported = "from torch import channels_last\nx = x.to(memory_format=channels_last)\n"
    (finding,) = convert_source(imported.encode(), "a.py").findings
    assert (finding.code, finding.safety, finding.severity) == ("TP720", Safety.REPORT, Severity.WARNING)
