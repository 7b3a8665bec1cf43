"""Findings as text for a terminal."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from itertools import groupby
from typing import TextIO

from torchport.findings import Finding, Safety, Severity
from torchport.report.columns import wrap_text
from torchport.report.wording import escape_unprintable

__all__ = ["Painter", "by_severity", "escape_unprintable", "render_findings", "use_color"]

_STYLE = {Severity.ERROR: "31", Severity.WARNING: "33", Severity.INFO: "36"}
_DONE = "32"
_DIM = "2"
_BOLD = "1"


def use_color(stream: TextIO) -> bool:
    """Whether to color: on a terminal only, and never where NO_COLOR is set (https://no-color.org)."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and stream.isatty()


def render_findings(findings: Iterable[Finding], *, color: bool | None = None, width: int | None = None) -> str:
    """The findings, the worst first and then by file, each with its place, what it says and what to do; empty text
    for none.

    `color` None colors where stdout is a terminal; `width` None takes the terminal's, at most 120 columns.
    """
    paint = Painter(use_color(sys.stdout) if color is None else color)
    columns = width or min(shutil.get_terminal_size((100, 24)).columns, 120)
    lines: list[str] = []
    for path, group in groupby(by_severity(findings), key=_path):
        if path:
            lines.append(paint(escape_unprintable(path), _BOLD))
        elif lines:
            lines.append("")  # what has no place does not belong to the file above
        for finding in group:
            lines += _finding(finding, columns, paint)
    return "\n".join(lines) + "\n" if lines else ""


def by_severity(findings: Iterable[Finding]) -> list[Finding]:
    """Errors, then what a person has to decide or review, then what is done or good to know.

    Within each the order stays, but what has no place in a file comes first and what is in one file stays together.
    """
    found = list(findings)
    paths = {"": 0}
    for one in found:
        paths.setdefault(_path(one), len(paths))
    return sorted(found, key=lambda one: (rank_finding(one), paths[_path(one)]))


def rank_finding(finding: Finding) -> int:
    """0 for an error that is left, 1 for what asks for a person, 2 for the rest."""
    if finding.fix:
        return 1 if finding.safety is Safety.REVIEW else 2
    return {Severity.ERROR: 0, Severity.WARNING: 1}.get(finding.severity, 2)


def _path(finding: Finding) -> str:
    return finding.location.path if finding.location else ""


def _finding(finding: Finding, width: int, paint: Painter) -> list[str]:
    word, code = ("done", _DONE) if finding.fix else (finding.severity.value, _STYLE[finding.severity])
    if finding.fix and finding.safety is Safety.REVIEW:
        word, code = "review", _STYLE[Severity.WARNING]
    place = f"{finding.location.line}:{finding.location.column}" if finding.location else ""
    head = f"  {place:>8}  {word:<7}  {finding.code}  "
    message = _wrap(escape_unprintable(finding.message), width, len(head))
    lines = [f"  {place:>8}  {paint(f'{word:<7}', code)}  {finding.code}  {message[0]}", *message[1:]]
    if finding.hint and not (finding.fix and finding.safety is Safety.SAFE and finding.severity is Severity.INFO):
        lines += [
            paint(line, _DIM) for line in _wrap(escape_unprintable(finding.hint), width, len(head), indent_first=True)
        ]
    return lines


def _wrap(text: str, width: int, indent: int, *, indent_first: bool = False) -> list[str]:
    pieces = wrap_text(text, max(width - indent, 24))
    return [" " * indent + piece if index or indent_first else piece for index, piece in enumerate(pieces)]


class Painter:
    """Colours text where `on`."""

    def __init__(self, on: bool) -> None:
        self.on = on

    def __call__(self, text: str, code: str) -> str:
        """The text in the colour of an ANSI code such as "31"."""
        return f"\x1b[{code}m{text}\x1b[0m" if self.on else text
