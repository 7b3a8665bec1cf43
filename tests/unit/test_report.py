"""Findings as terminal text."""

from __future__ import annotations

import dataclasses
import io
import math
import os
import shlex
import subprocess
import sys
from pathlib import Path

import evidence_results as made
import port_results
import pytest

from torchport.findings import Edit, Finding, Location, Result, Safety, Severity
from torchport.report import render_compare, render_findings, render_port, render_verdict, wording
from torchport.report.columns import count_columns, shorten_text, wrap_text
from torchport.report.html import render_page
from torchport.report.terminal import use_color
from torchport.results.codec import from_json, to_json
from torchport.results.comparison import Noticed, Quantity
from torchport.results.conversion import Summary

PLACE = Location("a.py", 3, 5, 3, 9)


def finding(**changes: object) -> Finding:
    values = {"code": "TP101", "severity": Severity.ERROR, "safety": Safety.REPORT, "location": PLACE, "message": "m"}
    return Finding(**{**values, **changes})  # type: ignore[arg-type]


def flat(text: str) -> str:
    """The text in one line, however it was wrapped."""
    return " ".join(text.split())


def test_nothing() -> None:
    assert render_findings([], color=False) == ""


def test_layout() -> None:
    text = render_findings([finding(message="It is wrong.", hint="Change it.")], color=False, width=80)
    assert text == "a.py\n       3:5  error    TP101  It is wrong.\n                            Change it.\n"


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({}, "error"),
        ({"severity": Severity.WARNING}, "warning"),
        ({"fix": (Edit(0, 0, b""),), "safety": Safety.SAFE}, "done"),
        ({"fix": (Edit(0, 0, b""),), "safety": Safety.REVIEW}, "review"),
    ],
)
def test_words(changes: dict[str, object], word: str) -> None:
    assert f" {word} " in render_findings([finding(**changes)], color=False)


def test_long_messages_wrap() -> None:
    lines = render_findings([finding(message="word " * 60)], color=False, width=80).splitlines()
    assert len(lines) > 3
    assert max(map(len, lines)) <= 80


def test_hostile_text_stays_text() -> None:
    place = Location("\x1b]0;title\x07.py", 1, 1, 1, 1)
    text = render_findings([finding(location=place, message="\x1b[2J\r\n‮")], color=False)
    assert "\x1b" not in text
    assert "\r" not in text
    assert "\\x1b[2J" in text


def test_color_only_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert use_color(Terminal())
    assert not use_color(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not use_color(Terminal())
    assert "\x1b[31m" in render_findings([finding()], color=True)


def test_worst_comes_first() -> None:
    other = Location("b.py", 1, 1, 1, 1)
    findings = [
        finding(severity=Severity.INFO, message="advice"),
        finding(severity=Severity.WARNING, message="warning"),
        finding(location=other, message="error"),
        finding(location=None, message="error of the run"),
    ]
    text = render_findings(findings, color=False)
    places = [text.index(part) for part in ("  error of the run", "b.py", "a.py", "  warning", "  advice")]
    assert places == sorted(places)
    assert text.count("a.py") == text.count("b.py") == 1


def test_chinese_wraps_by_columns() -> None:
    lines = render_findings([finding(message="缺少数据集,请先下载。" * 20)], color=False, width=80).splitlines()
    assert len(lines) > 5
    assert max(map(count_columns, lines)) <= 80
    assert not any(line.strip().startswith((",", "。")) for line in lines)


@pytest.mark.parametrize("width", [24, 40, 80, 120])
@pytest.mark.parametrize("text", ["one two three " * 9, "缺少数据集" * 9, "a/long/path/" * 20 + " end", "", "  x  "])
def test_wrapping_loses_nothing(text: str, width: int) -> None:
    lines = wrap_text(text, width)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert all(count_columns(line) <= width or " " not in line for line in lines)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0004, "0.4 ms"),
        (0.506, "506 ms"),
        (0.9997, "1.0 s"),
        (7.78, "7.8 s"),
        (59.97, "1 min"),
        (155.6, "2 min 36 s"),
        (3840, "1 h 4 min"),
        (float("nan"), "?"),
    ],
)
def test_times(value: float, text: str) -> None:
    assert wording.format_elapsed(value) == text


def test_counts() -> None:
    assert [wording.format_count(number, "finding") for number in (0, 1, 2, 1234)] == [
        "0 findings",
        "1 finding",
        "2 findings",
        "1,234 findings",
    ]
    assert wording.join_words([]) == "" and wording.join_words(["a", "b", "c"]) == "a, b and c"


