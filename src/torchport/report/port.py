"""The end of `torchport port` in a terminal: both runs in about ten lines, what was found, and the verdict."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

from torchport.findings import Finding, Result, Severity
from torchport.report import wording
from torchport.report.columns import hanging, shortened
from torchport.report.comparison import labelled, render_comparison
from torchport.report.terminal import Painter, render, use_color
from torchport.report.wording import printable

LISTED = 5  # files and modules that are named; the report has all
MESSAGE_LINES = 8  # of what a failing run wrote to stderr
MESSAGE = 400  # characters of one of these lines
_COLOUR = {"good": "32", "bad": "31", "open": "33"}  # green, red, amber
_FILE = "TP348"  # a file of the runs differs


def render_port(
    result: Result,
    width: int | None = None,
    colour: bool | None = None,
    *,
    report: str = "",
    port: str = "",
) -> str:
    """The closing text of `torchport port`, the verdict last.

    `width` None takes the terminal's columns, at most 120; `colour` None colours where stdout is a terminal and
    NO_COLOR is not set. `report` and `port` are the paths of the HTML report and of the converted script; the second
    is shown where the port holds.
    """
    columns, paint = _stage(width, colour)
    data = result.data
    parts = [
        "\n".join(_lines(data, columns)),
        render(shown(result.findings), color=paint.on, width=columns),
        _messages(result.findings, columns),
    ]
    place = [f"  {printable(report)}"] * bool(report)
    if port and data.get("verdict") == "holds":
        place.append(f"  {printable(port)} is the port")
    name = PurePath(str(data.get("script") or "")).name or "the port"
    closing = "\n".join([*_verdict(name, data, columns, paint), *place])
    return "\n" + "\n".join(f"{part.rstrip()}\n" for part in (*parts, closing) if part.strip())


def render_compare(result: Result, width: int | None = None, colour: bool | None = None) -> str:
    """The text of `torchport compare`: curves, differences, findings, and the verdict in the same three words."""
    columns, paint = _stage(width, colour)
    parts = [
        render_comparison(result.data, width=columns),
        render(shown(result.findings), color=paint.on, width=columns),
        "\n".join(_verdict("", result.data, columns, paint)),
    ]
    return "\n".join(f"{part.rstrip()}\n" for part in parts if part.strip())


def shown(findings: Iterable[Finding]) -> list[Finding]:
    """What a person has to know; the diff shows what was converted, a line of its own which files differ."""
    return [
        one
        for one in findings
        if one.severity is not Severity.INFO or (one.code.startswith("TP3") and one.code != _FILE)
    ]


def _stage(width: int | None, colour: bool | None) -> tuple[int, Painter]:
    columns = width or min(shutil.get_terminal_size((100, 24)).columns, 120)
    return columns, Painter(use_color(sys.stdout) if colour is None else colour)


def _verdict(name: str, data: Mapping[str, Any], width: int, paint: Painter) -> Iterator[str]:
    """The word, why it is that one, and what would decide where nothing is decided."""
    word = str(data.get("verdict") or "undecided")
    kind = wording.kind(word)
    reason = " ".join(printable(str(data.get("reason") or "")).split())
    text = f"{word} ({reason})" if reason and kind == "good" else f"{word}: {reason}" if reason else word
    head = f"{printable(name)}: " if name else ""
    first, *rest = hanging("", f"{head}{text}", width - 2)
    yield first.replace(word, paint(word, f"1;{_COLOUR[kind]}"), 1) if word in first else first
    yield from (f"  {line}" for line in rest)
    for step in data.get("decide") or ():
        yield from hanging("  to decide: ", printable(str(step)), width)


def _lines(data: Mapping[str, Any], width: int) -> Iterator[str]:
    comparison = data.get("comparison")
    if comparison:
        yield from render_comparison(comparison, width=width).splitlines()
    for label, text in _rows(data):
        yield from labelled(label, printable(text), width)


def _rows(data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    runs = data.get("runs") or {}
    port = runs.get("npu") or {}
    if used := _used(port):
        yield "NPU use", used
    shown = [(name, runs.get(step) or {}) for step, name in (("reference", "original"), ("npu", "port"))]
    if any(run for _, run in shown):
        yield "runs", "; ".join(f"{name} {_run(run)}" for name, run in shown if run)
    for name, run in shown:
        if outside := run.get("outside"):
            yield "", f"the {name} wrote outside its folder: {_some(list(map(str, outside)))}"
    files = data.get("files") or ()
    if files:
        yield "files", _files(files)
    modules = [f"{row.get('path')}:{row.get('line')} ({row.get('why')})" for row in data.get("modules") or ()]
    if modules:
        yield "not converted", _some(modules, "; ")
    for note in data.get("notes") or ():
        yield "note", str(note)


def _used(port: Mapping[str, Any]) -> str:
    where = [f"{wording.listed(parts)} on {device}" for device, parts in wording.places(port)]
    return "; ".join(filter(None, (wording.launched(port), *where)))


def _run(run: Mapping[str, Any]) -> str:
    if run.get("skipped"):
        return "not run"
    ranks = int(run.get("ranks") or 1)
    words = [
        f"on {wording.device(run)}" if wording.device(run) else "",
        wording.count(ranks, "rank") if ranks > 1 else "",
        wording.elapsed(float(run["seconds"])) if run.get("seconds") is not None else "",
        wording.ended(run),
    ]
    return ", ".join(filter(None, words))


def _files(files: Iterable[Mapping[str, Any]]) -> str:
    rows = list(files)
    equal = sum(row.get("equal") is True for row in rows)
    unknown = sum(row.get("equal") is None for row in rows)
    words = [f"{equal} equal" if equal else "", f"{unknown} not compared" if unknown else ""]
    different = [
        f"{row.get('name')}{f' ({note})' if (note := str(row.get('note') or '')) else ''}"
        for row in rows
        if row.get("equal") is False
    ]
    if different:
        words.append(f"{len(different)} {'differs' if len(different) == 1 else 'differ'}: {_some(different)}")
    return ", ".join(filter(None, words))


def _some(words: list[str], between: str = ", ") -> str:
    left = len(words) - LISTED
    return between.join(words[:LISTED]) + (f"{between}and {left} more" if left > 0 else "")


def _messages(findings: Iterable[Finding], width: int) -> str:
    """The last lines that a failing run wrote to stderr, without the marks below traceback lines."""
    for finding in findings:
        lines = [line for line in finding.evidence.get("stderr", ()) if line.strip(" ^~")]
        if lines:
            rows = [
                hanging(_bar(line), shortened(printable(line), MESSAGE), width)
                for line in lines[-MESSAGE_LINES:]
            ]
            shown_lines = ["  | last lines on stderr:", *(one for row in rows for one in _barred(row))]
            return "\n".join(shown_lines) + "\n"
    return ""


def _bar(line: str) -> str:
    """The mark of a quoted line, with the blanks that the line begins with."""
    return "  | " + " " * (len(line) - len(line.lstrip()))


def _barred(lines: list[str]) -> Iterator[str]:
    yield from (line if line.startswith("  |") else f"  |{line[3:]}" for line in lines)
