"""The two runs: where each ran and for how long, how it ended, what used the NPU, and what it left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from torchport.findings import Result
from torchport.report import wording
from torchport.results.comparison import Seconds
from torchport.results.port import Port, Run

WRITTEN, OUTSIDE = 6, 12  # paths of each run; the files are listed in a table of their own


def render_runs_section(result: Result[Any]) -> str:
    """A table with a column for each run; empty for a result without runs."""
    data = result.data
    if not isinstance(data, Port):
        return ""
    found = (("reference", "Original", data.runs.reference), ("port", "Port", data.runs.npu))
    sides = [(run, side, title) for side, title, run in found if run is not None]
    if not sides:
        return ""
    seconds = data.comparison.seconds if data.comparison is not None else Seconds()
    rows: list[tuple[str, Callable[[Run, str], str]]] = [
        ("Ended", lambda run, _: escape(wording.describe_end(run))),
        ("Device", lambda run, _: escape(wording.describe_device(run))),
        ("Ranks", lambda run, _: str(run.ranks) if run.ranks > 1 else ""),
        ("Cards", lambda run, _: "<br>".join(map(escape, wording.list_rank_cards(run)))),
        ("Steps", lambda run, _: f"{run.steps:,}" if run.steps else ""),
        ("Time", lambda run, _: _time(run.seconds)),
        ("Time of a step", lambda _, side: _time(getattr(seconds, side))),
        ("Operators on the NPU", lambda run, _: escape(wording.describe_launches(run))),
        ("Tensors", lambda run, _: _tensors(run)),
        ("Sums", lambda _, side: escape(wording.describe_sum_order(data)) if side == "port" else ""),
        ("Files written", lambda run, _: _paths([row.path for row in run.files], WRITTEN)),
        ("Wrote outside its folder", lambda run, _: _paths(run.outside, OUTSIDE)),
    ]
    cells = []
    for name, cell in rows:
        texts = [cell(run, side) for run, side, _ in sides]
        if any(texts):
            cells.append(f"<tr><th scope=row>{name}</th>{''.join(f'<td>{text}</td>' for text in texts)}</tr>")
    head = "".join(f"<th>{title}</th>" for _, _, title in sides)
    table = f"<table class='list runs'><thead><tr><th></th>{head}</tr></thead><tbody>{''.join(cells)}</tbody></table>"
    return f"<section><h2>The two runs</h2>{table}{_hint(data)}{_notes(data)}</section>"


def _hint(data: Port) -> str:
    backend = data.backend
    where = f"NPU: {backend}. " if backend else ""
    return f"<p class=hint>{escape(where)}Times are of this machine" + (
        " and say nothing about the speed of hardware.</p>" if "virtual" in backend else ".</p>"
    )


def _notes(data: Port) -> str:
    shown = [*data.notes, *([f"Not checked: {'; '.join(data.unchecked)}"] if data.unchecked else ())]
    notes = "".join(f"<li>{escape(wording.format_sentence(note))}</li>" for note in shown)
    return f"<ul class=notes>{notes}</ul>" if notes else ""


def _time(seconds: float | None) -> str:
    return escape(wording.format_elapsed(seconds)) if seconds else ""


def _tensors(run: Run) -> str:
    words = [f"{wording.join_words(parts)} on {device}" for device, parts in wording.group_parts_by_device(run)]
    return "<br>".join(escape(text) for text in words)


def _paths(paths: Sequence[str], most: int) -> str:
    left = len(paths) - most
    shown = [f"<code>{escape(path)}</code>" for path in paths[:most]]
    return "<br>".join([*shown, *([f"and {left:,} more"] if left > 0 else [])])
