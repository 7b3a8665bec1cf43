"""Findings as text for a terminal."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterable
from itertools import groupby
from typing import TextIO

from torchport.findings import Finding, Safety, Severity

_STYLE = {Severity.ERROR: "31", Severity.WARNING: "33", Severity.INFO: "36"}
_DONE = "32"
_DIM = "2"
_BOLD = "1"


def use_color(stream: TextIO) -> bool:
    """Whether to color: on a terminal only, and never where NO_COLOR is set (https://no-color.org)."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and stream.isatty()


def render(findings: Iterable[Finding], *, color: bool | None = None, width: int | None = None) -> str:
    """The findings by file, each with its place, what it says and what to do; empty text for none.

    `color` None colors where stdout is a terminal; `width` None takes the terminal's, at most 120 columns.
    """
    paint = _Painter(use_color(sys.stdout) if color is None else color)
    columns = width or min(shutil.get_terminal_size((100, 24)).columns, 120)
    lines: list[str] = []
    for path, group in groupby(
        findings, key=lambda finding: finding.location.path if finding.location else ""
    ):
        lines.append(paint(printable(path), _BOLD) if path else "")
        for finding in group:
            lines += _finding(finding, columns, paint)
    return "\n".join(lines) + "\n" if lines else ""


def _finding(finding: Finding, width: int, paint: _Painter) -> list[str]:
    word, code = ("done", _DONE) if finding.fix else (finding.severity.value, _STYLE[finding.severity])
    if finding.fix and finding.safety is Safety.REVIEW:
        word, code = "review", _STYLE[Severity.WARNING]
    place = f"{finding.location.line}:{finding.location.column}" if finding.location else ""
    head = f"  {place:>8}  {word:<7}  {finding.code}  "
    message = _wrap(printable(finding.message), width, len(head))
    lines = [f"  {place:>8}  {paint(f'{word:<7}', code)}  {finding.code}  {message[0]}", *message[1:]]
    if finding.hint and not (
        finding.fix and finding.safety is Safety.SAFE and finding.severity is Severity.INFO
    ):
        lines += [
            paint(line, _DIM) for line in _wrap(printable(finding.hint), width, len(head), indent_first=True)
        ]
    return lines


def _wrap(text: str, width: int, indent: int, *, indent_first: bool = False) -> list[str]:
    pieces = textwrap.wrap(text, max(width - indent, 40), break_long_words=False, break_on_hyphens=False) or [
        ""
    ]
    return [" " * indent + piece if index or indent_first else piece for index, piece in enumerate(pieces)]


def printable(text: str) -> str:
    """The text without anything that a terminal would obey: control characters become visible escapes."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text
    )


class _Painter:
    def __init__(self, on: bool) -> None:
        self._on = on

    def __call__(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._on else text
