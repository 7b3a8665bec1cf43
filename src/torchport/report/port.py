"""The end of `torchport port` in a terminal: both runs in about ten lines, what was found, and the verdict."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath

from torchport.findings import Finding, Result, Severity
from torchport.report import wording
from torchport.report.columns import shorten_text, wrap_hanging_indent
from torchport.report.comparison import render_comparison, wrap_labelled_text
from torchport.report.terminal import Painter, render_findings, use_color
from torchport.report.wording import escape_unprintable
from torchport.results.comparison import Comparison
from torchport.results.port import FileRow, Port, Run

LISTED = 5  # files and modules that are named; the report has all
CARDS = 16  # ranks that are named
MESSAGE_LINES = 8  # of what a failing run wrote to stderr
MESSAGE = 400  # characters of one of these lines
_COLOUR = {"good": "32", "bad": "31", "open": "33"}  # green, red, amber
_FILE = "TP348"  # a file of the runs differs


def render_port(
    result: Result[Port], width: int | None = None, colour: bool | None = None, *, report: str = "", port: str = ""
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
        render_findings(select_shown_findings(result.findings), color=paint.on, width=columns),
        _messages(result.findings, columns),
    ]
    place = [f"  {escape_unprintable(report)}"] * bool(report)
    if port and data.verdict == "holds":
        place.append(f"  {escape_unprintable(port)} is the port")
    name = PurePath(data.script).name or "the port"
    closing = "\n".join([*_verdict(name, data, columns, paint), *place])
    return "\n" + "\n".join(f"{part.rstrip()}\n" for part in (*parts, closing) if part.strip())


def render_compare(result: Result[Comparison], width: int | None = None, colour: bool | None = None) -> str:
    """The text of `torchport compare`: curves, differences, findings, and the verdict in the same three words."""
    columns, paint = _stage(width, colour)
    parts = [
        render_comparison(result.data, width=columns),
        render_findings(select_shown_findings(result.findings), color=paint.on, width=columns),
        "\n".join(_verdict("", result.data, columns, paint)),
    ]
    return "\n".join(f"{part.rstrip()}\n" for part in parts if part.strip())


def select_shown_findings(findings: Iterable[Finding]) -> list[Finding]:
    """What a person has to know; the diff shows what was converted, a line of its own which files differ."""
    return [
        finding
        for finding in findings
        if finding.severity is not Severity.INFO or (finding.code.startswith("TP3") and finding.code != _FILE)
    ]


def _stage(width: int | None, colour: bool | None) -> tuple[int, Painter]:
    columns = width or min(shutil.get_terminal_size((100, 24)).columns, 120)
    return columns, Painter(use_color(sys.stdout) if colour is None else colour)


def _verdict(name: str, data: Port | Comparison, width: int, paint: Painter) -> Iterator[str]:
    """The word, why it is that one, and what would decide where nothing is decided."""
    word = data.verdict
    kind = wording.classify_verdict(word)
    reason = " ".join(escape_unprintable(data.reason).split())
    text = f"{word} ({reason})" if reason and kind == "good" else f"{word}: {reason}" if reason else word
    head = f"{escape_unprintable(name)}: " if name else ""
    first, *rest = wrap_hanging_indent("", f"{head}{text}", width - 2)
    yield first.replace(word, paint(word, f"1;{_COLOUR[kind]}"), 1) if word in first else first
    yield from (f"  {line}" for line in rest)
    if data.unchecked:
        yield from wrap_hanging_indent("  Not checked: ", escape_unprintable("; ".join(data.unchecked)) + ".", width)
    for step in data.decide:
        yield from wrap_hanging_indent("  to decide: ", escape_unprintable(step), width)


def _lines(data: Port, width: int) -> Iterator[str]:
    if data.comparison is not None:
        yield from render_comparison(data.comparison, width=width).splitlines()
    for label, text in _rows(data):
        yield from wrap_labelled_text(label, escape_unprintable(text), width)


def _rows(data: Port) -> Iterator[tuple[str, str]]:
    both = (("original", data.runs.reference), ("port", data.runs.npu))
    shown = [(name, run) for name, run in both if run is not None]
    if data.runs.npu is not None and (used := _used(data.runs.npu)):
        yield "NPU use", used
    if sums := wording.describe_sum_order(data):
        yield "sums", sums
    if shown:
        yield "runs", "; ".join(f"{name} {_run(run)}" for name, run in shown)
    if data.runs.npu is not None and (cards := wording.list_rank_cards(data.runs.npu)):
        yield "cards", _some(cards, most=CARDS)
    for name, run in shown:
        if run.outside:
            yield "", f"the {name} wrote outside its folder: {_some(run.outside)}"
    if data.files:
        yield "files", _files(data.files)
    if data.modules:
        yield "not converted", _some([f"{row.path}:{row.line} ({row.why})" for row in data.modules], "; ")
    for note in data.notes:
        yield "note", note


def _used(port: Run) -> str:
    where = [f"{wording.join_words(parts)} on {device}" for device, parts in wording.group_parts_by_device(port)]
    return "; ".join(filter(None, (wording.describe_launches(port), *where)))


def _run(run: Run) -> str:
    if run.skipped:
        return "not run"
    words = [
        f"on {wording.describe_device(run)}" if wording.describe_device(run) else "",
        wording.format_count(run.ranks, "rank") if run.ranks > 1 else "",
        wording.format_elapsed(run.seconds),
        wording.describe_end(run),
    ]
    return ", ".join(filter(None, words))


def _files(rows: Sequence[FileRow]) -> str:
    equal = sum(row.equal is True for row in rows)
    unknown = sum(row.equal is None for row in rows)
    words = [f"{equal} equal" if equal else "", f"{unknown} not compared" if unknown else ""]
    different = [f"{row.name}{f' ({row.note})' if row.note else ''}" for row in rows if row.equal is False]
    if different:
        words.append(f"{len(different)} {'differs' if len(different) == 1 else 'differ'}: {_some(different)}")
    return ", ".join(filter(None, words))


def _some(words: Sequence[str], between: str = ", ", most: int = LISTED) -> str:
    left = len(words) - most
    return between.join(words[:most]) + (f"{between}and {left} more" if left > 0 else "")


def _messages(findings: Iterable[Finding], width: int) -> str:
    """The last lines that a failing run wrote to stderr, without the marks below traceback lines."""
    for finding in findings:
        lines = [line for line in finding.evidence.get("stderr", ()) if line.strip(" ^~")]
        if lines:
            rows = [
                wrap_hanging_indent(_bar(line), shorten_text(escape_unprintable(line), MESSAGE), width)
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
