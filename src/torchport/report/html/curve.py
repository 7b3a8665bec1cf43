"""Line charts as SVG that needs no script: axes, one line per series, a legend, in the page's own colours."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 720, 240
RIGHT, TOP, BOTTOM = 28, 14, 30
LETTER = 11.5  # of a label, at the size that labels have on a narrow screen; elsewhere they are smaller
DOT = 5  # length of a point that has no neighbours
POINTS = 600  # of one line; longer ones are thinned, keeping the extremes


def draw_chart(
    title: str,
    series: Mapping[str, Sequence[float]],
    bounds: Mapping[str, Sequence[float]] | None = None,
    *,
    logarithmic: bool = False,
) -> str:
    """A figure with the values of each series over the steps, on bands from the axis up to what `bounds` has for each
    step, each in the colour of its name.

    What is not finite, and on a logarithmic axis what is not positive, is a gap. Bounds without values are left out.
    """
    bands = {name: values for name, values in (bounds or {}).items() if _finite(values, logarithmic)}
    shown = [value for values in series.values() for value in _finite(values, logarithmic)]
    if not shown:
        return ""
    limits = [value for values in bands.values() for value in _finite(values, logarithmic)]
    last = max(map(len, series.values()))
    scale = _Scale(min(shown + limits), max(shown + limits), last, logarithmic)
    ticks = "".join(
        f"<line {scale.format_horizontal_line(value)} />"
        f"<text x={scale.left - 8:.1f} y={scale.y(value) + 4:.1f} text-anchor=end>{label}</text>"
        for value, label in scale.list_value_ticks()
    )
    steps = "".join(
        f"<text x={scale.x(step):.1f} y={HEIGHT - 8} text-anchor=middle>{step}</text>"
        for step in scale.list_step_ticks()
    )
    areas = "".join(
        f'<path class="band {escape(name)}" d="{scale.draw_area(values[:last])}" />' for name, values in bands.items()
    )
    lines = "".join(
        f'<path class="line s{number}" d="{scale.draw_line(values)}" />'
        for number, values in enumerate(series.values())
    )
    names = [
        *((f"s{number}", name) for number, name in enumerate(series)),
        *((f"band {escape(name)}", name) for name in bands),
    ]
    legend = "".join(f"<span class='{mark}'>{escape(name)}</span>" for mark, name in names)
    return (
        f"<figure{' class=apart' if len(series) == 1 else ''}>"
        f"<figcaption>{escape(title)} <span class=legend>{legend}</span></figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role=img aria-label="{escape(title)}">'
        f"<g class=axis>{ticks}{steps}</g>{areas}{lines}</svg></figure>"
    )


def _finite(values: Sequence[float], logarithmic: bool) -> list[float]:
    return [value for value in values if _shown(value, logarithmic)]


def _shown(value: float, logarithmic: bool) -> bool:
    return math.isfinite(value) and (value > 0 or not logarithmic)


class _Scale:
    """From steps and values to pixels."""

    def __init__(self, low: float, high: float, count: int, logarithmic: bool) -> None:
        self.last = max(count - 1, 0)
        self._logarithmic = logarithmic
        self._low, self._high = (math.log10(low), math.log10(high)) if logarithmic else (low, high)
        room = (self._high - self._low) * 0.06 or abs(self._high) * 0.1 or 1.0
        self._low, self._high = self._low - room, self._high + room
        self.left = 12 + LETTER * max([4, *(len(label) for _, label in self.list_value_ticks())])

    def x(self, step: float) -> float:
        return self.left + (WIDTH - self.left - RIGHT) * (step / self.last if self.last else 0.5)

    def y(self, value: float) -> float:
        share = ((math.log10(value) if self._logarithmic else value) - self._low) / (self._high - self._low)
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - share)

    def list_step_ticks(self) -> list[int]:
        """Round numbers of steps, at most eight."""
        every = next(
            size for power in range(9) for size in (10**power, 2 * 10**power, 5 * 10**power) if self.last < 8 * size
        )
        return list(range(0, self.last + 1, every))

    def format_horizontal_line(self, value: float) -> str:
        """The ends of a horizontal line at a value, as attributes."""
        return f"x1={self.left:.1f} x2={WIDTH - RIGHT} y1={self.y(value):.1f} y2={self.y(value):.1f}"

    def list_value_ticks(self) -> list[tuple[float, str]]:
        """Four to eight round values, each with a label that tells it from its neighbours."""
        if self._logarithmic:
            first, last = math.ceil(self._low), math.floor(self._high)
            every = max(1, math.ceil((last - first + 1) / 6))
            return [(10.0**power, f"{10.0**power:.3g}") for power in range(first, last + 1, every)]
        step = 10.0 ** math.floor(math.log10((self._high - self._low) / 4))
        step *= next(factor for factor in (1, 2, 5, 10) if (self._high - self._low) / (step * factor) <= 6)
        values = [number * step for number in range(math.ceil(self._low / step), math.floor(self._high / step) + 1)]
        largest = max(map(abs, values), default=0.0)
        places = max(0, -math.floor(math.log10(step)))
        if largest >= 1e5 or places > 6:
            # As many digits as the step needs: those of a curve that hardly moves are many.
            digits = max(1, math.ceil(math.log10(largest / step) + 1e-9)) if largest else 1
            return [(value, f"{value:.{digits}g}") for value in values]
        return [(value, f"{value:.{places}f}") for value in values]

    def draw_line(self, values: Sequence[float]) -> str:
        """The line as SVG path commands, with a new start after each gap; a point between gaps is a short stroke."""
        return "".join(
            f"M{points[0][0] - DOT / 2:.1f} {points[0][1]:.1f}h{DOT}"
            if len(points) == 1
            else "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
            for points in self._stretches(values)
        )

    def draw_area(self, values: Sequence[float]) -> str:
        """What lies between the axis and the line, as SVG path commands; of a point between gaps as wide as the
        stroke."""
        floor = HEIGHT - BOTTOM
        parts = []
        for points in self._stretches(values):
            first, last = points[0], points[-1]
            if len(points) == 1:
                first, last = (first[0] - DOT / 2, first[1]), (last[0] + DOT / 2, last[1])
            corners = [(first[0], floor), first, *points[1:-1], last, (last[0], floor)]
            parts.append("M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in corners) + "Z")
        return "".join(parts)

    def _stretches(self, values: Sequence[float]) -> list[list[tuple[float, float]]]:
        """The points of the line between gaps, as pixels."""
        stretches: list[list[tuple[float, float]]] = [[]]
        for step, value in _thinned(values):
            if _shown(value, self._logarithmic):
                stretches[-1].append((self.x(step), self.y(value)))
            elif stretches[-1]:
                stretches.append([])
        return [points for points in stretches if points]


def _thinned(values: Sequence[float]) -> list[tuple[int, float]]:
    """(step, value) pairs: of each stretch its least and its greatest, and whatever is not finite."""
    if len(values) <= POINTS:
        return list(enumerate(values))
    size = math.ceil(2 * len(values) / POINTS)
    kept: set[int] = {0, len(values) - 1}
    for start in range(0, len(values), size):
        stretch = range(start, min(start + size, len(values)))
        kept |= {min(stretch, key=values.__getitem__), max(stretch, key=values.__getitem__)}
        kept |= {step for step in stretch if not math.isfinite(values[step])}
    return [(step, values[step]) for step in sorted(kept)]
