"""Tables of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape


def render_number_table(
    head: Sequence[str], rows: Sequence[Sequence[object]], holds: Sequence[bool], name: str = "values"
) -> str:
    """A table with numbers to the right of a name; a row that does not hold stands out."""
    cells = "".join(
        f"<tr{'' if good else ' class=off'}>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>"
        for row, good in zip(rows, holds, strict=True)
    )
    titles = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = f"<thead><tr>{titles}</tr></thead><tbody>{cells}</tbody>"
    return f"<div class=wide><table class='list figures {name}'>{body}</table></div>"


def render_text_table(head: Sequence[str], rows: Sequence[Sequence[str]], name: str) -> str:
    """A table of texts whose rows become blocks on a narrow screen. The cells are HTML; empty columns are left out."""
    used = [column for column in range(len(head)) if any(row[column] for row in rows)]
    titles = "".join(f"<th>{escape(head[column])}</th>" for column in used)
    cells = "".join(
        "<tr>" + "".join(f'<td data-label="{escape(head[column])}">{row[column]}</td>' for column in used) + "</tr>"
        for row in rows
    )
    return f"<table class='list records {name}'><thead><tr>{titles}</tr></thead><tbody>{cells}</tbody></table>"
