"""The comparison of two runs: a curve for each place, with what is allowed, and what both print last."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from torchport.findings import Result
from torchport.report import wording
from torchport.report.curves import Curve, is_stepwise, read_curves
from torchport.report.html.curve import chart
from torchport.report.html.tables import figures

ROWS = 12  # of the table of losses
OPEN = 3  # curves that are not folded away


def comparison(result: Result) -> str:
    """The section of a port or comparison; empty for other results, and where nothing was recorded."""
    data = compared(result)
    curves = read_curves(data)
    parts = [
        *_curves(data, curves),
        *(_values(data, curve) for curve in curves),
        _metrics(data),
    ]
    body = "".join(parts)
    return f"<section><h2>Original and port</h2>{body}</section>" if body else ""


def compared(result: Result) -> Mapping[str, Any]:
    """The comparison that a result has: of `compare` the whole data, of `port` a part; empty for none."""
    data = result.data.get("comparison") if result.command == "port" else result.data
    return data if isinstance(data, Mapping) and result.command in ("port", "compare") else {}


def _curves(data: Mapping[str, Any], curves: Sequence[Curve]) -> list[str]:
    shown = [_figures(data, curve) for curve in curves]
    more = "".join(shown[OPEN:])
    if more:
        title = wording.count(len(shown) - OPEN, "more curve")
        shown[OPEN:] = [
            f"<details class=figures-folded><summary>{title}</summary><div>{more}</div></details>"
        ]
    return shown


def _figures(data: Mapping[str, Any], curve: Curve) -> str:
    parts = [
        chart(
            f"{curve.title[:1].upper()}{curve.title[1:]}", {"original": curve.reference, "port": curve.port}
        )
    ]
    if curve.errors and is_stepwise(data):
        if any(curve.errors):
            title = "Relative difference" if parts[0] else f"Relative difference, {curve.title}"
            bounds = {"noise": curve.noise, "allowed": curve.allowed}
            parts.append(chart(title, {"difference": curve.errors}, bounds, logarithmic=True))
        else:
            equal = f"Equal in every digit, in {wording.count(len(curve.errors), 'step')}."
            parts.append(f"<p class=equal>{equal}</p>")
    body = "".join(filter(None, parts))
    return f"<div class=pair>{body}</div>" if len(list(filter(None, parts))) > 1 else body


def _values(data: Mapping[str, Any], curve: Curve) -> str:
    if not is_stepwise(data) and curve.windows:
        return _means(curve)
    count = min(len(curve.errors), len(curve.reference), len(curve.port))
    if not count:
        return ""
    picked = sorted({round(index * (count - 1) / (ROWS - 1)) for index in range(ROWS)})
    limits = [curve.allowed[step] if step < len(curve.allowed) else math.inf for step in picked]
    rows = [
        (
            step,
            f"{curve.reference[step]:.6g}",
            f"{curve.port[step]:.6g}",
            wording.error(curve.errors[step]),
            wording.error(curve.noise[step]) if step < len(curve.noise) else "",
            wording.bound(limit) if math.isfinite(limit) else "",
        )
        for step, limit in zip(picked, limits, strict=True)
    ]
    holds = [curve.errors[step] <= limit for step, limit in zip(picked, limits, strict=True)]
    head = ("Step", "Original", "Port", "Relative", "Noise", "Allowed")
    return _folded(f"Some steps of {curve.title}", figures(head, rows, holds), False)


def _means(curve: Curve) -> str:
    head = ("Steps", "Mean, original", "Mean, port", "Difference", "Allowed")
    rows = [_window(span) for span in curve.windows]
    holds = [bool(span.get("holds", True)) for span in curve.windows]
    return _folded(f"Means of {curve.title}", figures(head, rows, holds), not all(holds))


def _window(span: Mapping[str, Any]) -> tuple[str, ...]:
    theirs, ours = float(span["reference"]), float(span["port"])
    return (
        f"{int(span['start'])} to {int(span['end']) - 1}",
        f"{theirs:.6g}",
        f"{ours:.6g}",
        f"{abs(ours - theirs):.1e}",
        f"{float(span['allowed']):.1e}",
    )


def _metrics(data: Mapping[str, Any]) -> str:
    metrics = data.get("metrics") or ()
    if not metrics:
        return ""
    rows = [
        (
            str(row.get("name")),
            _value(row, "reference"),
            _value(row, "port"),
            "" if row.get("allowed") is None else f"{float(row['allowed']):.2g}",
        )
        for row in metrics
    ]
    holds = [bool(row.get("holds", True)) for row in metrics]
    head = ("Metric", "Original", "Port", "Allowed difference")
    return f"<h3>What both print last</h3>{figures(head, rows, holds)}"


def _value(row: Mapping[str, Any], side: str) -> str:
    return f"{float(row[side]):g}{' %' if row.get('percent') else ''}"


def _folded(title: str, table: str, opened: bool) -> str:
    return f"<details{' open' * opened}><summary>{escape(title)}</summary>{table}</details>"
