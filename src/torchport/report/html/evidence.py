"""What a comparison rests on: the first differences, the quantities that were compared, and what would be noticed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from torchport.findings import Result
from torchport.report import wording
from torchport.report.curves import bad_windows, read_curves
from torchport.report.html.comparison import compared
from torchport.report.html.tables import figures, records

_PILLS = {"noticed": "done", "NOT noticed": "error", "not possible": "info"}


def differences(result: Result) -> str:
    """The first values that differ by more than is allowed; that there are none where that was looked at."""
    data = compared(result)
    rows = data.get("first")
    if rows is None:
        return ""
    if not rows:
        text = escape(_none(data))
        return f"<section><h2>First differences</h2><p>{text}</p></section>" if text else ""
    head = ("Step", "Quantity", "Where", "Original", "Port", "Difference", "Noise", "Allowed")
    table = records(head, [_difference(row) for row in rows], "differences")
    return f"<section><h2>First differences</h2>{table}</section>"


def _none(data: Mapping[str, Any]) -> str:
    """That no single step differs, of what was looked at; empty where nobody knows what that was."""
    if data.get("quantities") is None:
        return ""
    found = [wording.values(row) for row in data["quantities"] if row.get("compared")]
    if not found:
        return "Nothing was compared."
    means = (
        " The means of some stretches differ: see below." if any(map(bad_windows, read_curves(data))) else ""
    )
    return f"None beyond what is allowed in a step. Compared were {wording.listed(found)}.{means}"


def _difference(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        escape(str(row.get("step"))),
        escape(wording.kind_of(row)),
        _code(row.get("name")),
        escape(wording.value(row.get("reference"))),
        escape(wording.value(row.get("port"))),
        "not equal" if row.get("error") is None else f"<b>{escape(wording.error(row['error']))}</b>",
        _number(row, "noise"),
        _allowed(row),
    )


def quantities(result: Result) -> str:
    """What was compared, and how well; empty where a result does not say."""
    data = compared(result)
    rows = list(data.get("quantities") or ())
    beyond = {row.get("kind") for row in data.get("first") or ()}
    head = ("Quantity", "Values", "Steps", "Worst difference", "At step", "In", "Noise", "Allowed")
    holds = [not (wording.is_off(row) or row.get("kind") in beyond) for row in rows]
    table = figures(head, [_quantity(row) for row in rows], holds, "quantities") if rows else ""
    body = table + _draws(list(data.get("draws") or ()))
    return f"<section><h2>What was compared</h2>{body}</section>" if body else ""


def _draws(rows: Sequence[Mapping[str, Any]]) -> str:
    """The random numbers that the device drew by itself, which cannot be compared one by one."""
    if not rows:
        return ""
    head = ("Operator", "Place", "Type", "Numbers", "Mean", "Expected")
    holds = [bool(row.get("holds", True)) for row in rows]
    title = "<h3>Random numbers that the device drew by itself</h3>"
    return title + figures(head, [_drawn(row) for row in rows], holds)


def _quantity(row: Mapping[str, Any]) -> Sequence[object]:
    at = row.get("at") or {}
    worst = row.get("worst")
    values = int(row.get("compared") or 0)
    equal = "not equal" if wording.is_off(row) else "equal" if values else "none compared"
    return (
        wording.kind_of(row),
        f"{values:,}",
        f"{int(row.get('steps') or 0):,}",
        wording.error(worst) if worst is not None and values else equal,
        at.get("step", ""),
        at.get("name", ""),
        _number(row, "noise"),
        _allowed(row) if values else "",
    )


def _drawn(row: Mapping[str, Any]) -> Sequence[object]:
    count = int(row.get("count") or 0)
    means = (wording.value(row.get("mean")), wording.value(row.get("expected_mean")))
    return (row.get("operator"), row.get("site"), row.get("dtype"), f"{count:,}", *means)


def power(result: Result) -> str:
    """The faults that the comparison was seen to notice, and what its bounds rest on."""
    data = compared(result)
    controls = data.get("controls") or {}
    body = "".join((*_controls(controls), *_yardstick(data)))
    return f"<section><h2>What this comparison notices</h2>{body}</section>" if body else ""


def _controls(controls: Mapping[str, Any]) -> Iterator[str]:
    if not controls:
        return
    if unmeasured := wording.unmeasured(controls):
        yield f"<p>{escape(wording.sentence(unmeasured))}</p>"
        return
    if controls.get("smallest"):
        yield f"<p>{escape(wording.sentence(str(controls['smallest'])))}</p>"
    rows = list(controls.get("rows") or ())
    if rows:
        head = ("Fault", "Put at", "", "By", "Difference", "Allowed")
        yield records(head, [_control(row) for row in rows], "controls")


def _control(row: Mapping[str, Any]) -> tuple[str, ...]:
    found = list(row.get("noticed") or ())
    word = wording.outcome(row)
    best = found[0] if found else {}
    more = f", and {len(found) - 1:,} more" if len(found) > 1 else ""
    return (
        escape(str(row.get("words") or row.get("name") or "")),
        escape(wording.place(row)),
        f"<span class='word {_PILLS[word]}'>{word}</span>",
        escape(f"{wording.quantity(best)}{more}") if best else "",
        _number(best, "error"),
        _allowed(best) if best else "",
    )


def _yardstick(data: Mapping[str, Any]) -> Iterator[str]:
    """What the bounds rest on, in sentences, and the roundings that the device declares."""
    items = [escape(wording.sentence(clause)) for clause in wording.yardstick(data)]
    for row in (data.get("yardstick") or {}).get("declared") or ():
        source = str(row.get("source") or "")
        items.append(escape(wording.sentence(f"{wording.declared(row)}{f' ({source})' if source else ''}")))
    if items:
        yield f"<h3>What the bounds rest on</h3><ul class=notes>{''.join(f'<li>{item}</li>' for item in items)}</ul>"


def _number(row: Mapping[str, Any], name: str) -> str:
    return "" if row.get(name) is None else wording.error(row[name])


def _allowed(row: Mapping[str, Any]) -> str:
    return "" if row.get("allowed") is None else wording.bound(row["allowed"])


def _code(text: object) -> str:
    return f"<code>{escape(str(text))}</code>" if text else ""
