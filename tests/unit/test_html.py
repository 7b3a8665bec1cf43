"""Reports as HTML: what they show, and that no text of a project becomes markup."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import evidence_results as made
import port_results
import pytest
from port_results import comparison, curve, metric, port, run

from torchport.analyze import analyze_tree
from torchport.convert import preview_tree
from torchport.findings import Edit, Finding, Location, Result, Safety, Severity
from torchport.report.html import render_page
from torchport.report.html.curve import POINTS, draw_chart
from torchport.results.codec import from_json, to_json
from torchport.results.conversion import Summary
from torchport.results.port import Port

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


def analysis() -> Result:
    row = {"operator": "svd", "phase": "forward", "dtypes": ["float32"], "path": "a.py", "line": 3, "calls": 2}
    rows = [{**row, "shapes": [["3x3"], ["4x4"]], "how": how} for how in ("native", "fallback", "refused")]
    data = {
        "root": "project",
        "summary": Summary(1, 1, 1, 1, 1),
        "residue": {
            "counts": {"name": 1},
            "mentions": [{"path": "a", "line": 1, "column": 1, "word": "cuda", "is": "name"}],
        },
        "operators": {"steps": 2, "precision": "float16", "counts": {"native": 1, "fallback": 1}, "rows": rows},
    }
    place = Location("a.py", 1, 1, 1, 1)
    findings = (
        Finding("TP101", Severity.ERROR, Safety.REPORT, place, "no such thing", "do this", {"source": "torch.cuda.x"}),
        Finding("TP101", Severity.INFO, Safety.SAFE, place, "renamed", "unseen", fix=(Edit(0, 0, b"x"),)),
    )
    return Result("analyze", findings, data)


def hostile(value: Any) -> Any:
    """Every text replaced by one that would be markup; what names numbers stays."""
    if isinstance(value, dict):
        return {key: hostile(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [hostile(item) for item in value]
    return HOSTILE if isinstance(value, str) and value not in ("nan", "inf", "-inf") else value


@pytest.mark.parametrize(
    "result",
    [
        port(),
        port_results.gan(),
        port_results.parted(),
        port_results.forced(),
        port_results.crashed(),
        analysis(),
        port_results.compare(),
    ],
    ids=["holds", "gan", "parted", "forced", "crashed", "analyze", "compare"],
)
def test_hostile_text_stays_text(result: Result[Any]) -> None:
    place = Location(HOSTILE, 1, 1, 1, 1)
    findings = tuple(
        Finding(HOSTILE, severity, Safety.SAFE, place, HOSTILE, HOSTILE, {"source": HOSTILE}, fix)
        for severity in Severity
        for fix in ((), (Edit(0, 0, b""),))
    )
    diff = f"--- a/{HOSTILE}\n+++ b/{HOSTILE}\n@@ -1 +1 @@\n-{HOSTILE}\n+{HOSTILE}{HOSTILE}\n {HOSTILE}\n"
    data = hostile(to_json(result.data)) | {"diff": diff}
    if dataclasses.is_dataclass(result.data):
        data = from_json(type(result.data), data)
    else:
        data["summary"] = result.data["summary"]  # numbers
    plain, attacked = Tags(render_page(result)), Tags(render_page(Result(result.command, findings, data)))
    assert attacked.tags.count("script") == plain.tags.count("script") == 1
    assert attacked.tags.count("style") == 1
    assert "img" not in attacked.tags
    assert attacked.text.count("<script>alert(1)</script>") >= 20


def allowed(policy: str, kind: str, content: str) -> bool:
    """Whether a browser uses this inline element of a page with that content policy (CSP level 3, 6.7.3.3)."""
    digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
    sources = next(words[1:] for words in map(str.split, policy.split(";")) if words[0] == f"{kind}-src")
    return "'unsafe-inline'" in sources or f"'sha256-{digest}'" in sources


def test_the_policy_allows_one_script_and_one_style() -> None:
    text = render_page(port())
    found = re.search(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', text)
    assert found is not None
    policy = found[1]
    for kind in ("script", "style"):
        (own,) = re.findall(rf"<{kind}>(.*?)</{kind}>", text, re.DOTALL)
        assert not allowed(policy, kind, "alert(1)")
        assert not allowed(policy, kind, own + " ")
        assert allowed(policy, kind, own)
    assert "unsafe" not in policy and policy.startswith("default-src 'none';")


def test_conversion(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import torch\ntorch.cuda.init()\ntorch.cuda.get_arch_list()\n")
    text = render_page(preview_tree(tmp_path))
    found = Tags(text)
    assert "1 blocker keeps this from running on an NPU" in found.text
    assert "torch.npu.init()" in found.text
    assert "<mark>cuda</mark>" in text and "<mark>npu</mark>" in text
    assert "http://" not in text
    assert "https://" not in text


def test_verdict_comes_first() -> None:
    text = Tags(render_page(port())).text
    places = [text.index(part) for part in ("The port holds", "20 optimizer steps compared", "The two runs", "Changes")]
    assert places == sorted(places)
    assert "--from npu" not in text


@pytest.mark.parametrize(
    ("verdict", "kind", "mark", "title"),
    [
        ("holds", "good", "✓", "The port holds"),
        ("does not hold", "bad", "✕", "The port does not hold"),
        ("undecided", "open", "?", "Undecided whether the port holds"),
        ("", "open", "?", "Undecided whether the port holds"),
    ],
)
def test_banner_of_each_word(verdict: str, kind: str, mark: str, title: str) -> None:
    text = render_page(
        port(verdict=verdict, reason="the machine is too small", decide=["pip install x", "a larger machine"])
    )
    assert f'<section class="verdict {kind}"><span aria-hidden=true>{mark}</span><div><h2>{title}</h2>' in text
    assert "The machine is too small." in text
    assert "<h3>What would decide it</h3><ul><li><code>pip install x</code></li><li>A larger machine.</li>" in text
    found = Tags(text).text
    assert ("✕" in found) is (kind == "bad") and ("✓" in found) is (kind == "good")


def test_comparison_has_the_same_words() -> None:
    for verdict in ("holds", "does not hold", "undecided"):
        text = Tags(render_page(port_results.compare(verdict=verdict))).text
        assert f"{verdict.capitalize()}20 optimizer steps compared" in text


def test_next_is_the_same_command_again() -> None:
    def commands(*command: str) -> str:
        return Tags(render_page(port(verdict="does not hold", command=command))).text

    assert "torchport port --from npu train.py -- --epochs 3" in commands("train.py", "--epochs", "3")
    assert "torchport port --from npu -- torchrun --nproc-per-node 2 'my train.py'" in commands(
        "--", "torchrun", "--nproc-per-node", "2", "my train.py"
    )
    assert "torchport port --from npu -- -m pkg.train" in commands("-m", "pkg.train")
    python = "/somewhere/.venv/bin/python3.11"
    assert "torchport port --from npu train.py -- --lr 1" in commands(python, "train.py", "--lr", "1")
    assert "torchport port --from npu -- python -m pkg.train --lr 1" in commands(python, "-m", "pkg.train", "--lr", "1")


@pytest.mark.parametrize("name", port_results.odd())
def test_every_shape_makes_a_page(name: str) -> None:
    result = port_results.odd()[name]
    text = render_page(result)
    found = Tags(text)
    assert found.tags.count("script") == 1
    assert result.data.reason[1:] in found.text
    assert "nan" not in text.partition("<svg")[2].partition("</svg>")[0]
    assert {
        tag
        for tag in ("section", "table", "details", "figure", "svg")
        if text.count(f"<{tag}") != text.count(f"</{tag}>")
    } == set()


def test_stored_result_makes_the_same_page(tmp_path: Path) -> None:
    for name, result in port_results.odd().items():
        result.write(tmp_path / "result.json")  # NaN becomes a text there
        assert render_page(Result.read(tmp_path / "result.json").typed(Port)) == render_page(result), name


def test_a_curve_for_each_call_site() -> None:
    text = render_page(port_results.gan())
    assert text.count("<figure") == 6
    assert "Loss at train.py:61" in text and "Loss at models/very/deep/package/generator.py:172" in text
    many = render_page(port_results.odd()["many curves"])
    assert many.count("<figure") == 16 and "5 more curves" in many


def cells(row: str) -> list[str]:
    return [re.sub("<[^>]+>", "", cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row)]


def rows_of(text: str, title: str) -> list[list[str]]:
    """The rows of the tables in the section of a title."""
    section = text.partition(f"<h2>{title}</h2>")[2].partition("</section>")[0]
    return [found for row in re.findall(r"<tr[^>]*>(.*?)</tr>", section) if (found := cells(row))]


def test_first_differences_are_a_table() -> None:
    rows = rows_of(render_page(port_results.parted()), "First differences")
    assert [row[0] for row in rows] == ["2", "2", "2", "3", "4"]
    assert rows[1] == ["2", "update", "fc1.weight", "0.0125", "0.0126", "5.0e-02", "1.5e-07", "3e-06"]
    assert rows[2] == ["2", "setting", "optimizer 0: lr", "0.001", "0.002", "not equal", "", ""]
    assert rows[3][3:6] == ["0f3a77c2d41b9e60", "9bc2d41b9e600f3a", "not equal"]  # whole, other than in a terminal
    assert rows[4][3:6] == ["0.0125", "nan", "not finite"]
    losses = rows_of(render_page(port_results.gan()), "First differences")
    assert losses[0] == ["2", "loss", "train.py:66", "1.68849", "1.68914", "3.8e-04", "0.0001"]
    nan = rows_of(render_page(port_results.odd()["nan"]), "First differences")
    assert nan[0] == ["1", "loss", "train.py:20", "1", "nan", "not finite", "0.0001"]


def test_first_differences_come_before_curves() -> None:
    text = render_page(port_results.parted())
    places = [
        text.index(f"<h2>{title}</h2>")
        for title in ("First differences", "Original and port", "Quantities compared", "Smallest fault noticed")
    ]
    assert places == sorted(places)


def test_that_nothing_differs_is_said_with_what_was_compared() -> None:
    text = Tags(render_page(port())).text
    assert (
        "None beyond what is allowed in a step. Compared were 20 losses, 200 gradients, 200 updates, 6 settings and 40 copies to the device."
        in text
    )
    assert "None beyond" not in render_page(port_results.parted())
    nothing = comparison(quantities=[made.quantity("loss", 0), made.quantity("upload", 0)])
    assert "Nothing was compared." in render_page(port(comparison=nothing))
    assert "None beyond" not in render_page(port(comparison=nothing))
    assert "The means of some stretches differ: see below." in render_page(port_results.odd()["by chance"])
    assert "The means of some" not in text


def test_quantities_are_a_table() -> None:
    rows = rows_of(render_page(port()), "Quantities compared")
    assert rows[1] == ["gradient", "200", "20", "2.1e-06", "17", "fc1.weight", "1.5e-06", "3e-05"]
    assert rows[3] == ["setting", "6", "20", "equal", "", "", "", ""]
    assert "class=off" not in render_page(port())
    text = render_page(port_results.parted())
    rows = rows_of(text, "Quantities compared")
    assert rows[1][3] == "not finite" and rows[3][3:6] == ["not equal", "2", "optimizer 0: lr"]
    section = text.partition("<h2>Quantities compared</h2>")[2].partition("</section>")[0]
    assert re.findall(r"<tr class=off><td>(.*?)</td>", section) == [
        "gradient",
        "update",
        "setting",
        "copy to the device",
    ]
    none = rows_of(
        render_page(port(comparison=comparison(quantities=[made.quantity("upload", 0)]))), "Quantities compared"
    )
    assert none == [["copy to the device", "0", "20", "none compared", "", "", "", ""]]


def test_a_quantity_with_a_difference_stands_out_whatever_its_worst_is() -> None:
    text = render_page(port(comparison=comparison(first=[made.difference(3, "gradient", "fc1.bias")])))
    assert "<tr class=off><td>gradient</td>" in text and "<tr class=off><td>update</td>" not in text


def test_what_the_comparison_notices() -> None:
    text = render_page(port())
    rows = rows_of(text, "Smallest fault noticed")
    update = ["step 19, fc1.weight", "noticed", "update of fc1.weight", "5.0e-02", "3e-06"]
    assert rows[0] == ["5 % of one update", *update]
    assert rows[2][2:4] == ["noticed", "module input at train.py:18, and 1 more"]
    assert "The smallest change that was noticed is 1 % of the gradient of fc1.weight, in step 19." in text
    assert "<li><b>3 of 3</b>small faults noticed</li>" in text
    found = Tags(text).text
    assert "20 steps of the original with one unit in the last place of every weight, on one thread: loss" in found
    assert "NOT noticed" not in found and "not measured" not in found


def test_a_fault_that_was_not_noticed_stands_out() -> None:
    text = render_page(port_results.blind())
    rows = rows_of(text, "Smallest fault noticed")
    assert [row[2] for row in rows] == ["noticed", "NOT noticed", "not possible"]
    assert rows[1][3:] == ["", "", ""]
    assert "<span class='word error'>NOT noticed</span>" in text
    assert "<li class=bad><b>1 of 2</b>small faults noticed</li>" in text


def test_power_that_nobody_measured() -> None:
    text = Tags(render_page(port_results.without_power())).text
    assert "Smallest fault noticedNot measured: --no-control." in text
    assert "small faults noticed" not in text and "What the bounds rest on" not in text


def test_forced_steps_declared_roundings_and_draws() -> None:
    text = render_page(port_results.forced())
    found = Tags(text).text
    assert "From step 6 on rounding alone decides what the original computes." in found
    assert "20 steps compared one by one, each from the original's own state (1.23 MB)." in found
    assert "HF32 convolution rounds to 4.9e-04 (torch_npu, torch.npu.conv.allow_hf32)." in found
    assert "<tr><td>normal_</td><td>train.py:12</td>" in text and "class=off" not in text
    off = render_page(port(comparison=comparison(draws=[made.DRAWN, made.DRAWN_OFF])))
    assert "<tr class=off><td>bernoulli_</td><td>train.py:12</td>" in off and "<tr><td>normal_</td>" in off
    assert "one by one" not in render_page(port()) and "drew by itself" not in render_page(port())


def test_bands_show_what_is_allowed() -> None:
    text = draw_chart("d", {"a": [1e-7] * 4}, {"noise": [], "allowed": [1e-4, math.inf, 1e-3, 1e-3]}, logarithmic=True)
    assert text.count("<path") == 2 and "noise" not in text and "<span class='band allowed'>allowed</span>" in text
    band = text.partition('class="band allowed" d="')[2].partition('"')[0]
    assert band.count("M") == band.count("Z") == 2  # a step that is not judged is a gap
    assert ">1e-03<" in text.replace("0.001", "1e-03")


def test_equal_runs_say_so() -> None:
    assert "Equal in every digit, in 20 steps." in render_page(port(comparison=comparison(curve(apart=0.0))))


def test_use_of_the_npu_is_shown() -> None:
    found = render_page(port())
    assert "<li><b>5,412</b>operators launched on the NPU, in 20 of 20 steps</li>" in found
    assert "<li><b>NPU</b>held the port&#x27;s loss, gradients, parameters and outputs</li>" in found
    unused = render_page(port_results.unused())
    assert "<li class=bad><b>0</b>operators launched on the NPU" in unused
    assert "<li class=bad><b>CPU</b>held the port" in unused
    assert "npu:0, not used" in unused and "npu:0, not used" not in found
    assert "launched on the NPU" not in render_page(port(runs={"reference": run(), "npu": run(npu=True, evidence={})}))


def test_both_runs() -> None:
    written = [{"path": f"part{number}.pt", "change": "created", "size": 10} for number in range(9)]
    text = Tags(render_page(port_results.gan())).text
    assert "ended by torchport after 20 steps: enough to compare" in text
    assert "/data/cache/index.bin" in text
    assert "Both runs were ended after 50 steps and 60 s: --steps N for more." in text
    killed = Tags(render_page(port_results.odd()["killed"])).text
    assert "signal SIGKILL" in killed and "stopped after 20 steps: --timeout" in killed
    full = Tags(render_page(port(runs={"reference": run(ended="memory"), "npu": run(npu=True, files=written)}))).text
    assert "stopped after 20 steps: this machine's memory was used up" in full
    assert "part0.pt" in full and "part5.pt" in full and "part6.pt" not in full and "and 3 more" in full
    assert "Ranks88" in Tags(render_page(port_results.odd()["ranks"])).text


def test_times_are_of_this_machine() -> None:
    text = Tags(render_page(port())).text
    assert "2 min 36 s" in text and "31 ms7.8 s" in text and "e+03" not in text
    assert "Times are of this machine and say nothing about the speed of hardware." in text
    assert "hardware" not in Tags(render_page(port(backend="Ascend910B1"))).text


def test_files_that_differ_come_first() -> None:
    text = Tags(render_page(port_results.gan())).text
    places = [text.index(name) for name in ("model.pt", "extra.json", "samples/epoch_0.png", "log.txt")]
    assert places == sorted(places)
    assert "3 of 14 tensors differ" in text and "not there" in text


def test_modules_that_were_not_converted() -> None:
    text = render_page(port_results.gan())
    assert "<code>library/mylib/__init__.py:3</code>" in text
    assert "Imported, not converted" not in render_page(port())


def test_what_is_left_comes_before_what_is_done() -> None:
    found = Tags(render_page(analysis()))
    assert (
        found.text.index("no such thing") < found.text.index("Done, or good to know (1)") < found.text.index("renamed")
    )
    assert "unseen" not in found.text
    assert found.text.count("svd") == 3
    assert "3x3 → 4x4" in found.text


def test_errors_come_before_warnings() -> None:
    place = [Location(name, 1, 1, 1, 1) for name in ("a.py", "b.py")]
    findings = [
        Finding("TP1", Severity.WARNING, Safety.REPORT, place[0], "a warning"),
        Finding("TP2", Severity.INFO, Safety.REPORT, place[0], "an advice"),
        Finding("TP3", Severity.ERROR, Safety.REPORT, place[1], "an error"),
        Finding("TP4", Severity.ERROR, Safety.REPORT, None, "an error of the run"),
    ]
    text = Tags(render_page(port(tuple(findings)))).text
    places = [text.index(part) for part in ("an error of the run", "an error", "a warning", "an advice")]
    assert places == sorted(places)


def test_run_without_comparison() -> None:
    text = Tags(render_page(port_results.crashed())).text
    assert "not run" in text and "exit status 1" in text
    assert "ModuleNotFoundError: No module named 'tokenizers', which this project" in text
    assert "Original and port" not in text and "Original and port" in render_page(port())


def test_metric_that_differs_stands_out() -> None:
    bad = metric("accuracy", 97.0, 61.5, allowed=0.5, holds=False)
    text = render_page(port(comparison=comparison(metrics=[bad])))
    assert "<tr class=off><td>accuracy</td><td>97 %</td><td>61.5 %</td><td>0.5</td></tr>" in text
    assert "class=off" not in render_page(port())


def test_statistical_comparison() -> None:
    text = render_page(port_results.odd()["by chance"])
    assert "Means of loss at train.py:20" in text
    assert "<tr class=off><td>0 to 9</td>" in text
    assert "Relative difference" not in text


def test_clean_project(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    assert "Nothing blocks the port, and nothing needs a decision" in Tags(render_page(analyze_tree(tmp_path))).text


def test_chart_breaks_at_what_is_not_finite() -> None:
    text = draw_chart("loss", {"a": [1.0, math.nan, 2.0, math.inf, 3.0, 4.0]})
    path = text.partition('d="')[2].partition('"')[0]
    assert path.count("M") == 3 and path.count("L") == 1 and path.count("h5") == 2
    assert draw_chart("loss", {"a": [math.nan]}) == ""


def test_chart_of_one_step_is_a_dot() -> None:
    assert "h5" in draw_chart("loss", {"a": [1.0]})


def test_chart_tells_near_values_apart() -> None:
    for values in ([2.30001, 2.30002], [0.00001, 0.00002], [1e9, 1e9 + 4], [1.0, 5000.0]):
        scale = draw_chart("loss", {"a": values}).partition("<g class=axis>")[2]
        labels = re.findall(r"text-anchor=end>([^<]+)<", scale)
        assert len(labels) >= 2 and len(set(labels)) == len(labels)


def test_labels_have_room() -> None:
    text = draw_chart("difference", {"a": [1e-7, 1e-3]}, {"allowed": [1e-4] * 2}, logarithmic=True)
    for right, label in re.findall(r"<text x=([\d.]+) y=[\d.]+ text-anchor=end>([^<]+)<", text):
        assert float(right) - 10.5 * len(label) >= 0  # 19 px, as on a narrow screen


@pytest.mark.parametrize("values", [[0.0] * 5, [-3.0, 5.0], [1e-12, 1e12], [7.0]])
def test_chart_stays_inside(values: list[float]) -> None:
    text = draw_chart("loss", {"a": values})
    points = text.partition('d="')[2].partition('"')[0].replace("h5", "").replace("L", "M").split("M")[1:]
    for point in points:
        x, y = map(float, point.split())
        assert 0 <= x <= 720 and 0 <= y <= 240


def test_long_curves_are_thinned_and_keep_extremes() -> None:
    values = [float(step % 7) for step in range(10_000)]
    values[4321] = 1000.0
    path = draw_chart("loss", {"a": values}).partition('d="')[2].partition('"')[0]
    assert path.count("L") <= 2 * POINTS
    heights = [float(part.split()[1]) for part in path.replace("L", "M").split("M")[1:]]
    assert heights.count(min(heights)) == 1


def test_logarithmic_chart_leaves_zeros_out() -> None:
    text = draw_chart("difference", {"a": [0.0, 1e-7, 1e-3]}, {"allowed": [0.0, 1e-4, 1e-4]}, logarithmic=True)
    assert text.count("M") == 2 and "nan" not in text
    assert ">1e-05<" in text
