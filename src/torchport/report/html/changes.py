"""The changes of a conversion, old and new side by side (one below the other on a narrow screen)."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from torchport.findings import Result
from torchport.results.port import Port

_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")
_WORD = re.compile(r"\w+|\s+|.")
LONGEST = 1000  # characters of a line in which single words are marked
NEIGHBOURS = 20  # lines among which the one that is most alike is looked for


def render_changes_section(result: Result[Any]) -> str:
    """One folded block for each file of the unified diff of a port or conversion; open if there are few."""
    data = result.data
    diff = data.diff if isinstance(data, Port) else str(data.get("diff", "")) if isinstance(data, Mapping) else ""
    files = re.split(r"^(?=--- )", diff, flags=re.MULTILINE)
    blocks = [_file(text.split("\n")) for text in files if text.startswith("--- ")]
    if not blocks:
        return ""
    opened = " open" if len(blocks) <= 3 else ""
    return (
        "<section><h2>Changes</h2>" + "".join(f"<details{opened}>{block}</details>" for block in blocks) + "</section>"
    )


def _file(lines: list[str]) -> str:
    name = next((line[4:].partition("/")[2] for line in lines if line.startswith("+++ ")), "")
    removed = sum(line.startswith("-") for line in lines[2:])
    added = sum(line.startswith("+") for line in lines[2:])
    rows = "".join(_rows(lines[2:]))
    return f"<summary>{escape(name)} <span class=hint>+{added} −{removed}</span></summary><div class=diff>{rows}</div>"


def _rows(lines: list[str]) -> Iterator[str]:
    """Removed and added lines of a block face each other."""
    removed: list[str] = []
    added: list[str] = []
    old = new = 0
    for line in [*lines, ""]:
        if line[:1] == "-":
            removed.append(line[1:])
            continue
        if line[:1] == "+":
            added.append(line[1:])
            continue
        for before, after in _facing(removed, added):
            left, right = _marked(before, after)
            yield _row(old if before is not None else 0, left, new if after is not None else 0, right, "changed")
            old, new = old + (before is not None), new + (after is not None)
        removed, added = [], []
        if found := _HUNK.match(line):
            if old:
                yield "<div class=gap></div>"
            old, new = int(found[1]), int(found[2])
        elif line[:1] == " ":
            text = escape(line[1:])
            yield _row(old, text, new, text, "same")
            old, new = old + 1, new + 1


def _facing(removed: list[str], added: list[str]) -> Iterator[tuple[str | None, str | None]]:
    """Lines of one block in pairs: each of the fewer ones faces the one of the others that is most like it."""
    if len(removed) > len(added):
        yield from ((before, after) for after, before in _facing(added, removed))
        return
    at = 0
    for index, before in enumerate(removed):
        room = len(added) - (len(removed) - index) + 1
        choice = range(at, min(room, at + NEIGHBOURS))
        best = max(choice, key=lambda one: (_likeness(before, added[one]), -one))
        yield from ((None, added[one]) for one in range(at, best))
        yield before, added[best]
        at = best + 1
    yield from ((None, added[one]) for one in range(at, len(added)))


def _likeness(one: str, two: str) -> float:
    return difflib.SequenceMatcher(None, _WORD.findall(one[:LONGEST]), _WORD.findall(two[:LONGEST])).ratio()


def _row(old: int, left: str | None, new: int, right: str | None, kind: str) -> str:
    def side(number: int, text: str | None, name: str) -> str:
        return (
            "<span></span><code></code>" if text is None else f"<span>{number}</span><code class={name}>{text}</code>"
        )

    return f"<div class={kind}>{side(old, left, 'old')}{side(new, right, 'new')}</div>"


def _marked(before: str | None, after: str | None) -> tuple[str | None, str | None]:
    """Both lines escaped, with what differs between them marked."""
    if before is None or after is None or max(len(before), len(after)) > LONGEST:
        return (None if before is None else escape(before)), (None if after is None else escape(after))
    one, two = _WORD.findall(before), _WORD.findall(after)
    left, right = "", ""
    for kind, a, b, c, d in difflib.SequenceMatcher(None, one, two, autojunk=False).get_opcodes():
        old, new = escape("".join(one[a:b])), escape("".join(two[c:d]))
        left += old if kind == "equal" or not old else f"<mark>{old}</mark>"
        right += new if kind == "equal" or not new else f"<mark>{new}</mark>"
    return left, right
