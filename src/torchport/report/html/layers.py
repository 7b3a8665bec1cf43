"""Gradients and updates of each layer over the run, with the drift between both sides."""

from __future__ import annotations

import math
from html import escape
from typing import Any

from torchport.findings import Result
from torchport.report.html.comparison import compared
from torchport.report.html.curve import chart
from torchport.report.html.tables import figures
from torchport.report.wording import count

DRAWN = 12  # layers, those that have drifted furthest
WORDS = {"gradient": "gradient", "change": "update"}


def layers(result: Result) -> str:
    """A table of all layers, and the curves of some; empty where their norms were not recorded."""
    rows = list(compared(result).get("layers") or ())
    if not rows or max(len(row["at"]) for row in rows) < 2:
        return ""
    names = list(dict.fromkeys(str(row["layer"]) for row in rows))
    table = figures(
        ("Layer", "Quantity", "Parameters", "Largest drift", "At step"),
        [
            (row["layer"], WORDS[row["kind"]], row["parameters"], f"{float(row['drift']):.2g}", row["step"])
            for row in rows
        ],
        [True] * len(rows),
        "layers",
    )
    curves = "".join(_curves(row) for row in rows if row["layer"] in names[:DRAWN])
    shown = (
        f"<details><summary>Curves of {count(min(DRAWN, len(names)), 'layer')}</summary>{curves}</details>"
    )
    return f"<section><h2>Layers over the run</h2>{table}{shown}</section>"


def _curves(row: dict[str, Any]) -> str:
    """Both sides against each other; a step that was thinned out is the gap's width."""
    title = escape(f"{row['layer']}: norm of the {WORDS[row['kind']]}")
    series = {
        name: [math.nan if value is None else float(value) for value in row[side]]
        for name, side in (("original", "reference"), ("port", "port"))
    }
    return chart(title, series, logarithmic=True)
