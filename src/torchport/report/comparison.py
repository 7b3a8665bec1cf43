"""The comparison of two runs as text for a terminal: a curve for each place, what it rests on, final metrics."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence

from torchport.report import wording
from torchport.report.columns import count_columns, shorten_text, wrap_hanging_indent
from torchport.report.curves import bad_windows, curves_of, floats_of, select_finite
from torchport.report.evidence import (
    describe_compared_quantities,
    describe_controls,
    describe_differences,
    describe_draws,
    describe_yardstick,
)
from torchport.results.comparison import Comparison, Curve, MetricRow

BARS = "▁▂▃▄▅▆▇█"
PLAIN_BARS = "_.-~=+*#"  # for a stdout that cannot print the others
CURVES = 3  # that are drawn; the HTML report has all
WINDOWS = 3  # that are listed of those whose means differ
NARROW = 16  # bars, fewer of which show nothing
METRICS = 6
LABEL = 18  # columns of what stands before a line's text
NAME = 30  # columns that the name of a curve may take


def render_comparison(data: Comparison, *, width: int = 80) -> str:
    """Text for a comparison: the curves of both runs, what was compared and how it was measured, the
    first differences, what the comparison was seen to notice, and what both print last. Empty where nothing was
    recorded: the findings say why.
    """
    rows = ((label, wording.escape_unprintable(text)) for label, text in _rows(data))
    lines = [*_curves(data, width), *(line for row in rows for line in wrap_labelled_text(*row, width))]
    return "\n".join(lines) + "\n" if lines else ""


def wrap_labelled_text(label: str, text: str, width: int) -> list[str]:
    """A line of a summary: what it is about, then what there is to say, in as many lines as that takes."""
    return wrap_hanging_indent(f"  {label:<{LABEL - 2}}", text, width)


def draw_sparkline(values: Sequence[float], low: float, high: float, width: int) -> str:
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


def _curves(data: Comparison, width: int) -> Iterator[str]:
    """Two lines for each curve: the original's and the port's, with the first and the last value."""
    curves = curves_of(data)
    names = [_name(curve) for curve in curves[:CURVES]]
    indent = max(map(count_columns, names), default=0)
    for name, curve in zip(names, curves, strict=False):
        yield from _curve(f"  {name}{' ' * (indent - count_columns(name))}", curve, width)
    if len(curves) > CURVES:
        yield f"  and {wording.format_count(len(curves) - CURVES, 'more curve')} in the report"


def _name(curve: Curve) -> str:
    what = wording.escape_unprintable(curve.what)
    name = shorten_text(wording.escape_unprintable(curve.name), max(NAME - count_columns(what), 12))
    return f"{what} at {name}" if name else what


def _curve(head: str, curve: Curve, width: int) -> Iterator[str]:
    shown = select_finite((*curve.reference, *curve.port))
    low, high = min(shown, default=0.0), max(shown, default=1.0)
    sides = floats_of(curve.reference), floats_of(curve.port)
    ends = [f"{side[0]:.4g} -> {side[-1]:.4g}" if side else "none" for side in sides]
    room = width - count_columns(head) - len("  original    ") - max(map(len, ends))
    if room < NARROW:  # the name on a line of its own
        yield head.rstrip()
        room, head = room + count_columns(head) - 2, "  "
    for name, side, values in zip(("original", "port"), sides, ends, strict=True):
        bars = draw_sparkline(side, low, high, min(max(room, 8), 60))
        yield f"{head}  {name:<8}  {bars}{'  ' if bars else ''}{values}"
        head = " " * count_columns(head)


def _rows(data: Comparison) -> Iterator[tuple[str, str]]:
    """Labels and texts: what was compared, how far the runs are apart, and what that would have shown."""
    yield from describe_compared_quantities(data)
    yield from describe_yardstick(data)
    yield from describe_differences(data)
    if not data.is_stepwise:
        spans = [(curve, span) for curve in curves_of(data) for span in bad_windows(curve)]
        for curve, span in spans[:WINDOWS]:
            yield (
                f"differs {span.start}-{span.end - 1}",
                f"{curve.title}: mean {span.port:.6g} against {span.reference:.6g}, {span.allowed:.1e} allowed",
            )
    yield from describe_draws(data)
    yield from describe_controls(data)
    metrics = data.metrics
    if metrics:
        left = f", and {len(metrics) - METRICS} more" if len(metrics) > METRICS else ""
        worst_first = sorted(metrics, key=lambda row: row.holds)
        yield "printed last", ", ".join(map(_metric, worst_first[:METRICS])) + left


def _metric(row: MetricRow) -> str:
    unit = " %" if row.percent else ""
    text = f"{row.name} {row.reference:g}{unit} -> {row.port:g}{unit}"
    if row.holds:
        return text
    return f"{text} (differs{'' if row.allowed is None else f', {row.allowed:.2g} allowed'})"
