"""The grounds of a comparison as lines for a terminal: quantities, rounding, first differences, and faults that it was
seen to notice.

Each function yields labels and texts, nothing where a result does not have what they say.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from torchport.report import wording
from torchport.report.columns import shorten_text
from torchport.report.curves import curves_of
from torchport.results.comparison import Comparison, ControlRow, Difference, Noticed

DIFFERENCES = 3  # that are listed; the HTML report has more
NAME = 44  # columns that the name of a quantity may take
VALUE = 14  # columns of a value that is text, such as a checksum

Line = tuple[str, str]


def describe_compared_quantities(data: Comparison) -> Iterator[Line]:
    """How many steps were compared and how, then each quantity with its worst difference."""
    if curves_of(data):
        found = ", ".join(_quantities(data))
        yield "compared", f"{_steps(data)}{': ' if found else ''}{found}"


def _steps(data: Comparison) -> str:
    noun = wording.step_kind(data)
    reference, port = data.steps.reference, data.steps.port
    text = wording.format_count(port, noun)
    if reference != port:
        text = f"{wording.format_count(reference, noun)} of the original, {port:,} of the port"
    if not data.is_stepwise:
        return "; ".join([f"{text}, compared {data.method}", *data.chance])
    dtype = str(data.tolerance.get("dtype", ""))
    means = f"{data.covered.means:,} of them by means" if data.covered.means else ""
    method = data.method.partition(" at first")[0] if means else data.method
    return ", ".join(filter(None, (text, method, means, dtype)))


def _quantities(data: Comparison) -> Iterator[str]:
    """Those with a size first, then those that differ, then those that are equal."""
    rows = [row for row in data.quantities if row.compared]
    sized = [row for row in rows if row.worst and row.allowed is not None]
    word = " allowed"  # said once
    for row in sized:
        size, allowed = float(row.worst or 0.0), float(row.allowed or 0.0)
        worst = f"{'within ' if math.isfinite(size) else ''}{wording.format_error(size)}"
        is_judged = math.isfinite(allowed)
        yield f"{wording.format_value_count(row)} {worst} ({wording.format_bound(allowed)}{word if is_judged else ''})"
        word = "" if is_judged else word
    others = [row for row in rows if row not in sized]
    yield from (f"{wording.format_value_count(row)} (not all equal)" for row in others if wording.is_off(row))
    equal = [wording.format_value_count(row) for row in others if not wording.is_off(row)]
    if equal:
        yield f"{wording.join_words(equal)} equal"


def describe_yardstick(data: Comparison) -> Iterator[Line]:
    """What the bounds rest on, and how the device says that it rounds."""
    clauses = wording.list_yardstick_clauses(data)
    clauses += map(wording.format_roundoff, data.yardstick.declared if data.yardstick else ())
    if clauses:
        yield "rounding", "; ".join(clauses)


def describe_differences(data: Comparison) -> Iterator[Line]:
    """The first values that differ by more than is allowed."""
    rows = data.first
    for row in rows[:DIFFERENCES]:
        sides = [_side(row.port), _side(row.reference)]
        apart = wording.format_difference(row)
        text = f"{_name(row)}: {sides[0]} against {sides[1]}{', ' if apart else ''}{apart}"
        yield f"differs at {row.step}", text
    if len(rows) > DIFFERENCES:
        yield "", f"and {wording.format_count(len(rows) - DIFFERENCES, 'more difference')} in the report"


def describe_draws(data: Comparison) -> Iterator[Line]:
    """The random numbers that the device draws by itself: whether they are distributed as they should be."""
    rows = data.draws
    bad = [row for row in rows if not row.holds]
    if bad:
        yield "drawn", "; ".join(map(wording.format_draw, bad[:DIFFERENCES]))
    elif rows:
        yield (
            "drawn",
            f"{wording.format_count(len(rows), 'random operator')} on the device, distributed as in the original",
        )


def describe_controls(data: Comparison) -> Iterator[Line]:
    """The faults that were put into the original on purpose, and which the comparison noticed.

    Where the runs differ, faults that were noticed are only counted: that the comparison notices something is seen.
    """
    if unmeasured := wording.explain_unmeasured(data.controls):
        yield "control", unmeasured
        return
    rows = data.controls.rows
    is_counted = bool(data.first) and any(wording.describe_outcome(row) == "noticed" for row in rows)
    if is_counted:
        yield "control", wording.describe_noticed_share(rows)
    for row in rows:
        outcome = wording.describe_outcome(row)
        if not (is_counted and outcome == "noticed"):
            yield outcome, f"{row.words}{_seen(row, outcome)}"


def _seen(row: ControlRow, outcome: str) -> str:
    """The quantity that showed a fault; where it was put, if none did; why there is no place for it."""
    if outcome == "noticed":
        best = row.noticed[0]
        apart = wording.format_difference(best)
        return f", by {_name(best)}{f' {apart}' if apart else ''}"
    if outcome == "not possible":
        return f": {row.why}" if row.why else ""
    place = wording.format_fault_place(row) if outcome == "NOT noticed" else ""
    return f" ({place})" if place else ""


def _name(row: Difference | Noticed) -> str:
    return shorten_text(wording.describe_quantity(row), NAME)


def _side(one: object) -> str:
    """A value; of a long text, such as a checksum, its first letters."""
    text = wording.format_value(one)
    return text if len(text) <= VALUE else f"{text[: VALUE - 3]}..."
