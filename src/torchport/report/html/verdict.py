"""The top of a page: whose result it is, the verdict, the numbers behind it, and the commands that come next."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from torchport.findings import Result
from torchport.report.verdict import effort, judge, steps

_MARKS = {"good": "✓", "open": "!", "bad": "✕"}


def heading(result: Result) -> tuple[str, str]:
    """A label and a title: the command, and what it was run on."""
    title = result.data.get("script") or result.data.get("root") or ""
    return f"torchport {result.command}", str(title)


def verdict(result: Result) -> str:
    """One sentence that answers the question, and one that says on what grounds."""
    kind, text, grounds = judge(result)
    grounds = f"<p>{escape(grounds)}</p>" if grounds else ""
    body = f"<div><h2>{escape(text)}</h2>{grounds}</div>"
    return f'<section class="verdict {kind}"><span>{_MARKS[kind]}</span>{body}</section>'


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
        yield effort(summary), "work left, estimated"


def next_steps(result: Result) -> str:
    """The commands that come next."""
    items = "".join(f"<li><code>{escape(step)}</code></li>" for step in steps(result))
    return f"<section><h2>Next</h2><ol class=next>{items}</ol></section>" if items else ""