@pytest.mark.parametrize("name", port_results.odd())
@pytest.mark.parametrize("width", [80, 120])
def test_every_shape_fits_the_terminal(name: str, width: int) -> None:
    result = port_results.odd()[name]
    text = render_port(result, width, False, report="out/report.html", port="out/train.py")
    lines = text.splitlines()
    assert max(map(count_columns, lines)) <= width
    assert "\x1b" not in text
    assert lines[-1 if result.data.verdict != "holds" else -2] == "  out/report.html"
    assert (lines[-1] == "  out/train.py is the port") is (result.data.verdict == "holds")
    flat = "".join("".join(lines).split())
    assert "".join(result.data.reason.split()) in flat  # whole: nothing is cut
    assert len(lines) <= 44


@pytest.mark.parametrize(
    ("verdict", "colour", "line"),
    [
        ("holds", "32", "train.py: holds (why)"),
        ("does not hold", "31", "train.py: does not hold: why"),
        ("undecided", "33", "train.py: undecided: why"),
    ],
)
def test_verdict_in_its_colour(verdict: str, colour: str, line: str) -> None:
    result = port_results.port(verdict=verdict, reason="why", decide=["pip install x"], comparison=None)
    plain = render_port(result, 100, False)
    assert line in plain.splitlines()
    assert ("  to decide: pip install x" in plain.splitlines()) is True
    painted = render_port(result, 100, True)
    assert f"\x1b[1;{colour}m{verdict}\x1b[0m" in painted
    others = {"31", "32", "33"} - {colour}
    assert not any(f"{other}m" in painted for other in others)
    assert "✕" not in painted and "✗" not in painted


def test_no_colour_where_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    text = render_port(port_results.gan())  # stdout is not a terminal here
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 60


def test_port_that_parts_says_where() -> None:
    text = render_port(port_results.gan(), 120, False)
    assert text.count("  original  ") == text.count("  port      ") == 3
    assert "loss at train.py:61" in text and "loss at .../generator.py:172" in text
    assert "differs at 2    loss at train.py:66: 1.68914 against 1.68849, 3.8e-04 (0.0001 allowed)\n" in text
    assert text.count("  differs at ") == 3 and "and 15 more differences in the report" in text
    assert "accuracy 97 % -> 61.5 % (differs, 0.5 allowed)" in text
    assert "2 differ: model.pt (3 of 14 tensors differ), extra.json" in text
    assert "library/mylib/__init__.py:3 (torch.cuda.is_available() decides the device)" in text
    assert "the original wrote outside its folder: /data/cache/index.bin" in text
    assert "note            both runs were ended after 50 steps" in text


def test_port_that_holds_is_short() -> None:
    text = render_port(port_results.port(), 120, False)
    assert "differs" not in text
    assert "5,412 operators launched on the NPU, in 20 of 20 steps" in text
    assert len(text.splitlines()) <= 17
    about = text[: text.index("  NPU use")].strip()
    assert len(about.splitlines()) <= 12


def test_what_was_compared_and_how_well() -> None:
    text = flat(render_port(port_results.port(), 100, False))
    assert (
        "compared 20 optimizer steps, step by step, float32: 20 losses within 1.0e-07 (0.0001 allowed), "
        "200 gradients within 2.1e-06 (3e-05), 200 updates within 4.0e-06 (3e-05), 6 settings and 40 copies to the device equal"
    ) in text
    assert (
        "rounding 20 steps of the original with one unit in the last place of every weight, on one thread: "
        "loss within 3.0e-08, gradients within 1.1e-06, updates within 2.0e-06 noticed"
    ) in text
    assert text.count("compared ") == 2  # here and in the verdict


def test_quantities_that_are_not_equal_are_not_called_equal() -> None:
    text = flat(render_port(port_results.parted(), 100, False))
    assert "200 gradients not finite (3e-05), 200 updates within 5.0e-02 (3e-05)" in text
    assert "6 settings (not all equal), 40 copies to the device (not all equal)" in text
    assert " equal " not in text.replace("not all equal", "")
    some = port_results.comparison(quantities=[made.quantity("upload", 0), made.quantity("loss scale", 3)])
    text = flat(render_port(port_results.port(comparison=some), 100, False))
    loose = [made.quantity("loss", 20, 0.2, allowed=math.inf), made.quantity("gradient", 20, 1e-6)]
    data = port_results.comparison(quantities=loose)
    said = flat(render_port(port_results.port(comparison=data), 100, False))
    assert "20 losses within 2.0e-01 (not judged), 20 gradients within 1.0e-06 (3e-05 allowed) rounding" in said
    assert "float32: 3 loss scales equal" in text and "upload" not in text.partition("control")[0]


