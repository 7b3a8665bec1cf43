"""Which operator is wrong first: the error along the network, and the calls to look at first."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from torchport.findings import Result
from torchport.report.html.comparison import get_comparison
from torchport.report.html.curve import draw_chart
from torchport.report.html.tables import render_number_table, render_text_table
from torchport.report.wording import format_count

REGIONS, NAMED = 60, 6  # of a table; of a region's operators
SHOWN = 40  # healthy calls of the table
HEAD = ("Step", "Operator", "Pass", "Module", "Score", "Error", "Explained", "Source")


def render_culprit_section(result: Result[Any]) -> str:
    """The section of a comparison whose operators were recorded; empty for others."""
    comparison = get_comparison(result)
    if comparison is None or comparison.culprit is None:
        return ""
    data = comparison.culprit
    parts = (_said, _overwritten, _profile, _calls, _all, _causes, _regions, _unjudged)
    body = [part(data) for part in parts]
    return f"<section><h2>Operators</h2>{''.join(filter(None, body))}</section>"


def _said(data: Mapping[str, Any]) -> str:
    if data.get("share") is None:
        return "<p>Recorded without tensors: their values were not judged.</p>"
    rest = f" ({data['left_out']} recorded steps were not)" if data["left_out"] else ""
    text = (
        f"{format_count(int(data['calls']), 'call')} of {data['replayed']}{rest} computed again in float64 from their "
        "own inputs; "
        f"{float(data['share']):.1%} of what they computed was judged, "
        f"{format_count(int(data['wrong']), 'call')} wrong."
    )
    return f"<p>{escape(text)} A score is the distance to float64 over that of the CPU.</p>"


def _overwritten(data: Mapping[str, Any]) -> str:
    """Memory that was written over while it was in use."""
    rows = [
        (
            escape(str(row["step"])),
            escape(_call_name(row["owner"]) or row["name"] or "a tensor of an earlier step"),
            escape(_call_name(row["right"]) or "before the first call"),
            escape(_call_name(row["seen"])),
            escape(f"{row['elements']:,} of {row['size']:,}"),
            escape(f"{_call_name(row['writer'])} of step {row['when']}" if row["writer"] else "not known"),
        )
        for row in data.get("overwritten", ())
    ]
    head = ("Step", "Result of", "Right behind", "Another behind", "Elements", "Ran or was given it meanwhile")
    return render_text_table(head, rows, "overwritten") if rows else ""


def _call_name(call: Mapping[str, Any] | None) -> str:
    if call is None:
        return ""
    return f"{call['operator']}{' in ' + call['module'] if call['module'] else ''}, call {call['call']}"


def _profile(data: Mapping[str, Any]) -> str:
    values = [float(value) for value in data.get("profile", ())]
    return (
        draw_chart("Error along the network, in the order of calls", {"score": values}, logarithmic=True)
        if values
        else ""
    )


def _calls(data: Mapping[str, Any]) -> str:
    rows = [row for row in data.get("rows", ()) if row["wrong"]]
    rows += [row for row in data.get("rows", ()) if not row["wrong"]][:SHOWN]
    if not rows:
        return ""
    table = render_number_table(HEAD, [_call(row) for row in rows], [not row["wrong"] for row in rows], "operators")
    return (
        f"<details open><summary>{format_count(len(rows), 'call')} with the highest scores</summary>{table}</details>"
    )


def _call(row: Mapping[str, Any]) -> tuple[object, ...]:
    return (
        row["step"],
        row["operator"],
        row["phase"],
        row["module"],
        f"{float(row['score']):.3g}",
        row["spoilt"] or f"{float(row['error']):.2g}",
        f"{float(row['bound']):.2g}",
        row["source"],
    )


def _all(data: Mapping[str, Any]) -> str:
    """Every call, for the page's script: what is in sight is put into the page. Without scripts the table above is what
    there is."""
    table = data.get("table") or {}
    if not table.get("rows"):
        return ""
    buttons = {"Call": "calls", "Score": "score", "Error": "error", "Apart": "apart"}
    titles = "".join(
        f"<th>{f'<button data-by={buttons[name]}>{name}</button>' if name in buttons else name}</th>"
        for name in ("Step", "Call", "Operator", "Pass", "Module", "Score", "Error", "Apart", "Source")
    )
    stored = escape(json.dumps(table, separators=(",", ":"), allow_nan=False), quote=False)
    return (
        f"<div id=calls-all hidden><h3>All calls</h3><p><input id=calls-filter type=search "
        f'placeholder="operator, module, file" aria-label="Filter calls"> <span id=calls-count></span></p>'
        f"<div id=calls-box><table class='list figures'><thead><tr>{titles}</tr></thead><tbody></tbody></table></div>"
        f"<p class=hint>Apart: from the reference's result, inherited and introduced.</p></div>"
        f"<pre id=calls hidden>{stored}</pre>"
    )


def _regions(data: Mapping[str, Any]) -> str:
    """Where the two call different operators, and whether what comes out could be compared."""
    rows = [
        (
            escape(str(row["module"] or row["phase"])),
            escape(_named(row["reference"])),
            escape(_named(row["port"])),
            escape(f"{format_count(int(row['compared']), 'result')} compared" if row["compared"] else "not compared"),
        )
        for row in (data.get("aligned") or {}).get("regions", ())
    ]
    if not rows:
        return ""
    table = render_text_table(("Module", "Reference", "Port", "At its frontier"), rows[:REGIONS], "regions")
    return f"<details><summary>{format_count(len(rows), 'region')} of other operators</summary>{table}</details>"


def _named(names: Sequence[str]) -> str:
    return " ".join(map(str, names[:NAMED])) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")


def _causes(data: Mapping[str, Any]) -> str:
    rows = [
        (escape(str(row["kind"])), escape(str(row["text"])), escape(str(row["source"])))
        for row in data.get("causes", ())
    ]
    return render_text_table(("Class", "Difference to the reference", "Source"), rows, "causes") if rows else ""


def _unjudged(data: Mapping[str, Any]) -> str:
    rows = [
        (escape(str(row["operator"])), escape(str(row["calls"])), escape(str(row["why"])))
        for row in data.get("unjudged", ())
    ]
    if not rows:
        return ""
    table = render_text_table(("Not judged", "Calls", "Why"), rows, "unjudged")
    return f"<details><summary>{format_count(len(rows), 'operator')} not judged</summary>{table}</details>"
