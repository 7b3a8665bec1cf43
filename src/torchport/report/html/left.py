"""What the runs left: their files side by side, and the modules that nobody converted."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from torchport.findings import Result
from torchport.report import wording
from torchport.report.html.tables import records

ROWS = 200  # of each table
_WORDS = {"equal": "done", "differs": "error", "not compared": "info"}


def files(result: Result) -> str:
    """The files that the runs wrote, those that differ first; empty for none."""
    rows = list(result.data.get("files") or ())
    if not rows:
        return ""
    order = list(reversed(_WORDS))
    rows.sort(key=lambda row: (wording.differs(row) != "differs", order.index(wording.differs(row))))
    table = records(
        ("File", "Kind", "Original", "Port", "", "Difference", "Note"),
        [_file(row) for row in rows[:ROWS]],
        "files",
    )
    return f"<section><h2>Files that the runs wrote ({len(rows):,})</h2>{table}{_more(len(rows))}</section>"


def modules(result: Result) -> str:
    """Imported modules of the user's that name CUDA and were not converted; empty for none."""
    rows = list(result.data.get("modules") or ())
    if not rows:
        return ""
    cells = [
        (
            f"<code>{escape(str(row.get('path')))}:{escape(str(row.get('line')))}</code>",
            escape(str(row.get("why") or "")),
        )
        for row in rows[:ROWS]
    ]
    return (
        f"<section><h2>Imported, not converted ({len(rows):,})</h2>"
        "<p>The script imports these; they name CUDA, and the port used them as they are.</p>"
        f"{records(('Module', 'Why'), cells, 'modules')}{_more(len(rows))}</section>"
    )


def _place(row: Mapping[str, Any]) -> str:
    return f"<code>{escape(str(row.get('path')))}:{escape(str(row.get('line')))}</code>"


def _file(row: Mapping[str, Any]) -> tuple[str, ...]:
    word = wording.differs(row)
    difference = row.get("difference")
    return (
        f"<code>{escape(str(row.get('name')))}</code>",
        escape(str(row.get("kind") or "")),
        escape(str(row.get("reference") or "not there")),
        escape(str(row.get("port") or "not there")),
        f"<span class='word {_WORDS[word]}'>{word}</span>",
        "" if difference is None else escape(wording.error(float(difference))),
        escape(str(row.get("note") or "")),
    )


def _more(count: int) -> str:
    return f"<p class=hint>and {count - ROWS:,} more in result.json</p>" if count > ROWS else ""
