"""The top of a page: whose result it is, the verdict, the numbers behind it, and the commands that come next."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from torchport.findings import Result

_MARKS = {"good": "✓", "open": "!", "bad": "✕"}


def heading(result: Result) -> tuple[str, str]:
    """A label and a title: the command, and what it was run on."""
    title = result.data.get("script") or result.data.get("root") or ""
    return f"torchport {result.command}", str(title)


def verdict(result: Result) -> str:
    """One sentence that answers the question, and one that says on what grounds."""
    kind, text, grounds = _run(result) if "holds" in result.data else _static(result.data.get("summary", {}))
    grounds = f"<p>{escape(grounds)}</p>" if grounds else ""
    body = f"<div><h2>{escape(text)}</h2>{grounds}</div>"
    return f'<section class="verdict {kind}"><span>{_MARKS[kind]}</span>{body}</section>'


def _static(summary: dict[str, Any]) -> tuple[str, str, str]:
    blockers, decisions = summary.get("blockers", 0), summary.get("decisions", 0)
    left = (
        f"{_count(decisions, 'place')} more {'needs' if decisions == 1 else 'need'} a decision."
        if decisions
        else ""
    )
    if blockers:
        return (
            "bad",
            f"{_count(blockers, 'place')} {'keeps' if blockers == 1 else 'keep'} this from running on an NPU",
            left,
        )
    if decisions:
        return "open", f"Nothing blocks the port; {_count(decisions, 'decision')} left to you", ""
    return "good", "Nothing blocks the port, and nothing needs a decision", ""


def _run(result: Result) -> tuple[str, str, str]:
    data = result.data
    port = result.command == "port"
    comparison: Mapping[str, Any] | None = data.get("comparison") if port else data
    if not data["holds"]:
        reasons = [
            finding.message
            for finding in result.findings
            if finding.code.startswith("TP3") and finding.severity == "error"
        ]
        return (
            "bad",
            "The port does not hold" if port else "The runs do not agree",
            _sentence((reasons or [""])[0]),
        )
    if comparison is None:
        return "good", "The port trains like the original", ""
    worst = comparison["worst"]["first"]
    grounds = f"{_count(comparison['steps']['port'], 'step')} compared {comparison['method']}"
    if worst and not comparison["chance"]:
        grounds += f"; the worst of the first {comparison['tolerance']['first_steps']} differs by {float(worst):.1e}, "
        grounds += f"where {comparison['tolerance']['first']:g} is allowed"
    return (
        "good",
        "The port trains like the original" if port else "The runs agree",
        grounds + ".",
    )


def numbers(result: Result) -> str:
    """The counts as tiles."""
    tiles = [f"<li><b>{escape(value)}</b>{escape(word)}</li>" for value, word in _tiles(result)]
    return f"<ul class=tiles>{''.join(tiles)}</ul>" if tiles else ""


def _tiles(result: Result) -> Iterator[tuple[str, str]]:
    data = result.data
    comparison = (data.get("comparison") or {}) if result.command == "port" else data
    if steps := comparison.get("steps"):
        yield f"{int(steps['port'])}", "steps compared"
    for side, device in (("reference", "CPU"), ("port", "NPU")):
        seconds = (comparison.get("seconds") or {}).get(side)
        if seconds is not None:
            yield f"{float(seconds) * 1e3:.3g} ms", f"a step on the {device}"
    summary = data.get("summary", {})
    words = {
        "files": "files",
        "automatic": "safe changes",
        "review": "changes to review",
        "decisions": "decisions",
        "blockers": "blockers",
    }
    for key, word in words.items():
        if key in summary and (result.command != "port" or summary[key]):
            yield f"{int(summary[key])}", word
    if "effort_hours" in summary and result.command != "port":
        low, high = (float(hours) for hours in summary["effort_hours"])
        yield (f"{low:g}–{high:g} h" if high else "none", "work left, estimated")


def next_steps(result: Result) -> str:
    """The commands that come next."""
    steps = "".join(f"<li><code>{escape(step)}</code></li>" for step in _steps(result))
    return f"<section><h2>Next</h2><ol class=next>{steps}</ol></section>" if steps else ""


def _steps(result: Result) -> Iterator[str]:
    data = result.data
    codes = {
        finding.code: None for finding in result.findings if not finding.fix and finding.severity != "info"
    }
    for code in list(codes)[:2]:
        yield f"torchport explain {code}" if code.isalnum() else "torchport explain"
    root = shlex.quote(str(data.get("root", "")))
    if result.command == "analyze":
        yield f"torchport convert {root} --diff"
        is_script = str(data.get("root", "")).endswith(".py")
        yield f"torchport port {root}" if is_script else f"torchport convert {root} -o {root}_npu"
    elif result.command == "convert":
        yield "torchport port SCRIPT -- ARGUMENTS   (with which it trains for a minute)"
    elif result.command == "port" and not data["holds"]:
        yield " ".join(
            [
                "torchport port",
                shlex.quote(str(data["script"])),
                "--from npu --",
                *map(shlex.quote, data["arguments"]),
            ]
        )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}." if text else ""
