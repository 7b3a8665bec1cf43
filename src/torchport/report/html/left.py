"""What the runs left: their files side by side, and the modules that nobody converted."""

from __future__ import annotations

from html import escape
from typing import Any

from torchport.findings import Result
from torchport.report import wording
from torchport.report.html.tables import render_text_table
from torchport.results.port import FileRow, Port

ROWS = 200  # of each table
_WORDS = {"equal": "done", "differs": "error", "not compared": "info"}


def render_files_section(result: Result[Any]) -> str:
    """The files that the runs wrote, those that differ first; empty for none."""
    rows = list(result.data.files) if isinstance(result.data, Port) else []
    if not rows:
        return ""
    order = list(reversed(_WORDS))
    rows.sort(
        key=lambda row: (wording.describe_file_match(row) != "differs", order.index(wording.describe_file_match(row)))
    )
    table = render_text_table(
        ("File", "Kind", "Original", "Port", "", "Difference", "Note"), [_file(row) for row in rows[:ROWS]], "files"
    )
    return f"<section><h2>Files that the runs wrote ({len(rows):,})</h2>{table}{_more(len(rows))}</section>"


def render_modules_section(result: Result[Any]) -> str:
    """Imported modules of the user's that name CUDA and were not converted; empty for none."""
    rows = result.data.modules if isinstance(result.data, Port) else ()
    if not rows:
        return ""
    cells = [(f"<code>{escape(row.path)}:{row.line}</code>", escape(row.why)) for row in rows[:ROWS]]
    return (
        f"<section><h2>Imported, not converted ({len(rows):,})</h2>"
        "<p>The script imports these; they name CUDA, and the port used them as they are.</p>"
        f"{render_text_table(('Module', 'Why'), cells, 'modules')}{_more(len(rows))}</section>"
    )


def _file(row: FileRow) -> tuple[str, ...]:
    word = wording.describe_file_match(row)
    return (
        f"<code>{escape(row.name)}</code>",
        escape(row.kind),
        escape(row.reference or "not there"),
        escape(row.port or "not there"),
        f"<span class='word {_WORDS[word]}'>{word}</span>",
        "" if row.difference is None else escape(wording.format_error(row.difference)),
        escape(row.note),
    )


def _more(count: int) -> str:
    return f"<p class=hint>and {count - ROWS:,} more in result.json</p>" if count > ROWS else ""
