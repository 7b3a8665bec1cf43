"""The comparison of two runs: a curve for each place, with what is allowed, and what both print last."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

from torchport.findings import Result
from torchport.report import wording
from torchport.report.curves import curves_of, floats_of
from torchport.report.html.curve import draw_chart
from torchport.report.html.tables import render_number_table
from torchport.results.comparison import Comparison, Curve, MetricRow, Window
from torchport.results.port import Port

ROWS = 12  # of the table of losses
OPEN = 3  # curves that are not folded away


def render_comparison_section(result: Result[Any]) -> str:
    """The section of a port or comparison; empty for other results, and where nothing was recorded."""
    data = get_comparison(result)
    if data is None:
        return ""
    curves = curves_of(data)
    parts = [*_curves(data, curves), *(_values(data, curve) for curve in curves), _metrics(data)]
    body = "".join(parts)
    return f"<section><h2>Original and port</h2>{body}</section>" if body else ""


def get_comparison(result: Result[Any]) -> Comparison | None:
    """The comparison of a result of `compare` or `port`; None for other results, and if a run is missing."""
    data = result.data.comparison if isinstance(result.data, Port) else result.data
    return data if isinstance(data, Comparison) else None


def _curves(data: Comparison, curves: Sequence[Curve]) -> list[str]:
    shown = [_figures(data, curve) for curve in curves]
    more = "".join(shown[OPEN:])
    if more:
        title = wording.format_count(len(shown) - OPEN, "more curve")
        shown[OPEN:] = [f"<details class=figures-folded><summary>{title}</summary><div>{more}</div></details>"]
    return shown


def _figures(data: Comparison, curve: Curve) -> str:
    sides = {"original": floats_of(curve.reference), "port": floats_of(curve.port)}
    parts = [draw_chart(f"{curve.title[:1].upper()}{curve.title[1:]}", sides)]
    if curve.errors and data.is_stepwise:
        if any(curve.errors):
            title = "Relative difference" if parts[0] else f"Relative difference, {curve.title}"
            bounds = {"noise": curve.noise or (), "allowed": curve.allowed}
            parts.append(draw_chart(title, {"difference": curve.errors}, bounds, logarithmic=True))
        else:
            equal = f"Equal in every digit, in {wording.format_count(len(curve.errors), 'step')}."
            parts.append(f"<p class=equal>{equal}</p>")
    body = "".join(filter(None, parts))
    return f"<div class=pair>{body}</div>" if len(list(filter(None, parts))) > 1 else body


def _values(data: Comparison, curve: Curve) -> str:
    if not data.is_stepwise and curve.windows:
        return _means(curve)
    count = min(len(curve.errors), len(curve.reference), len(curve.port))
    if not count:
        return ""
    picked = sorted({round(index * (count - 1) / (ROWS - 1)) for index in range(ROWS)})
    noise = curve.noise or ()
    theirs, ours = floats_of(curve.reference), floats_of(curve.port)
    limits = [curve.allowed[step] if step < len(curve.allowed) else math.inf for step in picked]
    rows = [
        (
            step,
            f"{theirs[step]:.6g}",
            f"{ours[step]:.6g}",
            wording.format_error(curve.errors[step]),
            wording.format_error(noise[step]) if step < len(noise) else "",
            wording.format_bound(limit) if math.isfinite(limit) else "",
        )
        for step, limit in zip(picked, limits, strict=True)
    ]
    holds = [curve.errors[step] <= limit for step, limit in zip(picked, limits, strict=True)]
    head = ("Step", "Original", "Port", "Relative", "Noise", "Allowed")
    return _folded(f"Some steps of {curve.title}", render_number_table(head, rows, holds), False)


def _means(curve: Curve) -> str:
    head = ("Steps", "Mean, original", "Mean, port", "Difference", "Allowed")
    rows = [_window(span) for span in curve.windows]
    holds = [span.holds for span in curve.windows]
    return _folded(f"Means of {curve.title}", render_number_table(head, rows, holds), not all(holds))


def _window(span: Window) -> tuple[str, ...]:
    return (
        f"{span.start} to {span.end - 1}",
        f"{span.reference:.6g}",
        f"{span.port:.6g}",
        f"{abs(span.port - span.reference):.1e}",
        f"{span.allowed:.1e}",
    )


def _metrics(data: Comparison) -> str:
    if not data.metrics:
        return ""
    rows = [
        (
            row.name,
            _value(row.reference, row),
            _value(row.port, row),
            "" if row.allowed is None else f"{row.allowed:.2g}",
        )
        for row in data.metrics
    ]
    holds = [row.holds for row in data.metrics]
    head = ("Metric", "Original", "Port", "Allowed difference")
    return f"<h3>What both print last</h3>{render_number_table(head, rows, holds)}"


def _value(value: float, row: MetricRow) -> str:
    return f"{value:g}{' %' if row.percent else ''}"


def _folded(title: str, table: str, opened: bool) -> str:
    return f"<details{' open' * opened}><summary>{escape(title)}</summary>{table}</details>"
