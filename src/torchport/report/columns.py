"""Text in the columns of a terminal: how wide it stands, and lines that break between words only."""

from __future__ import annotations

import re
import unicodedata

# A word, or a wide character with what may not be parted from it: Chinese is written without blanks.
_WIDE = "\u2e80-\u9fff\uac00-\ud7a3\uf900-\ufaff\uff00-\uff60"
_PIECES = re.compile(rf"\s+|[{_WIDE}][,。、;:!?)」』》]*|[^\s{_WIDE}]+")


def columns(text: str) -> int:
    """The columns that a text takes: two for a wide character, none for one that joins the one before."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def wrap(text: str, width: int) -> list[str]:
    """Lines of at most `width` columns; a word that is longer stands whole on a line of its own. At least one line."""
    lines = [""]
    used = 0
    for piece in _PIECES.findall(text.strip()):
        size = columns(piece)
        if used and used + columns(piece.rstrip()) > width:
            lines.append("")
            used = 0
        if piece.isspace():
            piece, size = (" ", 1) if used else ("", 0)
        lines[-1] += piece
        used += size
    return [line.rstrip() for line in lines if line.strip()] or [""]


def hanging(head: str, text: str, width: int) -> list[str]:
    """The text behind `head`, its other lines below its first."""
    indent = columns(head)
    first, *rest = wrap(text, max(width - indent, 24))
    return [f"{head}{first}".rstrip(), *(" " * indent + line for line in rest)]


def shortened(text: str, width: int) -> str:
    """The text in at most about `width` columns: of a path or a dotted name at its end the last parts, of other text
    the first words."""
    if columns(text) <= width:
        return text
    before, blank, path = text.rpartition(" ")
    mark = "/" if "/" in path else "."
    if mark in path and columns(before) < width // 2:
        parts = path.split(mark)
        dots = ".../" if mark == "/" else "..."
        for start in range(1, len(parts)):
            short = f"{before}{blank}{dots}{mark.join(parts[start:])}"
            if columns(short) <= width or start == len(parts) - 1:
                return short
    return f"{wrap(text, width - 4)[0]} ..."
