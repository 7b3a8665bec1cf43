"""Gradients and updates of each layer over the run, with the drift between both sides."""

from __future__ import annotations

from html import escape
from typing import Any

from torchport.findings import Result
from torchport.report.curves import floats_of
from torchport.report.html.comparison import get_comparison
from torchport.report.html.curve import draw_chart
from torchport.report.html.tables import render_number_table
from torchport.report.wording import format_count
from torchport.results.comparison import LayerRow

DRAWN = 12  # layers, those that have drifted furthest
WORDS = {"gradient": "gradient", "change": "update"}


def render_layers_section(result: Result[Any]) -> str:
    """A table of all layers, and the curves of some; empty if their norms were not recorded."""
    comparison = get_comparison(result)
    rows = () if comparison is None else comparison.layers
    if not rows or max(len(row.at) for row in rows) < 2:
        return ""
    names = list(dict.fromkeys(row.layer for row in rows))
    table = render_number_table(
        ("Layer", "Quantity", "Parameters", "Largest drift", "At step"),
        [(row.layer, WORDS[row.kind], row.parameters, f"{row.drift:.2g}", row.step) for row in rows],
        [True] * len(rows),
        "layers",
    )
    curves = "".join(_curves(row) for row in rows if row.layer in names[:DRAWN])
    shown = f"<details><summary>Curves of {format_count(min(DRAWN, len(names)), 'layer')}</summary>{curves}</details>"
    return f"<section><h2>Layers over the run</h2>{table}{shown}</section>"


def _curves(row: LayerRow) -> str:
    """Both sides against each other; a step that was thinned out is the gap's width."""
    title = escape(f"{row.layer}: norm of the {WORDS[row.kind]}")
    series = {"original": floats_of(row.reference), "port": floats_of(row.port)}
    return draw_chart(title, series, logarithmic=True)
