"""The top of a page: whose result it is, the verdict, the numbers behind it, and the commands that come next."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

from torchport.findings import Result
from torchport.report.html.comparison import get_comparison
from torchport.report.verdict import judge_result, list_next_commands
from torchport.report.wording import (
    describe_noticed_share,
    format_count,
    format_plural,
    format_sentence,
    group_parts_by_device,
    join_words,
    step_kind,
)
from torchport.results.comparison import Comparison, Controls, Evidence
from torchport.results.conversion import Summary
from torchport.results.port import Port, Run

_MARKS = {"good": "✓", "open": "!", "bad": "✕"}
_COMMANDS = ("torchport ", "python ", "pip ", "torchrun ")


def make_heading(result: Result[Any]) -> tuple[str, str]:
    """A label and a title: the command, and what it was run on."""
    data = result.data
    if isinstance(data, Port):
        title = data.script
    else:
        title = "" if isinstance(data, Comparison) else data.get("script") or data.get("root") or ""
    return f"torchport {result.command}", str(title)


def render_verdict_section(result: Result[Any]) -> str:
    """One sentence that answers the question, one that says on what grounds, and what would decide an open one."""
    kind, text, grounds = judge_result(result)
    mark = "?" if kind == "open" and isinstance(result.data, Port | Comparison) else _MARKS[kind]
    parts = [f"<h2>{escape(text)}</h2>", f"<p>{escape(grounds)}</p>" if grounds else "", _decide(result)]
    return f'<section class="verdict {kind}"><span aria-hidden=true>{mark}</span><div>{"".join(parts)}</div></section>'


def _decide(result: Result[Any]) -> str:
    steps = result.data.decide if isinstance(result.data, Port | Comparison) else ()
    items = "".join(f"<li>{_step(step)}</li>" for step in steps)
    return f"<h3>What would decide it</h3><ul>{items}</ul>" if items else ""


def _step(step: str) -> str:
    """A command as code, anything else as a sentence."""
    is_command = step.startswith(_COMMANDS)
    return f"<code>{escape(step)}</code>" if is_command else escape(format_sentence(step))


def render_number_tiles(result: Result[Any]) -> str:
    """The counts as tiles."""
    tiles = [
        f"<li{f' class={kind}' if kind else ''}><b>{escape(value)}</b>{escape(word)}</li>"
        for value, word, kind in _tiles(result)
    ]
    return f"<ul class=tiles>{''.join(tiles)}</ul>" if tiles else ""


def _tiles(result: Result[Any]) -> Iterator[tuple[str, str, str]]:
    data, comparison = result.data, get_comparison(result)
    if comparison is not None:
        number = comparison.steps.port
        noun = step_kind(comparison)
        yield f"{number:,}", f"{noun if number == 1 else format_plural(noun)} compared", ""
        yield from _power(comparison.controls)
    if isinstance(data, Port):
        if data.runs.npu is not None:
            yield from _evidence(data.runs.npu)
        yield from _summary(data.summary, only_some=True)
    elif not isinstance(data, Comparison) and "summary" in data:
        yield from _summary(data["summary"])


def _summary(summary: Summary, *, only_some: bool = False) -> Iterator[tuple[str, str, str]]:
    """The counts of findings; with `only_some` without those that are 0."""
    if summary.old.places:
        yield f"{summary.old.places:,}", "places of old torch", "bad" if summary.old.left else ""
    words = {
        "files": "files",
        "automatic": "safe changes",
        "review": "changes to review",
        "decisions": "decisions",
        "blockers": "blockers",
    }
    for name, word in words.items():
        number = getattr(summary, name)
        if number or not only_some:
            yield (f"{number:,}", word.replace("changes", "change").removesuffix("s") if number == 1 else word, "")


def _power(controls: Controls) -> Iterator[tuple[str, str, str]]:
    """How many of the faults that were put into the original were noticed."""
    words = describe_noticed_share(controls.rows) if controls.measured else ""
    if words:
        seen, _, rest = words.partition(" small ")
        number, _, total = seen.partition(" of ")
        yield seen, f"small {rest}", "" if number == total else "bad"


def _evidence(port: Run) -> Iterator[tuple[str, str, str]]:
    """What shows that the port used the NPU: operators that it launched there, and where its tensors were."""
    evidence = port.evidence or Evidence()
    if evidence.launches is not None:
        word = "operators launched on the NPU"
        if evidence.steps_with is not None and port.steps:
            word += f", in {evidence.steps_with:,} of {format_count(port.steps, 'step')}"
        yield f"{evidence.launches:,}", word, "" if evidence.launches else "bad"
    for device, parts in group_parts_by_device(port):
        on_cpu = evidence.loss == "cpu" and "loss" in parts
        yield device.removeprefix("the "), f"held the port's {join_words(parts)}", "bad" if on_cpu else ""


def next_steps(result: Result[Any]) -> str:
    """The commands that come next."""
    items = "".join(f"<li><code>{escape(step)}</code></li>" for step in list_next_commands(result))
    return f"<section><h2>Next</h2><ol class=next>{items}</ol></section>" if items else ""