def test_first_differences_with_their_noise() -> None:
    lines = render_port(port_results.parted(), 120, False).splitlines()
    assert (
        "  differs at 2    update of fc1.weight: 0.0126 against 0.0125, 5.0e-02 (noise 1.5e-07, 3e-06 allowed)" in lines
    )
    assert "  differs at 2    setting optimizer 0: lr: 0.002 against 0.001" in lines
    assert any("gradient of ...output.dense.LayerNorm.weight: 0.0126" in line for line in lines)
    assert "                  and 2 more differences in the report" in lines
    held = render_port(port_results.port(), 120, False)
    assert "differs at" not in held and "more difference" not in held
    rows = [
        made.difference(3, "upload", "train.py:14", None, reference="0f3a77c2d41b9e60", port="9bc2d41b9e600f3a"),
        made.difference(4, "gradient", "fc1.bias", math.inf, port=math.nan, reference=None),
    ]
    text = render_port(port_results.port(comparison=port_results.comparison(first=rows)), 120, False)
    assert "copy to the device at train.py:14: 9bc2d41b9e6... against 0f3a77c2d41...\n" in text
    assert "gradient of fc1.bias: nan against nothing, not finite (noise 1.5e-07, 3e-06 allowed)" in text


def test_each_control_says_by_what_it_was_noticed() -> None:
    text = render_port(port_results.port(), 120, False)
    lines = text.splitlines()
    assert "  noticed         5 % of one update, by update of fc1.weight 5.0e-02 (3e-06 allowed)" in lines
    assert "  noticed         1 % of one layer's gradient, by gradient of fc1.weight 1.0e-02 (3e-06 allowed)" in lines
    assert (
        "  noticed         one sample of a batch replaced, by module input at train.py:18 2.0e-03 (3e-06 allowed)"
        in lines
    )
    assert "The smallest change" not in text  # the verdict says it
    assert "NOT noticed" not in text and "not possible" not in text and "not measured" not in text


def test_a_fault_that_was_not_noticed_is_not_called_noticed() -> None:
    text = render_port(port_results.blind(), 120, False)
    assert "  NOT noticed     1 % of one layer's gradient (step 19, fc1.weight)\n" in text
    assert "  not possible    one sample of a batch replaced\n" in text
    assert text.count("  noticed  ") == 1
    assert "undecided: the comparison does not notice 1 % of one layer's gradient" in text


def test_where_the_runs_differ_faults_are_counted() -> None:
    text = render_port(port_results.parted(), 120, False)
    assert "  control         3 of 3 small faults noticed\n" in text and "  noticed  " not in text
    data = to_json(port_results.blind().data.comparison) | {"first": [made.difference(3, "change", "fc1.bias")]}
    text = render_port(port_results.port(comparison=data), 120, False)
    assert "  control         1 of 2 small faults noticed\n" in text
    assert "  NOT noticed     1 % of one layer's gradient" in text and "  not possible    one sample" in text


def test_power_that_nobody_measured() -> None:
    text = render_port(port_results.without_power(), 120, False)
    assert "  control         not measured: --no-control\n" in text
    assert "noticed" not in text and "rounding  " not in text
    rows = [made.control("update", made.noticed())]
    silent = port_results.comparison(controls=made.without_power("") | {"rows": rows})
    text = render_port(port_results.port(comparison=silent), 120, False)
    assert "  control         not measured\n" in text and "noticed" not in text


def test_steps_compared_from_the_state_of_the_original() -> None:
    text = flat(render_port(port_results.forced(), 120, False))
    assert "from step 6 on rounding alone decides what the original computes" in text
    assert "20 steps compared one by one, each from the original's own state (1.23 MB)" in text
    assert "HF32 convolution rounds to 4.9e-04" in text
    assert "drawn 1 random operator on the device, distributed as in the original" in text
    assert "one by one" not in render_port(port_results.port(), 120, False)
    off = port_results.comparison(draws=[made.DRAWN, made.DRAWN_OFF])
    text = render_port(port_results.port(comparison=off), 120, False)
    assert "drawn           bernoulli_ at train.py:12: mean 0.4, where 0.5 is expected\n" in text
    assert "distributed as" not in text


