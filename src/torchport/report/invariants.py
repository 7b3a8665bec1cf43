"""The invariants of training that a run has broken, as text for a terminal."""

from __future__ import annotations

import shutil

from torchport.findings import Result
from torchport.report.columns import wrap_text
from torchport.report.terminal import render_findings
from torchport.report.wording import format_count
from torchport.results.invariants import Invariants


def render_invariants(result: Result[Invariants], *, color: bool | None = None) -> str:
    """The findings, then what was judged, then what was not."""
    data = result.data
    width = min(shutil.get_terminal_size((100, 24)).columns, 120)
    judged = [name for name, times in data.judged.items() if times]
    unmet = [name for name, times in data.judged.items() if not times]
    where = format_count(data.steps, "step") + (f" of {data.ranks} ranks" if data.ranks > 1 else "")
    lines = [f"judged in {where}: {', '.join(judged) or 'nothing'}"]
    if unmet:
        lines.append(f"not met in this run: {', '.join(unmet)}")
    if not data.watched:
        lines.append("not watched from inside: `torchport run --invariants` does that")
    if not result.findings:
        lines.insert(
            0, "no invariant of training is broken as far as it was judged" if judged else "nothing was judged"
        )
    return (
        render_findings(result.findings, color=color)
        + "\n".join(piece for line in lines for piece in wrap_text(line, width))
        + "\n"
    )
