"""What a comparison rests on, as lines for a terminal: the quantities, the yardstick, the first differences, and the
faults that it was seen to notice.

Each function yields labels and texts, nothing where a result does not have what they say.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from torchport.report import wording
from torchport.report.columns import shortened
from torchport.report.curves import curves_of, judged
from torchport.results.comparison import Comparison, ControlRow, Difference, Noticed

DIFFERENCES = 3  # that are listed; the HTML report has more
NAME = 44  # columns that the name of a quantity may take
VALUE = 14  # columns of a value that is text, such as a checksum

Line = tuple[str, str]


def compared(data: Comparison) -> Iterator[Line]:
    """How many steps were compared and how, then each quantity with its worst difference."""
    if curves_of(data):
        found = ", ".join(_quantities(data))
        yield "compared", f"{_steps(data)}{': ' if found else ''}{found}"


def _steps(data: Comparison) -> str:
    noun = wording.step_kind(data)
    reference, port = data.steps.reference, data.steps.port
    text = wording.count(port, noun)
    if reference != port:
        text = f"{wording.count(reference, noun)} of the original, {port:,} of the port"
    if not data.is_stepwise:
        return "; ".join([f"{text}, compared {data.method}", *data.chance])
    dtype = str(data.tolerance.get("dtype", ""))
    means = [
        f"steps {end} to {len(curve.errors) - 1} by means"
        for curve in curves_of(data)
        if (end := judged(curve)) < len(curve.errors) and curve.allowed
    ]
    method = data.method.partition(" at first")[0] if means else data.method
    return ", ".join(filter(None, (text, method, *dict.fromkeys(means), dtype)))


def _quantities(data: Comparison) -> Iterator[str]:
    """Those with a size first, then those that differ, then those that are equal."""
    rows = [row for row in data.quantities if row.compared]
    sized = [row for row in rows if row.worst and row.allowed is not None]
    word = " allowed"  # said once
    for row in sized:
        size, allowed = float(row.worst or 0.0), float(row.allowed or 0.0)
        worst = f"{'within ' if math.isfinite(size) else ''}{wording.error(size)}"
        is_judged = math.isfinite(allowed)
        yield f"{wording.values(row)} {worst} ({wording.bound(allowed)}{word if is_judged else ''})"
        word = "" if is_judged else word
    others = [row for row in rows if row not in sized]
    yield from (f"{wording.values(row)} (not all equal)" for row in others if wording.is_off(row))
    equal = [wording.values(row) for row in others if not wording.is_off(row)]
    if equal:
        yield f"{wording.listed(equal)} equal"


def yardstick(data: Comparison) -> Iterator[Line]:
    """What the bounds rest on, and how the device says that it rounds."""
    clauses = wording.yardstick(data)
    clauses += map(wording.declared, data.yardstick.declared if data.yardstick else ())
    if clauses:
        yield "yardstick", "; ".join(clauses)


def differences(data: Comparison) -> Iterator[Line]:
    """The first values that differ by more than is allowed."""
    rows = data.first
    for row in rows[:DIFFERENCES]:
        sides = [_side(row.port), _side(row.reference)]
        apart = wording.apart(row)
        text = f"{_name(row)}: {sides[0]} against {sides[1]}{', ' if apart else ''}{apart}"
        yield f"differs at {row.step}", text
    if len(rows) > DIFFERENCES:
        yield "", f"and {wording.count(len(rows) - DIFFERENCES, 'more difference')} in the report"


def draws(data: Comparison) -> Iterator[Line]:
    """The random numbers that the device draws by itself: whether they are distributed as they should be."""
    rows = data.draws
    bad = [row for row in rows if not row.holds]
    if bad:
        yield "drawn", "; ".join(map(wording.drawn, bad[:DIFFERENCES]))
    elif rows:
        yield (
            "drawn",
            f"{wording.count(len(rows), 'random operator')} on the device, distributed as in the original",
        )


def controls(data: Comparison) -> Iterator[Line]:
    """The faults that were put into the original on purpose, and which the comparison noticed.

    Where the runs differ, faults that were noticed are only counted: that the comparison notices something is seen.
    """
    if unmeasured := wording.unmeasured(data.controls):
        yield "control", unmeasured
        return
    rows = data.controls.rows
    is_counted = bool(data.first) and any(wording.outcome(row) == "noticed" for row in rows)
    if is_counted:
        yield "control", wording.faults(rows)
    for row in rows:
        outcome = wording.outcome(row)
        if not (is_counted and outcome == "noticed"):
            yield outcome, f"{row.words}{_seen(row, outcome)}"


def _seen(row: ControlRow, outcome: str) -> str:
    """What showed a fault; where it was put, if nothing did."""
    if outcome == "noticed":
        best = row.noticed[0]
        apart = wording.apart(best)
        return f", by {_name(best)}{f' {apart}' if apart else ''}"
    place = wording.place(row) if outcome == "NOT noticed" else ""
    return f" ({place})" if place else ""


def _name(row: Difference | Noticed) -> str:
    return shortened(wording.quantity(row), NAME)


def _side(one: object) -> str:
    """A value; of a long text, such as a checksum, its first letters."""
    text = wording.value(one)
    return text if len(text) <= VALUE else f"{text[: VALUE - 3]}..."
