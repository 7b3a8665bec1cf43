"""Two printed logs, compared, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from torchport.findings import Result
from torchport.report.wording import escape_unprintable, format_count
from torchport.results.printed_logs import NameRow, PrintedLogs, percent

SHOWN = 12
_HEAD = ("name", "pairs", "mean", "largest", "", "drift", "last A", "last B", "")


def render_printed_logs(result: Result[PrintedLogs]) -> str:
    """The answer and why, the findings, a table of what both print, what a log cannot show, and what can."""
    data = result.data
    told = result.findings[0].message if result.findings else ""
    answer = data.answer.replace(" it", " the rule of thumb").upper()
    lines = [answer if data.reason == told else f"{answer}: {data.reason}"]
    for finding in result.findings:
        lines.append(f"  {finding.code}  {_place(finding.location)}{finding.message}")
        lines += [f"         {finding.hint}"] if finding.hint else []
    lines += ["", *_table(data)] if data.rows else []
    lines += [f"  note: {note}" for note in data.notes]
    lines += _alone(data)
    lines += [
        "",
        f"{data.unseen} To judge those:",
        "  torchport run --record A train.py   (on each device), then   torchport compare A B",
    ]
    return "\n".join(escape_unprintable(line) for line in lines) + "\n"


def _place(location: object) -> str:
    path, line = getattr(location, "path", ""), getattr(location, "line", 0)
    return f"{path}:{line}: " if path else ""


def _table(data: PrintedLogs) -> Iterator[str]:
    yield f"relative differences of B ({data.logs[1]}) to A ({data.logs[0]})"
    rows = sorted(data.rows, key=lambda row: not row.judged)
    cells = [_HEAD, *(_cells(row) for row in rows[:SHOWN])]
    widths = [max(len(row[column]) for row in cells) for column in range(len(_HEAD))]
    for row in cells:
        yield "  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
    if len(rows) > SHOWN:
        yield f"  and {format_count(len(rows) - SHOWN, 'name')} more (--json has all)"


def _cells(row: NameRow) -> tuple[str, ...]:
    above = f", {row.above} above" if row.above else ""
    return (
        row.name,
        f"{row.pairs:,}",
        percent(row.mean),
        percent(row.largest),
        row.where if row.largest else "",
        row.drift + above,
        f"{row.last_values[0]:.5g}",
        f"{row.last_values[1]:.5g}",
        row.judged,
    )


def _alone(data: PrintedLogs) -> Iterator[str]:
    for letter, names in zip("AB", data.only, strict=True):
        if names:
            listed = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
            yield f"  only in {letter}: {listed}"
