"""The operators of a run as a table for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torchport.report.wording import escape_unprintable, format_count

# How an operator is taken, worst first, and what that is called.
WORDS = {
    "refused": "refused",
    "unknown": "not known",
    "fallback": "on the CPU",
    "native": "on the NPU",
    "composite": "made of others",
}
ROWS = 20  # of operators that are simply computed on the NPU


def render_operators(data: Mapping[str, Any]) -> str:
    """The `data["operators"]` of an analysis: counts, then a line for each operator, those to look at first."""
    counts = [f"{data['counts'][how]} {word}" for how, word in WORDS.items() if data["counts"].get(how)]
    steps = format_count(data["steps"], "step")
    lines = [f"operators in {steps}: {', '.join(counts) or 'none on the device'}"]
    if data["precision"]:
        lines.append(f"  autocast was off on the CPU; on the NPU it uses {data['precision']}")
    ordered = worst_first(data["rows"])
    shown = [row for row in ordered if row["how"] not in ("native", "composite")]
    fine = [row for row in ordered if row["how"] in ("native", "composite")]
    for row in (*shown, *fine[:ROWS]):
        place = f"{row['path']}:{row['line']}" if row["path"] else ""
        shapes = row["shapes"][0][0] if row["shapes"] and row["shapes"][0] else ""
        lines.append(
            f"  {WORDS.get(row['how'], '?'):<14} {row['phase']:<9} {row['calls']:5}  "
            f"{escape_unprintable(row['operator']):<34} {' '.join(row['dtypes']):<16} "
            f"{shapes:<20} {escape_unprintable(place)}".rstrip()
        )
    if len(fine) > ROWS:
        lines.append(f"  and {len(fine) - ROWS} more on the NPU; -o FILE has all")
    return "\n".join(lines) + "\n"


def worst_first(rows: Sequence[Mapping[str, Any]]) -> list[Any]:
    """The rows ordered by how the NPU takes their operators."""
    order = list(WORDS)
    return sorted(rows, key=lambda row: order.index(row["how"]) if row["how"] in WORDS else 0)
