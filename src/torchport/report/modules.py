"""The modules of a model on a device, as a table for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torchport.report.wording import format_count


def render_modules(rows: Sequence[Mapping[str, Any]], device: str) -> str:
    """A line for each module, with the score of its worst result in train and in eval mode, then what they say."""
    width = max([len(_name(row)) for row in rows] + [20])
    lines = [f"{'':<7}{'mode':<7}{'module':<{width}}  {'error':>8}{'CPU':>9}{'score':>9}  worst of"]
    for row in rows:
        head = f"{'WRONG' if row['wrong'] else '':<7}{row['mode']:<7}{_name(row):<{width}}"
        if row["why"]:
            lines.append(f"{head}  not judged: {row['why']}")
            continue
        said = row["spoilt"] or (f"holds {row['holds']}" if row["holds"] else "")
        lines.append(
            f"{head}  {row['error']:>8.1e}{row['cpu']:>9.1e}{row['score']:>9.3g}  {row['result']} of {row['results']}"
            f"{f': {said}' if said else ''}"
        )
    judged = [row for row in rows if not row["why"]]
    wrong = [row for row in judged if row["wrong"]]
    names = ", ".join(dict.fromkeys(f"{_name(row)} in {row['mode']} mode" for row in wrong))
    lines.append(f"wrong on {device}: {names}" if wrong else f"nothing is wrong on {device}")
    modes = " and ".join(dict.fromkeys(row["mode"] for row in rows))
    lines.append(
        f"{format_count(len(judged), 'module')} judged, forward and backward, against float64 ({modes}); "
        f"{len(rows) - len(judged)} not judged"
    )
    return "\n".join(lines) + "\n"


def _name(row: Mapping[str, Any]) -> str:
    return f"{row['module'] or 'the model'} ({row['kind']})"
