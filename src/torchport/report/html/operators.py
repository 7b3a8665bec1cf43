"""The operators of a run (`analyze --run`)."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from torchport.findings import Result
from torchport.report.operators import WORDS, worst_first
from torchport.report.wording import format_count

_CLASSES = {"refused": "error", "unknown": "warning", "fallback": "warning", "composite": "done", "native": "done"}


def render_operators_section(result: Result[Any]) -> str:
    """Counts and a row for each operator, those to look at first. Empty for a result that judges runs."""
    data = result.data.get("operators") if isinstance(result.data, Mapping) else None
    if not data:
        return ""
    odd = [row for row in worst_first(data["rows"]) if _class(row) != "done"]
    fine = [row for row in data["rows"] if _class(row) == "done"]
    counts = ", ".join(f"{int(data['counts'][how])} {word}" for how, word in WORDS.items() if data["counts"].get(how))
    precision = (
        f"<p class=hint>Autocast was off on the CPU; on the NPU it uses {escape(str(data['precision']))}.</p>"
        if data["precision"]
        else ""
    )
    title = f"Operators of {format_count(int(data['steps']), 'step')}"
    parts = [f"<section><h2>{title}</h2><p>{counts or 'None on the device'}.</p>{precision}"]
    if odd:
        parts.append(_table(odd))
    if fine:
        parts.append(f"<details><summary>Computed on the NPU ({len(fine)})</summary>{_table(fine)}</details>")
    return "".join(parts) + "</section>"


def _table(rows: list[dict[str, Any]]) -> str:
    names = ("", "Operator", "Phase", "Calls", "Dtypes", "Shapes", "Place")
    head = f"<thead><tr>{''.join(f'<th>{name}</th>' for name in names)}</tr></thead>"
    return f"<div class=wide><table class=list>{head}<tbody>{''.join(map(_row, rows))}</tbody></table></div>"


def _row(row: dict[str, Any]) -> str:
    shapes = " → ".join(dict.fromkeys(str(some[0]) for some in row["shapes"] if some))
    place = f"{row['path']}:{row['line']}" if row["path"] else ""
    cells = (row["operator"], row["phase"], row["calls"], " ".join(row["dtypes"]), shapes, place)
    word = f"<span class='word {_class(row)}'>{escape(WORDS.get(row['how'], str(row['how'])))}</span>"
    return f"<tr><td>{word}</td>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in cells) + "</tr>"


def _class(row: dict[str, Any]) -> str:
    return _CLASSES.get(row["how"], "warning")
