"""What a comparison rests on: the first differences, the quantities that were compared, and what would be noticed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from torchport.findings import Result
from torchport.report import wording
from torchport.report.curves import bad_windows, curves_of
from torchport.report.html.comparison import get_comparison
from torchport.report.html.tables import render_number_table, render_text_table
from torchport.results.comparison import Comparison, ControlRow, Controls, Difference, Draw, Quantity

_PILLS = {"noticed": "done", "NOT noticed": "error", "not possible": "info"}


def render_differences_section(result: Result[Any]) -> str:
    """The first values that differ by more than is allowed, or that there are none."""
    data = get_comparison(result)
    if data is None:
        return ""
    if not data.first:
        return f"<section><h2>First differences</h2><p>{escape(_none(data))}</p></section>"
    head = ("Step", "Quantity", "Where", "Original", "Port", "Difference", "Noise", "Allowed")
    table = render_text_table(head, [_difference(row) for row in data.first], "differences")
    return f"<section><h2>First differences</h2>{table}</section>"


def _none(data: Comparison) -> str:
    """That no single step differs, of the quantities that were compared."""
    found = [wording.format_value_count(row) for row in data.quantities if row.compared]
    if not found:
        return "Nothing was compared."
    means = " The means of some stretches differ: see below." if any(map(bad_windows, curves_of(data))) else ""
    return f"None beyond what is allowed in a step. Compared were {wording.join_words(found)}.{means}"


def _difference(row: Difference) -> tuple[str, ...]:
    return (
        escape(str(row.step)),
        escape(wording.kind_of(row)),
        _code(row.name),
        escape(wording.format_value(row.reference)),
        escape(wording.format_value(row.port)),
        "not equal" if row.error is None else f"<b>{escape(wording.format_error(row.error))}</b>",
        _number(row.noise),
        _allowed(row.allowed),
    )


def render_quantities_section(result: Result[Any]) -> str:
    """The quantities that were compared, and how well; empty for a result without a comparison."""
    data = get_comparison(result)
    if data is None:
        return ""
    rows = data.quantities
    beyond = {row.kind for row in data.first}
    head = ("Quantity", "Values", "Steps", "Worst difference", "At step", "In", "Noise", "Allowed")
    holds = [not (wording.is_off(row) or row.kind in beyond) for row in rows]
    table = render_number_table(head, [_quantity(row) for row in rows], holds, "quantities") if rows else ""
    body = table + _draws(data.draws)
    return f"<section><h2>Quantities compared</h2>{body}</section>" if body else ""


def _draws(rows: Sequence[Draw]) -> str:
    """The random numbers that the device drew by itself, which cannot be compared one by one."""
    if not rows:
        return ""
    head = ("Operator", "Place", "Type", "Numbers", "Mean", "Expected")
    holds = [row.holds for row in rows]
    title = "<h3>Random numbers that the device drew by itself</h3>"
    return title + render_number_table(head, [_drawn(row) for row in rows], holds)


def _quantity(row: Quantity) -> Sequence[object]:
    equal = "not equal" if wording.is_off(row) else "equal" if row.compared else "none compared"
    return (
        wording.kind_of(row),
        f"{row.compared:,}",
        f"{row.steps:,}",
        wording.format_error(row.worst) if row.worst is not None and row.compared else equal,
        "" if row.at is None else row.at.step,
        "" if row.at is None else row.at.name,
        _number(row.noise),
        _allowed(row.allowed) if row.compared else "",
    )


def _drawn(row: Draw) -> Sequence[object]:
    means = (wording.format_value(row.mean), wording.format_value(row.expected_mean))
    return (row.operator, row.site, row.dtype, f"{row.count:,}", *means)


def render_power_section(result: Result[Any]) -> str:
    """The faults that the comparison was seen to notice, and what its bounds rest on."""
    data = get_comparison(result)
    body = "" if data is None else "".join((*_controls(data.controls), *_yardstick(data)))
    return f"<section><h2>Smallest fault noticed</h2>{body}</section>" if body else ""


def _controls(controls: Controls) -> Iterator[str]:
    if unmeasured := wording.explain_unmeasured(controls):
        yield f"<p>{escape(wording.format_sentence(unmeasured))}</p>"
        return
    if controls.smallest:
        yield f"<p>{escape(wording.format_sentence(controls.smallest))}</p>"
    if controls.rows:
        head = ("Fault", "Put at", "", "By", "Difference", "Allowed")
        yield render_text_table(head, [_control(row) for row in controls.rows], "controls")


def _control(row: ControlRow) -> tuple[str, ...]:
    word = wording.describe_outcome(row)
    best = row.noticed[0] if row.noticed else None
    more = f", and {len(row.noticed) - 1:,} more" if len(row.noticed) > 1 else ""
    return (
        escape(row.words or row.name),
        escape(wording.format_fault_place(row)),
        f"<span class='word {_PILLS[word]}'>{word}</span>",
        escape(f"{wording.describe_quantity(best)}{more}") if best else "",
        _number(best.error) if best else "",
        _allowed(best.allowed) if best else "",
    )


def _yardstick(data: Comparison) -> Iterator[str]:
    """What the bounds rest on, in sentences, and the roundings that the device declares."""
    items = [escape(wording.format_sentence(clause)) for clause in wording.list_yardstick_clauses(data)]
    for row in data.yardstick.declared if data.yardstick else ():
        source = f" ({row.source})" if row.source else ""
        items.append(escape(wording.format_sentence(f"{wording.format_roundoff(row)}{source}")))
    if items:
        yield f"<h3>What the bounds rest on</h3><ul class=notes>{''.join(f'<li>{item}</li>' for item in items)}</ul>"


def _number(value: float | None) -> str:
    return "" if value is None else wording.format_error(value)


def _allowed(value: float | None) -> str:
    return "" if value is None else wording.format_bound(value)


def _code(text: object) -> str:
    return f"<code>{escape(str(text))}</code>" if text else ""
