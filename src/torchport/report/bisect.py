"""What a bisection of operators found, as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchport.report.wording import format_count

NAMED = 6


def render_bisect(data: Mapping[str, Any]) -> str:
    """A line for each run, then what they say."""
    lines = [
        f"  {'operators on the CPU':<24}{'loss away from the reference':<32}follows",
        f"  {'none':<24}{float(data['away']):<32.3g}no",
    ]
    for run in data["runs"]:
        names = ", ".join(run["names"]) if run["count"] <= NAMED else str(run["count"])
        away = f"{float(run['distance']):.3g}"
        lines.append(
            f"  {names:<24}{away:<32}{'yes' if run['follows'] else 'no'}"
            if len(names) < 24
            else f"  {names}\n  {'':<24}{away:<32}{'yes' if run['follows'] else 'no'}"
        )
    lines.append(
        f"{data['sentence']} ({format_count(data['candidates'], 'operator')}, {format_count(data['steps'], 'step')}, "
        f"{format_count(len(data['runs']) + 1, 'run')})"
    )
    if len(data["operators"]) > 1:
        lines.append(f"  {', '.join(data['operators'])}")
    if data["refused"]:
        lines.append(f"  stayed on the NPU, as the CPU cannot compute it: {', '.join(data['refused'])}")
    return "\n".join(lines) + "\n"
