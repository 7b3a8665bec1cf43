"""Text in the columns of a terminal: how wide it stands, and lines that break between words only."""

from __future__ import annotations

import re
import unicodedata

# A word, or a wide character with what may not be parted from it: Chinese is written without blanks.
_WIDE = "\u2e80-\u9fff\uac00-\ud7a3\uf900-\ufaff\uff00-\uff60"
_PIECES = re.compile(rf"\s+|[{_WIDE}][,。、;:!?)」』》]*|[^\s{_WIDE}]+")


def count_columns(text: str) -> int:
    """The columns that a text takes: two for a wide character, none for one that joins the one before."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def wrap_text(text: str, width: int) -> list[str]:
    """Lines of at most `width` columns; a word that is longer stands whole on a line of its own. At least one line."""
    lines = [""]
    used = 0
    for piece in _PIECES.findall(text.strip()):
        size = count_columns(piece)
        if used and used + count_columns(piece.rstrip()) > width:
            lines.append("")
            used = 0
        if piece.isspace():
            piece, size = (" ", 1) if used else ("", 0)
        lines[-1] += piece
        used += size
    return [line.rstrip() for line in lines if line.strip()] or [""]


def wrap_hanging_indent(head: str, text: str, width: int) -> list[str]:
    """The text behind `head`, its other lines below its first."""
    indent = count_columns(head)
    first, *rest = wrap_text(text, max(width - indent, 24))
    return [f"{head}{first}".rstrip(), *(" " * indent + line for line in rest)]


def shorten_text(text: str, width: int) -> str:
    """The text in at most about `width` columns: of a path or a dotted name at its end the last parts, of other text
    the first words."""
    if count_columns(text) <= width:
        return text
    before, blank, path = text.rpartition(" ")
    mark = "/" if "/" in path else "."
    if mark in path and count_columns(before) < width // 2:
        parts = path.split(mark)
        dots = ".../" if mark == "/" else "..."
        for start in range(1, len(parts)):
            short = f"{before}{blank}{dots}{mark.join(parts[start:])}"
            if count_columns(short) <= width or start == len(parts) - 1:
                return short
    return f"{wrap_text(text, width - 4)[0]} ..."
