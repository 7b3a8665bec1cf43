"""The comparison of two runs as text for a terminal: curves, a table of losses, final metrics."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

BARS = "▁▂▃▄▅▆▇█"
PLAIN_BARS = "_.-~=+*#"  # for a stdout that cannot print the others
ROWS = 8  # lines of the loss table


def render_comparison(data: Mapping[str, Any], *, width: int = 60) -> str:
    """Text for the `data` of a comparison: both curves in at most `width` columns, the losses of a few steps,
    the worst errors with their bounds, and the final metrics. Empty where one run has no loss: the findings say why.
    """
    reference, port = ([float(loss) for loss in data["curves"][side]] for side in ("reference", "port"))
    if not reference or not port:
        return ""
    finite = [loss for loss in (*reference, *port) if math.isfinite(loss)]
    low, high = min(finite, default=0.0), max(finite, default=1.0)
    lines = [
        f"  loss, {low:.3g} to {high:.3g}",
        f"    original  {sparkline(reference, low, high, width)}",
        f"    port      {sparkline(port, low, high, width)}",
        "",
        *_table(data, reference, port),
        "",
        *_summary(data),
    ]
    return "\n".join(lines) + "\n"


def sparkline(values: Sequence[float], low: float, high: float, width: int) -> str:
    """The values as bars between `low` and `high`, averaged down to at most `width` bars; `!` for what is not
    finite."""
    count = min(width, len(values))
    levels = _printable_bars()
    bars = []
    for index in range(count):
        part = values[index * len(values) // count : (index + 1) * len(values) // count]
        mean = sum(part) / len(part)
        share = (mean - low) / (high - low) if high > low else 0.0
        bars.append(levels[min(int(share * len(levels)), len(levels) - 1)] if math.isfinite(mean) else "!")
    return "".join(bars)


def _printable_bars() -> str:
    try:
        BARS.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return PLAIN_BARS
    return BARS


def _table(data: Mapping[str, Any], reference: Sequence[float], port: Sequence[float]) -> list[str]:
    if data["method"] != "step by step" and data["windows"]:
        rows = ["     steps   mean original       mean port   difference      allowed"]
        for span in data["windows"]:
            theirs, ours = float(span["reference"]), float(span["port"])
            steps = f"{span['start']}-{span['end'] - 1}"
            rows.append(
                f"  {steps:>8}  {theirs:14.6g}  {ours:14.6g}  {abs(ours - theirs):11.1e}  {span['allowed']:11.1e}"
                f"{'' if span['holds'] else '  <--'}"
            )
        return rows
    errors = [float(error) for error in data["errors"]]
    count = len(errors)
    picked = sorted({round(index * (count - 1) / (ROWS - 1)) for index in range(ROWS)}) if count else []
    rows = ["      step        original            port     relative"]
    bounds = data["tolerance"]
    for step in picked:
        bound = bounds["first"] if step < bounds["first_steps"] else bounds["run"] or math.inf
        mark = "" if errors[step] <= bound else "  <--"
        rows.append(f"  {step:8}  {reference[step]:14.6g}  {port[step]:14.6g}  {errors[step]:11.1e}{mark}")
    return rows


def _summary(data: Mapping[str, Any]) -> list[str]:
    bounds, worst = data["tolerance"], data["worst"]
    lines = ["  compared statistically: " + "; ".join(data["chance"])] if data["chance"] else []
    for name, part in (("first", f"first {bounds['first_steps']} steps"), ("run", "run")):
        if not data["chance"] and bounds[name] is not None and worst[name] is not None:
            allowed = f"allowed {bounds[name]:g}, {bounds['dtype']}"
            lines.append(f"  {'worst of the ' + part:<28} {float(worst[name]):.1e}  ({allowed})")
    for row in data["metrics"]:
        unit = " %" if row["percent"] else ""
        lines.append(
            f"  {row['name']:<28} {float(row['reference']):g}{unit} -> {float(row['port']):g}{unit}"
            f"{'' if row['holds'] else '  <--'}"
        )
    return lines
