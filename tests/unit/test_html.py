"""Reports as HTML: what they show, and that no text of a project becomes markup."""

from __future__ import annotations

import math
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from torchport.analyze import analyze_tree
from torchport.convert import preview_tree
from torchport.findings import Edit, Finding, Location, Result, Safety, Severity
from torchport.report.html import page
from torchport.report.html.curve import POINTS, chart

HOSTILE = '<script>alert(1)</script><img src=x onerror=alert(1)>\'" onclick="x" </style>'


class Tags(HTMLParser):
    """The tags and the text of a page; whatever runs or loads is an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not any(name.startswith("on") or name in ("src", "href", "style") for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.text += data


def comparison(**changes: Any) -> dict[str, Any]:
    data = {
        "holds": True,
        "method": "step by step",
        "chance": [],
        "tolerance": {
            "dtype": "float32",
            "first": 1e-4,
            "first_steps": 50,
            "run": 1e-2,
            "floor": 1e-3,
            "points": 0.5,
        },
        "steps": {"reference": 3, "port": 3},
        "worst": {"first": 2e-6, "run": 2e-6},
        "seconds": {"reference": 0.01, "port": 0.02},
        "curves": {"reference": [2.0, 1.0, 0.5], "port": [2.0, 1.0, 0.500001]},
        "errors": [0.0, 1e-7, 2e-6],
        "windows": [],
        "metrics": [
            {
                "name": "accuracy",
                "reference": 97.0,
                "port": 96.5,
                "percent": True,
                "allowed": 0.5,
                "holds": True,
            }
        ],
    }
    return data | changes


def port(**changes: Any) -> Result:
    run = {"status": 0, "timed_out": False, "seconds": 1.5, "steps": 3, "device": "the CPU", "wrote": []}
    data = {
        "script": "train.py",
        "arguments": ["--epochs", "3"],
        "holds": True,
        "backend": "the virtual NPU",
        "summary": {
            "files": 1,
            "automatic": 2,
            "review": 0,
            "decisions": 0,
            "blockers": 0,
            "effort_hours": [0, 0],
        },
        "diff": "--- a/train.py\n+++ b/train.py\n@@ -1,2 +1,2 @@\n import torch\n-x.cuda()\n+x.npu()\n",
        "comparison": comparison(),
        "runs": {"reference": run, "npu": {**run, "status": 1}},
    }
    return Result("port", (), data | changes)


def analysis() -> Result:
    row = {
        "operator": "svd",
        "phase": "forward",
        "dtypes": ["float32"],
        "path": "a.py",
        "line": 3,
        "calls": 2,
    }
    rows = [{**row, "shapes": [["3x3"], ["4x4"]], "how": how} for how in ("native", "fallback", "refused")]
    data = {
        "root": "project",
        "summary": {
            "files": 1,
            "automatic": 1,
            "review": 1,
            "decisions": 1,
            "blockers": 1,
            "effort_hours": [1, 2],
        },
        "residue": {
            "counts": {"name": 1},
            "mentions": [{"path": "a", "line": 1, "column": 1, "word": "cuda", "is": "name"}],
        },
        "operators": {
            "steps": 2,
            "precision": "float16",
            "counts": {"native": 1, "fallback": 1},
            "rows": rows,
        },
    }
    place = Location("a.py", 1, 1, 1, 1)
    findings = (
        Finding(
            "TP101",
            Severity.ERROR,
            Safety.REPORT,
            place,
            "no such thing",
            "do this",
            {"source": "torch.cuda.x"},
        ),
        Finding("TP101", Severity.INFO, Safety.SAFE, place, "renamed", "unseen", fix=(Edit(0, 0, b"x"),)),
    )
    return Result("analyze", findings, data)


def hostile(value: Any) -> Any:
    """Every text replaced by one that would be markup; what names numbers stays."""
    if isinstance(value, dict):
        return {key: hostile(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [hostile(item) for item in value]
    return HOSTILE if isinstance(value, str) else value


@pytest.mark.parametrize(
    "result", [port(), analysis(), Result("compare", (), comparison())], ids=lambda r: r.command
)
def test_hostile_text_stays_text(result: Result) -> None:
    place = Location(HOSTILE, 1, 1, 1, 1)
    findings = tuple(
        Finding(HOSTILE, severity, Safety.SAFE, place, HOSTILE, HOSTILE, {"source": HOSTILE}, fix)
        for severity in Severity
        for fix in ((), (Edit(0, 0, b""),))
    )
    data = hostile(dict(result.data))
    data["diff"] = (
        f"--- a/{HOSTILE}\n+++ b/{HOSTILE}\n@@ -1 +1 @@\n-{HOSTILE}\n+{HOSTILE}{HOSTILE}\n {HOSTILE}\n"
    )
    plain, attacked = Tags(page(result)), Tags(page(Result(result.command, findings, data)))
    assert attacked.tags.count("script") == plain.tags.count("script") == 1
    assert attacked.tags.count("style") == 1
    assert "img" not in attacked.tags
    assert attacked.text.count("<script>alert(1)</script>") >= 20


def test_conversion(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import torch\ntorch.cuda.init()\ntorch.cuda.get_arch_list()\n")
    text = page(preview_tree(tmp_path))
    found = Tags(text)
    assert "1 place keeps this from running on an NPU" in found.text
    assert "torch.npu.init()" in found.text
    assert "<mark>cuda</mark>" in text and "<mark>npu</mark>" in text
    assert "http://" not in text
    assert "https://" not in text


def test_verdict_comes_first() -> None:
    text = Tags(page(port())).text
    assert (
        text.index("The port trains like the original") < text.index("The two runs") < text.index("Changes")
    )
    assert (
        "3 steps compared step by step; the worst of the first 50 differs by 2.0e-06, where 0.0001 is allowed"
        in text
    )
    broken = Finding("TP301", Severity.ERROR, Safety.REPORT, None, "the loss differs from step 1 on")
    failed = port(holds=False)
    text = Tags(page(Result("port", (broken,), failed.data))).text
    assert "The port does not hold" in text and "The loss differs from step 1 on." in text
    assert "torchport port train.py --from npu -- --epochs 3" in text


def test_what_is_left_comes_before_what_is_done() -> None:
    found = Tags(page(analysis()))
    assert (
        found.text.index("no such thing")
        < found.text.index("Done, or good to know (1)")
        < found.text.index("renamed")
    )
    assert "unseen" not in found.text
    assert found.text.count("svd") == 3
    assert "3x3 → 4x4" in found.text


def test_run_without_comparison() -> None:
    skipped = {"status": None, "skipped": True, "steps": 0, "seconds": 0.0}
    result = port(holds=False, comparison=None)
    data = {**result.data, "runs": {**result.data["runs"], "npu": skipped}}
    text = Tags(page(Result("port", (), data))).text
    assert "not run" in text


def test_statistical_comparison() -> None:
    window = {"start": 0, "end": 10, "reference": 1.0, "port": 1.5, "allowed": 0.1, "holds": False}
    result = Result(
        "compare", (), comparison(method="statistically", chance=["dropout"], windows=[window], holds=False)
    )
    text = page(result)
    assert "The means of each tenth" in text
    assert "<tr class=off><td>0 to 9</td>" in text
    assert "Relative difference" not in text


def test_clean_project(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    assert "Nothing blocks the port, and nothing needs a decision" in Tags(page(analyze_tree(tmp_path))).text


def test_chart_breaks_at_what_is_not_finite() -> None:
    text = chart("loss", {"a": [1.0, math.nan, 2.0, math.inf, 3.0, 4.0]})
    path = text.partition('d="')[2].partition('"')[0]
    assert path.count("M") == 3 and path.count("L") == 1
    assert chart("loss", {"a": [math.nan]}) == ""


def test_chart_of_one_step_is_a_dot() -> None:
    assert "h.1" in chart("loss", {"a": [1.0]})


@pytest.mark.parametrize("values", [[0.0] * 5, [-3.0, 5.0], [1e-12, 1e12], [7.0]])
def test_chart_stays_inside(values: list[float]) -> None:
    text = chart("loss", {"a": values})
    points = text.partition('d="')[2].partition('"')[0].replace("h.1", "").replace("L", "M").split("M")[1:]
    for point in points:
        x, y = map(float, point.split())
        assert 0 <= x <= 720 and 0 <= y <= 240


def test_long_curves_are_thinned_and_keep_extremes() -> None:
    values = [float(step % 7) for step in range(10_000)]
    values[4321] = 1000.0
    path = chart("loss", {"a": values}).partition('d="')[2].partition('"')[0]
    assert path.count("L") <= 2 * POINTS
    heights = [float(part.split()[1]) for part in path.replace("L", "M").split("M")[1:]]
    assert heights.count(min(heights)) == 1


def test_logarithmic_chart_leaves_zeros_out() -> None:
    text = chart("difference", {"a": [0.0, 1e-7, 1e-3]}, {"allowed": 1e-4}, logarithmic=True)
    assert text.count("class=level") == 2
    assert ">1e-05<" in text
