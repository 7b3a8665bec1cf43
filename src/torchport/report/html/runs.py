"""The comparison of two runs: loss curves, their difference, the final metrics, and how each run went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from torchport.findings import Result
from torchport.report.html.curve import chart

ROWS = 12  # of the table of losses


def runs(result: Result) -> str:
    """The section of a port or comparison; empty for other results."""
    if "holds" not in result.data:
        return ""
    comparison = result.data.get("comparison") if result.command == "port" else result.data
    parts = [
        "<section><h2>The two runs</h2>",
        _how(result.data.get("runs", {}), result.data.get("backend", "")),
    ]
    if comparison and (comparison["curves"]["reference"] or comparison["curves"]["port"]):
        parts += [_curves(comparison), _losses(comparison), _metrics(comparison)]
    return "".join(parts) + "</section>"


def _how(runs: Mapping[str, Any], backend: str) -> str:
    rows = []
    for step, name in (("reference", "original"), ("npu", "port")):
        run = runs.get(step)
        if run is None:
            continue
        if run.get("skipped"):
            rows.append([name, "", "not run", "", ""])
            continue
        ended = (
            "stopped: --timeout"
            if run["timed_out"]
            else f"exit status {run['status']}"
            if run["status"]
            else "to its end"
        )
        rows.append([name, run["device"], ended, f"{run['steps']} steps", f"{float(run['seconds']):.1f} s"])
    cells = "".join(
        "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows
    )
    note = f"<p class=hint>{escape(str(backend))}</p>" if backend else ""
    return (f"<table class=list><tbody>{cells}</tbody></table>" if rows else "") + note


def _curves(comparison: Mapping[str, Any]) -> str:
    reference, port = ([float(loss) for loss in comparison["curves"][side]] for side in ("reference", "port"))
    figures = [chart("Loss of each step", {"original": reference, "port": port})]
    errors = [float(error) for error in comparison["errors"]]
    if errors and not comparison["chance"] and not any(errors):
        figures.append("<p>The losses of both runs are equal in every digit, in every step.</p>")
    elif errors and not comparison["chance"]:
        bounds = comparison["tolerance"]
        allowed = {"allowed at first": bounds["first"]} | (
            {"allowed": bounds["run"]} if bounds["run"] else {}
        )
        figures.append(
            chart("Relative difference of the losses", {"difference": errors}, allowed, logarithmic=True)
        )
    return "".join(figures)


def _losses(comparison: Mapping[str, Any]) -> str:
    if comparison["windows"] and comparison["method"] != "step by step":
        head = ("Steps", "Mean, original", "Mean, port", "Difference", "Allowed")
        rows: list[Sequence[object]] = [
            (
                f"{span['start']} to {span['end'] - 1}",
                f"{float(span['reference']):.6g}",
                f"{float(span['port']):.6g}",
                f"{abs(float(span['port']) - float(span['reference'])):.1e}",
                f"{float(span['allowed']):.1e}",
            )
            for span in comparison["windows"]
        ]
        return _numbers(
            "The means of each tenth", head, rows, [bool(span["holds"]) for span in comparison["windows"]]
        )
    errors = [float(error) for error in comparison["errors"]]
    count = len(errors)
    picked = sorted({round(index * (count - 1) / (ROWS - 1)) for index in range(ROWS)}) if count else []
    bounds = comparison["tolerance"]
    limits = [
        bounds["first"] if step < bounds["first_steps"] else bounds["run"] or float("inf") for step in picked
    ]
    curves = comparison["curves"]
    rows = [
        (
            step,
            f"{float(curves['reference'][step]):.6g}",
            f"{float(curves['port'][step]):.6g}",
            f"{errors[step]:.1e}",
            f"{limit:g}",
        )
        for step, limit in zip(picked, limits, strict=True)
    ]
    head = ("Step", "Original", "Port", "Relative", "Allowed")
    return _numbers(
        "Losses of some steps",
        head,
        rows,
        [errors[step] <= limit for step, limit in zip(picked, limits, strict=True)],
    )


def _metrics(comparison: Mapping[str, Any]) -> str:
    rows = [
        (
            row["name"],
            _value(row, "reference"),
            _value(row, "port"),
            "" if row["allowed"] is None else f"{float(row['allowed']):.2g}",
        )
        for row in comparison["metrics"]
    ]
    holds = [bool(row["holds"]) for row in comparison["metrics"]]
    return (
        _numbers("What both print last", ("Metric", "Original", "Port", "Allowed difference"), rows, holds)
        if rows
        else ""
    )


def _value(row: Mapping[str, Any], side: str) -> str:
    return f"{float(row[side]):g}{' %' if row['percent'] else ''}"


def _numbers(title: str, head: Sequence[str], rows: Sequence[Sequence[object]], holds: Sequence[bool]) -> str:
    cells = "".join(
        f"<tr{'' if good else ' class=off'}>"
        + "".join(f"<td>{escape(str(cell))}</td>" for cell in row)
        + "</tr>"
        for row, good in zip(rows, holds, strict=True)
    )
    titles = "".join(f"<th>{escape(name)}</th>" for name in head)
    return (
        f"<details><summary>{escape(title)}</summary><table class='list figures'><thead><tr>{titles}</tr></thead>"
        f"<tbody>{cells}</tbody></table></details>"
    )
