"""The two runs: where each ran and for how long, how it ended, what used the NPU, and what it left."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape
from typing import Any

from torchport.findings import Result
from torchport.report import wording
from torchport.report.html.comparison import compared

SIDES = (
    ("reference", "reference", "Original"),
    ("npu", "port", "Port"),
)  # in data["runs"], elsewhere, for people
WRITTEN, OUTSIDE = 6, 12  # paths of each run; the files are listed in a table of their own


def runs(result: Result) -> str:
    """A table with a column for each run; empty where a result has no runs."""
    found = result.data.get("runs") or {}
    sides = [(found[step], side, title) for step, side, title in SIDES if found.get(step)]
    if not sides:
        return ""
    seconds = compared(result).get("seconds") or {}
    files = result.data.get("files") or ()
    rows: list[tuple[str, Callable[[Mapping[str, Any], str], str]]] = [
        ("Ended", lambda run, _: escape(wording.ended(run))),
        ("Device", lambda run, _: escape(wording.device(run))),
        ("Ranks", lambda run, _: str(run["ranks"]) if int(run.get("ranks") or 1) > 1 else ""),
        ("Steps", lambda run, _: f"{int(run['steps']):,}" if run.get("steps") else ""),
        ("Time", lambda run, _: _time(run.get("seconds"))),
        ("Time of a step", lambda _, side: _time(seconds.get(side))),
        ("Operators on the NPU", lambda run, _: escape(wording.launched(run))),
        ("Tensors", lambda run, _: _tensors(run)),
        ("Files written", lambda run, side: _wrote(run.get("files"), files, side)),
        ("Wrote outside its folder", lambda run, _: _paths(run.get("outside") or (), OUTSIDE)),
    ]
    cells = []
    for name, cell in rows:
        texts = [cell(run, side) for run, side, _ in sides]
        if any(texts):
            cells.append(f"<tr><th scope=row>{name}</th>{''.join(f'<td>{text}</td>' for text in texts)}</tr>")
    head = "".join(f"<th>{title}</th>" for _, _, title in sides)
    table = f"<table class='list runs'><thead><tr><th></th>{head}</tr></thead><tbody>{''.join(cells)}</tbody></table>"
    return f"<section><h2>The two runs</h2>{table}{_hint(result.data)}{_notes(result.data)}</section>"


def _hint(data: Mapping[str, Any]) -> str:
    backend = str(data.get("backend") or "")
    where = f"NPU: {backend}. " if backend else ""
    return f"<p class=hint>{escape(where)}Times are of this machine" + (
        " and say nothing about the speed of hardware.</p>" if "virtual" in backend else ".</p>"
    )


def _notes(data: Mapping[str, Any]) -> str:
    notes = "".join(f"<li>{escape(wording.sentence(str(note)))}</li>" for note in data.get("notes") or ())
    return f"<ul class=notes>{notes}</ul>" if notes else ""


def _time(seconds: object) -> str:
    return "" if seconds is None or not seconds else escape(wording.elapsed(float(str(seconds))))


def _tensors(run: Mapping[str, Any]) -> str:
    words = [f"{wording.listed(parts)} on {device}" for device, parts in wording.places(run)]
    return "<br>".join(escape(text) for text in words)


def _wrote(own: Any, files: Any, side: str) -> str:
    """The files that a run wrote: its own list, else what is known from comparing both runs' files."""
    if own is None:
        names = [str(row.get("name")) for row in files if row.get(side)]
        return escape(wording.count(len(names), "file")) if files else ""
    return _paths([str(row.get("path")) if isinstance(row, Mapping) else str(row) for row in own], WRITTEN)


def _paths(paths: Any, most: int) -> str:
    left = len(paths) - most
    shown = [f"<code>{escape(str(path))}</code>" for path in paths[:most]]
    return "<br>".join([*shown, *([f"and {left:,} more"] if left > 0 else [])])
