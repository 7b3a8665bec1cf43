"""Rules of the user's own: what they change, what they leave, and what is no rule."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from torchport.convert import Extras, convert_tree, preview_tree
from torchport.errors import TorchportError
from torchport.report.tables import render_csv_tables
from torchport.rules import custom
from torchport.rules.custom import CustomRules

RULES = {
    "ArgsModifyRule": [{"func_name": "lib.run", "arg_idx": 1, "arg_new": "'fast'"}],
    "FuncNameModifyRule": [
        {"old_name": "torch.cuda.synchronize", "new_name": "print"},
        {"old_name": "lib.old", "new_name": "lib.new"},
        {"old_name": "helper", "new_name": "better"},
    ],
    "ModuleNameModifyRule": [
        {"old_name": "ops", "new_name": "npu_ops", "parent_module": "lib"},
        {"old_name": "alone", "new_name": "pair"},
    ],
}


def read(folder: Path, rules: object) -> CustomRules:
    path = folder / "rules.json"
    path.write_text(rules if isinstance(rules, str) else json.dumps({"rules": rules}))
    return CustomRules.from_file(path)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("import lib\nlib.run(1, mode, 3)\n", "import lib\nlib.run(1, 'fast', 3)\n"),
        ("from lib import run as go\ngo(1, 2)\n", "from lib import run as go\ngo(1, 'fast')\n"),
        ("import lib as l\nl.old(1)\n", "import lib as l\nl.new(1)\n"),
        ("import lib\nfrom lib import old\nold(1)\n", "import lib\nfrom lib import old\nlib.new(1)\n"),
        ("import torch\ntorch.cuda.synchronize()\n", "import torch\nprint()\n"),
        ("def helper():\n    pass\nhelper()\n", "def helper():\n    pass\nbetter()\n"),
        ("import lib\nlib.ops.f(1)\n", "import lib\nlib.npu_ops.f(1)\n"),
        ("from lib import ops\nops.f()\n", "from lib import npu_ops as ops\nops.f()\n"),
        ("import lib.ops\nlib.ops.f()\n", "import lib.npu_ops\nlib.npu_ops.f()\n"),
        ("from lib.ops import f\nf()\n", "from lib.npu_ops import f\nf()\n"),
        ("import lib.ops.deep\nlib.ops.deep.f()\n", "import lib.npu_ops.deep\nlib.npu_ops.deep.f()\n"),
        ("import lib.ops as o\no.f()\n", "import lib.npu_ops as o\no.f()\n"),
        ("import alone\nalone.f()\n", "import pair as alone\nalone.f()\n"),
        ("import lib\nlib.run(1)\n", None),
        ("from lib import old\nold(1)\n", None),
        ("import lib\nlib.run(1, 'fast')\n", None),
        ("import lib\nx.run(1, 2)\n", None),
        ("import other\nother.old(1)\n", None),
        ("x.helper()\n", None),
        ("import other\nother.ops.f()\n", None),
        ("'lib.ops'\n# lib.old()\n", None),
        ("from . import alone\n", None),
    ],
)
def test_rules(tmp_path: Path, before: str, after: str | None) -> None:
    rules = read(tmp_path, RULES)
    (tmp_path / "a.py").write_text(before)
    result = preview_tree(tmp_path / "a.py", extras=Extras(custom=rules))
    assert result.data["changed"] == ([] if after is None else ["a.py"])
    removed = [line[1:] for line in result.data["diff"].splitlines()[3:] if line[0] != "-"]
    assert removed == (after.splitlines() if after else [])


def test_a_rule_that_does_not_fit_is_a_finding(tmp_path: Path) -> None:
    rules = read(tmp_path, RULES)
    (tmp_path / "a.py").write_text("import lib\nlib.run(1)\n")
    (finding,) = preview_tree(tmp_path / "a.py", extras=Extras(custom=rules)).findings
    assert (finding.code, finding.fix) == ("TP190", ())
    assert "position 1" in finding.message


@pytest.mark.parametrize(
    "rules",
    [
        "not json",
        "[]",
        {"Unknown": []},
        {"ArgsModifyRule": [{"func_name": "f"}]},
        {"ArgsModifyRule": [{"func_name": "f", "arg_idx": "0", "arg_new": "x"}]},
        {"FuncNameModifyRule": [{"old_name": "f", "new_name": "g(; import os"}]},
        {"FuncNameModifyRule": {"old_name": "f", "new_name": "g", "extra": 1}},
    ],
)
def test_what_is_no_rule_is_refused(tmp_path: Path, rules: object) -> None:
    with pytest.raises(TorchportError):
        read(tmp_path, rules)


PAGE = (Path(__file__).parents[2] / "docs" / "convert.md").read_text(encoding="utf-8")


def test_the_page_s_example_is_what_comes_out(tmp_path: Path) -> None:
    (rules,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    before, after = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    script = tmp_path / "a.py"
    script.write_text(before)
    (tmp_path / "rules.json").write_text(rules)
    extras = Extras(custom=CustomRules.from_file(tmp_path / "rules.json"))
    assert convert_tree(script, tmp_path / "out", extras=extras).findings
    assert (tmp_path / "out" / "a.py").read_text() == after


def test_the_page_names_every_field_and_every_table(tmp_path: Path) -> None:
    for kind, fields in custom.KEYS.items():
        table = PAGE.split(f"| `{kind}` |", 1)[1].split("\n| `", 1)[0]
        assert re.findall(r"\| `(\w+)` \|", f"|{table}") == [*fields], kind
    (tmp_path / "a.py").write_text("x = 1\n")
    for name, text in render_csv_tables(preview_tree(tmp_path)).items():
        assert f"| `{name}` |" in PAGE
        assert f"| {', '.join(text.splitlines()[0].split(','))} |" in PAGE