def test_steps_that_only_means_judge() -> None:
    allowed = [1e-4] * 6 + [math.inf] * 14
    data = port_results.comparison(
        port_results.curve(allowed=allowed),
        method="step by step at first, then statistically",
        covered={"single": 6, "means": 14},
    )
    text = render_port(port_results.port(comparison=data), 120, False)
    assert "20 optimizer steps, step by step, 14 of them by means, float32" in text


def test_compare_says_the_same() -> None:
    for result in (port_results.parted(), port_results.blind(), port_results.without_power()):
        assert result.data.comparison is not None
        lines = render_port(result, 100, False).splitlines()
        for line in render_compare(Result("compare", (), result.data.comparison), 100, False).splitlines()[:-2]:
            assert line in lines


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"kind": "gradient", "name": "fc1.weight"}, "gradient of fc1.weight"),
        ({"kind": "change", "name": "fc1.weight"}, "update of fc1.weight"),
        ({"kind": "loss", "name": "rank 1, train.py:20"}, "loss at rank 1, train.py:20"),
        ({"kind": "loss", "name": "loss at train.py:20"}, "loss at train.py:20"),
        ({"kind": "loss", "name": "loss.py:20"}, "loss at loss.py:20"),
        ({"kind": "loss scale", "name": ""}, "loss scale"),
        ({"kind": "setting", "name": "lr"}, "setting lr"),
        ({"kind": "weather", "name": "here"}, "weather of here"),
        ({"kind": "", "name": ""}, "value"),
    ],
)
def test_names_of_quantities(row: dict[str, str], words: str) -> None:
    assert wording.describe_quantity(Noticed(**row, error=0.0, allowed=0.0)) == words


def test_sizes_and_bounds() -> None:
    assert [wording.format_size(number) for number in (0, 512, 999.6, 1_234_567, 5e9, 7e13)] == [
        "0 B",
        "512 B",
        "1 kB",
        "1.23 MB",
        "5 GB",
        "70 TB",
    ]
    assert [wording.format_bound(value) for value in (3.4e-6, 1e-4, 0.01, math.inf)] == [
        "3.4e-06",
        "0.0001",
        "0.01",
        "not judged",
    ]


@pytest.mark.parametrize(
    ("row", "off"),
    [
        (made.quantity("gradient", 9, 3e-5), False),
        (made.quantity("gradient", 9, 3.1e-5), True),
        (made.quantity("gradient", 9, math.nan), True),
        (made.quantity("gradient", 9, math.inf), True),
        (made.quantity("setting", 9), False),
        (made.quantity("setting", 9, at={"step": 3, "name": "lr"}), True),
        (made.quantity("upload", 9, 1e-9, allowed=None), True),
    ],
)
def test_more_than_is_allowed(row: dict[str, object], off: bool) -> None:
    assert wording.is_off(from_json(Quantity, row)) is off


def test_cards_of_several_ranks_are_named() -> None:
    held = {"held": 2 << 20}
    ranks = [
        {"rank": 0, "cards": [{"device": "npu:0", "number": "3"} | held]},
        {"rank": 1, "cards": [{"device": "npu:1", "number": "1"} | held, {"device": "npu:0", "number": "3"} | held]},
    ]
    result = port_results.port(runs={"npu": port_results.run(npu=True, ranks=2, device="npu:0 (virtual)", cards=ranks)})
    said = flat(render_port(result, 200, colour=False))
    assert "cards rank 0: npu:0 (card 3), rank 1: npu:1 and npu:0 (card 3)" in said
    assert "port on NPUs (virtual), 2 ranks" in said
    assert "<td>rank 0: npu:0 (card 3)<br>rank 1: npu:1 and npu:0 (card 3)</td>" in render_page(result)
    assert to_json(result.data)["runs"]["npu"]["cards"] == ranks


def test_use_of_the_npu_is_not_claimed() -> None:
    text = render_port(port_results.unused(), 120, False)
    assert "no operator launched on the NPU; loss, gradients, parameters and outputs on the CPU" in text
    assert "npu:0, not used" in text


def test_losses_that_are_not_finite() -> None:
    text = render_port(port_results.odd()["nan"], 120, False)
    assert "!" in text
    assert "differs at 1    loss at train.py:20: nan against 1, not finite (0.0001 allowed)" in text


def test_statistical_comparison_shows_windows() -> None:
    text = render_port(port_results.odd()["by chance"], 120, False)
    assert "compared statistically; dropout draws on the device" in text
    assert "differs 0-9     loss at train.py:20: mean 1.5 against 1, 1.0e-01 allowed" in text


