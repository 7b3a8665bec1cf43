"""Which operator is wrong first: the error along the network, and the calls to look at first."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from torchport.findings import Result
from torchport.report.html.comparison import compared
from torchport.report.html.curve import chart
from torchport.report.html.tables import figures, records
from torchport.report.wording import count

SHOWN = 40  # healthy calls of the table
HEAD = ("Step", "Operator", "Pass", "Module", "Score", "Error", "Explained", "Source")


def culprit(result: Result) -> str:
    """The section of a comparison whose operators were recorded; empty for others."""
    data = compared(result).get("culprit")
    if not isinstance(data, Mapping):
        return ""
    body = [_said(data), _profile(data), _calls(data), _causes(data), _unjudged(data)]
    return f"<section><h2>Operators</h2>{''.join(filter(None, body))}</section>"


def _said(data: Mapping[str, Any]) -> str:
    if data.get("share") is None:
        return "<p>Recorded without tensors: their values were not judged.</p>"
    steps = ", ".join(map(str, data["replayed"]))
    text = (
        f"{count(int(data['calls']), 'call')} of step {steps} computed again in float64 from their own inputs; "
        f"{float(data['share']):.1%} of what they computed was judged, {count(int(data['wrong']), 'call')} wrong."
    )
    return f"<p>{escape(text)} A score is the distance to float64 over that of the CPU.</p>"


def _profile(data: Mapping[str, Any]) -> str:
    values = [float(value) for value in data.get("profile", ())]
    return (
        chart("Error along the network, in the order of calls", {"score": values}, logarithmic=True)
        if values
        else ""
    )


def _calls(data: Mapping[str, Any]) -> str:
    rows = [row for row in data.get("rows", ()) if row["wrong"]]
    rows += [row for row in data.get("rows", ()) if not row["wrong"]][:SHOWN]
    if not rows:
        return ""
    table = figures(HEAD, [_call(row) for row in rows], [not row["wrong"] for row in rows], "operators")
    return f"<details open><summary>{count(len(rows), 'call')} with the highest scores</summary>{table}</details>"


def _call(row: Mapping[str, Any]) -> tuple[object, ...]:
    return (
        row["step"], row["operator"], row["phase"], row["module"], f"{float(row['score']):.3g}",
        row["spoilt"] or f"{float(row['error']):.2g}", f"{float(row['bound']):.2g}", row["source"],
    )  # fmt: skip


def _causes(data: Mapping[str, Any]) -> str:
    rows = [
        (escape(str(row["kind"])), escape(str(row["text"])), escape(str(row["source"])))
        for row in data.get("causes", ())
    ]
    return records(("Class", "Difference to the reference", "Source"), rows, "causes") if rows else ""


def _unjudged(data: Mapping[str, Any]) -> str:
    rows = [
        (escape(str(row["operator"])), escape(str(row["calls"])), escape(str(row["why"])))
        for row in data.get("unjudged", ())
    ]
    if not rows:
        return ""
    table = records(("Not judged", "Calls", "Why"), rows, "unjudged")
    return f"<details><summary>{count(len(rows), 'operator')} not judged</summary>{table}</details>"
