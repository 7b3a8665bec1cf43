"""The top of a page: whose result it is, the verdict, the numbers behind it, and the commands that come next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from torchport.findings import Result
from torchport.report.html.comparison import compared
from torchport.report.verdict import effort, is_run, judge, steps
from torchport.report.wording import count, faults, listed, places, plural, sentence, step_kind

_MARKS = {"good": "✓", "open": "!", "bad": "✕"}
_COMMANDS = ("torchport ", "python ", "pip ", "torchrun ")


def heading(result: Result) -> tuple[str, str]:
    """A label and a title: the command, and what it was run on."""
    title = result.data.get("script") or result.data.get("root") or ""
    return f"torchport {result.command}", str(title)


def verdict(result: Result) -> str:
    """One sentence that answers the question, one that says on what grounds, and what would decide an open one."""
    kind, text, grounds = judge(result)
    mark = "?" if kind == "open" and is_run(result) else _MARKS[kind]
    parts = [f"<h2>{escape(text)}</h2>", f"<p>{escape(grounds)}</p>" if grounds else "", _decide(result)]
    return f'<section class="verdict {kind}"><span aria-hidden=true>{mark}</span><div>{"".join(parts)}</div></section>'


def _decide(result: Result) -> str:
    steps = [str(step) for step in result.data.get("decide") or ()] if is_run(result) else []
    items = "".join(f"<li>{_step(step)}</li>" for step in steps)
    return f"<h3>What would decide it</h3><ul>{items}</ul>" if items else ""


def _step(step: str) -> str:
    """A command as code, anything else as a sentence."""
    is_command = step.startswith(_COMMANDS)
    return f"<code>{escape(step)}</code>" if is_command else escape(sentence(step))


def numbers(result: Result) -> str:
    """The counts as tiles."""
    tiles = [
        f"<li{f' class={kind}' if kind else ''}><b>{escape(value)}</b>{escape(word)}</li>"
        for value, word, kind in _tiles(result)
    ]
    return f"<ul class=tiles>{''.join(tiles)}</ul>" if tiles else ""


def _tiles(result: Result) -> Iterator[tuple[str, str, str]]:
    data = result.data
    steps = compared(result).get("steps") or {}
    if steps.get("port") is not None:
        number = int(steps["port"])
        noun = step_kind(compared(result))
        yield f"{number:,}", f"{noun if number == 1 else plural(noun)} compared", ""
    yield from _power(compared(result).get("controls") or {})
    yield from _evidence((data.get("runs") or {}).get("npu") or {})
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
            one = word.replace("changes", "change").removesuffix("s") if int(summary[key]) == 1 else word
            yield f"{int(summary[key]):,}", one, ""
    if "effort_hours" in summary and result.command != "port":
        yield effort(summary), "work left, estimated", ""


def _power(controls: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """How many of the faults that were put into the original were noticed."""
    words = faults(controls.get("rows") or ()) if controls.get("measured") else ""
    if words:
        seen, _, rest = words.partition(" small ")
        number, _, total = seen.partition(" of ")
        yield seen, f"small {rest}", "" if number == total else "bad"


def _evidence(port: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """What shows that the port used the NPU: operators that it launched there, and where its tensors were."""
    evidence = port.get("evidence") or {}
    launches, steps_with, steps = evidence.get("launches"), evidence.get("steps_with"), port.get("steps")
    if launches is not None:
        word = "operators launched on the NPU"
        if steps_with is not None and steps:
            word += f", in {int(steps_with):,} of {count(int(steps), 'step')}"
        yield f"{int(launches):,}", word, "" if launches else "bad"
    for device, parts in places(port):
        on_cpu = evidence.get("loss") == "cpu" and "loss" in parts
        yield device.removeprefix("the "), f"held the port's {listed(parts)}", "bad" if on_cpu else ""


def next_steps(result: Result) -> str:
    """The commands that come next."""
    items = "".join(f"<li><code>{escape(step)}</code></li>" for step in steps(result))
    return f"<section><h2>Next</h2><ol class=next>{items}</ol></section>" if items else ""
