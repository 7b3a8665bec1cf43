"""A prediction as a page: the sentence first, then memory over a step, its owners, times, and the timeline."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from torchport.report.html import render_document
from torchport.report.html.curve import draw_chart
from torchport.report.prediction import format_memory, render_prediction
from torchport.results.prediction import Prediction, Task

WIDTH, ROW, TOP, LEFT, BOTTOM = 880, 22, 18, 80, 18
MOST_TICKS = 8
MOST_SLICES = 3000
_COLOURS = {
    "cube": "#3366aa",
    "depthwise": "#6699cc",
    "stream": "#55a868",
    "norm": "#8172b2",
    "pool": "#b39cd0",
    "move": "#c44e52",
    "gather": "#dd8452",
    "device_cpu": "#937860",
    "host_copy": "#8c8c8c",
    "collective": "#ccb974",
}


def render_prediction_page(found: Prediction) -> str:
    """The page of a prediction."""
    answer = found.many or found.one
    step, peak = answer.step, answer.peak
    title = "fits" if found.fits else "does not fit"
    if step:
        title += f", {step.time:.1f} ms a step"
    parts = [f"<section id=prediction><pre>{escape(render_prediction(found))}</pre></section>"]
    if peak:
        curve = draw_chart(
            "GiB allocated over the timed step, at each of its allocations",
            {"allocated": [each / 2**30 for each in peak.curve]},
        )
        owners = _table(
            ("owner at the peak", "memory"), [(name, format_memory(size)) for name, size in peak.owners.items()]
        )
        modules = _table(
            ("module", "activations"), [(name, format_memory(size)) for name, size in peak.modules.items()]
        )
        parts.append(f"<section><h2>Memory</h2>{curve}{owners}{modules}</section>")
    if step:
        rows = [(name, str(number), f"{spent:.3f}") for name, (number, spent) in step.operators.items()]
        table = _table(("operator", "times", "ms a step"), rows)
        parts.append(f"<section><h2>Time, predicted</h2>{draw_timeline(found.timeline)}{table}</section>")
    return render_document(f"Prediction for {found.soc}", title, "\n".join(parts), f"{found.steps} dry steps read")


def draw_timeline(tasks: Sequence[Task]) -> str:
    """The step as SVG, a row for each stream; a task's name, time and shapes show where the pointer rests."""
    if not tasks:
        return ""
    tasks = sorted(tasks, key=lambda task: -task.us)[:MOST_SLICES]
    end = max(task.at + task.us for task in tasks) or 1.0
    streams = sorted({task.stream for task in tasks})
    slices = []
    for task in tasks:
        left, width = task.at / end * WIDTH, max(task.us / end * WIDTH, 0.2)
        words = f"{task.name} {task.us:.1f} us {[list(shape) for shape in task.shapes]}"
        slices.append(
            f"<rect x={left:.2f} y={TOP + streams.index(task.stream) * ROW} width={width:.2f} height={ROW - 4} "
            f'fill="{_COLOURS.get(task.unit, "#000000")}"><title>{escape(words)}</title></rect>'
        )
    units = sorted({task.unit for task in tasks})
    legend = "".join(
        f'<rect x={i * 95} y=0 width=10 height=10 fill="{_COLOURS.get(unit, "#000000")}" />'
        f"<text x={i * 95 + 14} y=10>{escape(unit)}</text>"
        for i, unit in enumerate(units)
    )
    names = "".join(f"<text x=0 y={TOP + row * ROW + 14}>stream {stream}</text>" for row, stream in enumerate(streams))
    bottom = TOP + len(streams) * ROW
    ticks = "".join(
        f"<text x={at / end * WIDTH:.1f} y={bottom + 12} text-anchor=middle>{at / 1e3:g} ms</text>"
        for at in _ticks(end)
    )
    return (
        f'<svg viewBox="0 0 {LEFT + WIDTH + 20} {bottom + BOTTOM}" role=img aria-label="timeline of a step" '
        f'font-size=11 fill=currentColor>{names}<g transform="translate({LEFT} 0)">'
        f"{legend}{''.join(slices)}{ticks}</g></svg>"
    )


def _ticks(end: float) -> list[float]:
    """Round moments from 0 to the end."""
    size = 10 ** math.floor(math.log10(end))
    apart = next(size * part for part in (0.2, 0.5, 1, 2) if end / (size * part) <= MOST_TICKS)
    return [i * apart for i in range(math.floor(end / apart) + 1)]


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    if not rows:
        return ""
    first = "".join(f"<th>{escape(cell)}" for cell in head)
    rest = "".join("<tr>" + "".join(f"<td>{escape(cell)}" for cell in row) for row in rows)
    return f"<table class=list><thead><tr>{first}</thead><tbody>{rest}</tbody></table>"
