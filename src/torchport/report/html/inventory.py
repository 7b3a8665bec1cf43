"""Tables of what is in a project's way, its libraries, and its operators without a kernel."""

from __future__ import annotations

from html import escape
from typing import Any

from torchport.findings import Result
from torchport.report.html.tables import render_text_table
from torchport.report.inventory import describe_places, describe_release
from torchport.results.conversion import APART, NEEDED, OPTIONAL
from torchport.results.port import Port

ROWS = 200
_CLASSES = {NEEDED: "error", OPTIONAL: "info", APART: "info"}


def render_inventory_section(result: Result[Any]) -> str:
    """The tables that a project has rows for, and the release that is meant; empty for another result."""
    if isinstance(result.data, Port) or not hasattr(result.data, "get") or "release" not in result.data:
        return ""
    data = result.data
    titles: tuple[str, ...]
    parts = [f"<p class=hint>{escape(describe_release(data['release']).capitalize())}.</p>"]
    rows = [
        (
            f"<span class='word {_CLASSES.get(one.state, 'warning')}'>{escape(one.state)}</span>",
            escape(one.name if one.kind == "place" else f"{one.kind} {one.name}"),
            escape(one.why.removeprefix("optional: ")),
            escape(one.work),
        )
        for one in data.get("obstacles", ())[:ROWS]
    ]
    if rows:
        titles = ("", "Obstacle", "Why", "Effort rests on")
        parts.append(f"<h3>In the way, and optional ({len(rows)})</h3>{render_text_table(titles, rows, 'obstacles')}")
    packages = [
        (escape(one.name), escape(one.version), escape(one.status), escape(one.counterpart), _places(one.places))
        for one in data.get("libraries", ())[:ROWS]
    ]
    if packages:
        titles = ("Package", "Version", "On an NPU", "Counterpart", "Where")
        parts.append(f"<h3>Packages ({len(packages)})</h3>{render_text_table(titles, packages, 'libraries')}")
    operators = [
        (escape(one.name), escape(one.how), str(len(one.places)), _places(one.places))
        for one in data.get("operators_without_kernel", ())[:ROWS]
    ]
    if operators:
        titles = ("Function", "On an NPU", "Calls", "Where")
        parts.append(
            f"<h3>Without an NPU kernel ({len(operators)})</h3>{render_text_table(titles, operators, 'kernels')}"
        )
    return f"<section><h2>What it needs</h2>{''.join(parts)}</section>"


def _places(places: tuple[str, ...]) -> str:
    return f"<code>{escape(describe_places(places))}</code>"