def test_messages_of_a_failing_run_are_whole() -> None:
    text = render_port(port_results.crashed(), 80, False)
    assert "  |     import tokenizers" in text and "^^^" not in text
    quoted = " ".join(line[4:].strip() for line in text.splitlines() if line.startswith("  |"))
    assert "before it can start with the first of its steps" in quoted


def test_hostile_port_stays_text() -> None:
    result = port_results.port(
        verdict="undecided",
        reason="\x1b[2J\rgone\nnext",
        decide=["\x1b]0;title\x07"],
        script="\x1b[31m.py",
        files=[port_results.left("\x1b[2J.pt", False)],
        notes=["\x1b[2J"],
        comparison=port_results.comparison(
            port_results.curve("\x1b[2J.py:1"),
            quantities=[made.quantity("\x1b[2J", 3, 1e-7)],
            first=[made.difference(2, "upload", "\x1b[2J", None, reference="\x1b[2J", port="\r")],
            controls=made.controls(made.control("update", made.noticed(name="\x1b[2J")) | {"words": "\x1b[2J"}),
            yardstick=made.yardstick(noise="\x1b[2J", declared=[made.HF32 | {"name": "\x1b[2J"}]),
            draws=[made.DRAWN_OFF | {"operator": "\x1b[2J"}],
        ),
    )
    text = render_port(result, 80, False)
    assert "\x1b" not in text and "\r" not in text
    assert "\\x1b[2J\\rgone\\nnext" in text


def test_comparison_in_the_same_words() -> None:
    result = port_results.compare(verdict="does not hold", reason="the loss differs from step 2 on")
    text = render_compare(dataclasses.replace(result, findings=(port_results.DIFFERENT,)), 80, False)
    assert text.splitlines()[-1] == "does not hold: the loss differs from step 2 on"
    assert "TP301" in text and "original" in text


@pytest.mark.parametrize(
    ("root", "folder"),
    [("project", "project_npu"), ("a/nb.ipynb", "a/nb_npu"), (".", "../work_npu"), ("my project", "'my project_npu'")],
)
def test_where_to_convert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: str, folder: str) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    summary = Summary(files=1, automatic=1, decisions=1, blockers=1)
    text = render_verdict(Result("analyze", (), {"root": root, "summary": summary}))
    assert f"next: torchport convert {shlex.quote(root)} -o {folder}\n" in text
    assert (
        "1 file: 1 change is automatic, 0 automatic but to be reviewed, 1 is for you to decide, 1 blocks the port"
        in text
    )
    assert " h" not in text  # hours that rest on nothing are not said


def test_names_are_shortened_between_words() -> None:
    assert shorten_text("models/very/deep/generator.py:172", 23) == ".../generator.py:172"
    assert shorten_text("rank 1, models/very/deep/generator.py:172", 20) == "rank 1, .../generator.py:172"
    assert shorten_text("one two three four five", 14) == "one two ..."
    assert shorten_text("gradient of encoder.layers.11.attention.weight", 32) == "gradient of ...attention.weight"
    assert shorten_text("short", 14) == "short"


@pytest.mark.parametrize(
    ("kind", "words"),
    [("optimizer step", "20 optimizer steps"), ("backward", "20 backward passes"), ("call", "20 module calls")],
)
def test_what_a_step_is(kind: str, words: str) -> None:
    data = port_results.comparison(steps={"kind": kind, "reference": 20, "port": 20})
    assert f"{words}, step by step" in render_port(port_results.port(comparison=data), 120, False)
    fewer = port_results.comparison(steps={"kind": kind, "reference": 20, "port": 7})
    assert f"{words} of the original, 7 of the port" in render_port(port_results.port(comparison=fewer), 120, False)


def test_a_terminal_that_lacks_letters(tmp_path: Path) -> None:
    (tmp_path / "训练.py").write_text("import torch\nx = torch.ones(1).cuda()\n", encoding="utf-8")
    command = [sys.executable, "-m", "torchport", "analyze", "训练.py"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert rb"\u8bad\u7ec3.py" in done.stdout


def test_files_are_said_once() -> None:
    one = Finding("TP348", Severity.INFO, Safety.REPORT, None, "the file out.pt differs")
    result = port_results.port((one,), files=[port_results.left("out.pt", False)])
    assert render_port(result, 120, False).count("out.pt") == 1
    against = Finding("TP348", Severity.ERROR, Safety.REPORT, None, "the file out.pt differs")
    assert "TP348" in render_port(port_results.port((against,)), 120, False)
