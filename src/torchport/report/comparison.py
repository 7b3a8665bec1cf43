"""The comparison of two runs as text for a terminal: a curve for each place, what it rests on, final metrics."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torchport.report import wording
from torchport.report.columns import columns, hanging, shortened
from torchport.report.curves import Curve, bad_windows, finite, is_stepwise, read_curves
from torchport.report.evidence import compared, controls, differences, draws, yardstick

BARS = "▁▂▃▄▅▆▇█"
PLAIN_BARS = "_.-~=+*#"  # for a stdout that cannot print the others
CURVES = 3  # that are drawn; the HTML report has all
WINDOWS = 3  # that are listed of those whose means differ
NARROW = 16  # bars, fewer of which show nothing
METRICS = 6
LABEL = 18  # columns of what stands before a line's text
NAME = 30  # columns that the name of a curve may take


def render_comparison(data: Mapping[str, Any], *, width: int = 80) -> str:
    """Text for the `data` of a comparison: the curves of both runs, what was compared and how it was measured, the
    first differences, what the comparison was seen to notice, and what both print last. Empty where nothing was
    recorded: the findings say why.
    """
    rows = ((label, wording.printable(text)) for label, text in _rows(data))
    lines = [*_curves(data, width), *(line for row in rows for line in labelled(*row, width))]
    return "\n".join(lines) + "\n" if lines else ""


def labelled(label: str, text: str, width: int) -> list[str]:
    """A line of a summary: what it is about, then what there is to say, in as many lines as that takes."""
    return hanging(f"  {label:<{LABEL - 2}}", text, width)


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


def _curves(data: Mapping[str, Any], width: int) -> Iterator[str]:
    """Two lines for each curve: the original's and the port's, with the first and the last value."""
    curves = read_curves(data)
    names = [_name(curve) for curve in curves[:CURVES]]
    indent = max(map(columns, names), default=0)
    for name, curve in zip(names, curves, strict=False):
        yield from _curve(f"  {name}{' ' * (indent - columns(name))}", curve, width)
    if len(curves) > CURVES:
        yield f"  and {wording.count(len(curves) - CURVES, 'more curve')} in the report"


def _name(curve: Curve) -> str:
    what = wording.printable(curve.what)
    name = shortened(wording.printable(curve.name), max(NAME - columns(what), 12))
    return f"{what} at {name}" if name else what


def _curve(head: str, curve: Curve, width: int) -> Iterator[str]:
    shown = finite((*curve.reference, *curve.port))
    low, high = min(shown, default=0.0), max(shown, default=1.0)
    ends = [f"{side[0]:.4g} -> {side[-1]:.4g}" if side else "none" for side in (curve.reference, curve.port)]
    room = width - columns(head) - len("  original    ") - max(map(len, ends))
    if room < NARROW:  # the name on a line of its own
        yield head.rstrip()
        room, head = room + columns(head) - 2, "  "
    for name, side, values in (("original", curve.reference, ends[0]), ("port", curve.port, ends[1])):
        bars = sparkline(side, low, high, min(max(room, 8), 60))
        yield f"{head}  {name:<8}  {bars}{'  ' if bars else ''}{values}"
        head = " " * columns(head)


def _rows(data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Labels and texts: what was compared, how far the runs are apart, and what that would have shown."""
    yield from compared(data)
    yield from yardstick(data)
    yield from differences(data)
    if not is_stepwise(data):
        spans = [(curve, span) for curve in read_curves(data) for span in bad_windows(curve)]
        for curve, span in spans[:WINDOWS]:
            yield (
                f"differs {span['start']}-{int(span['end']) - 1}",
                f"{curve.title}: mean {float(span['port']):.6g} against "
                f"{float(span['reference']):.6g}, {float(span['allowed']):.1e} allowed",
            )
    yield from draws(data)
    yield from controls(data)
    metrics = data.get("metrics") or ()
    if metrics:
        left = f", and {len(metrics) - METRICS} more" if len(metrics) > METRICS else ""
        worst_first = sorted(metrics, key=lambda row: bool(row.get("holds", True)))
        yield "printed last", ", ".join(map(_metric, worst_first[:METRICS])) + left


def _metric(row: Mapping[str, Any]) -> str:
    unit = " %" if row.get("percent") else ""
    name, values = str(row.get("name")), (float(row["reference"]), float(row["port"]))
    text = f"{name} {values[0]:g}{unit} -> {values[1]:g}{unit}"
    if row.get("holds", True):
        return text
    allowed = row.get("allowed")
    return f"{text} (differs{'' if allowed is None else f', {float(allowed):.2g} allowed'})"
