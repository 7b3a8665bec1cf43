"""What a log says went wrong, for a terminal; and the same in three sentences for a page."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from torchport.findings import Finding, Result
from torchport.report.columns import wrap_hanging_indent
from torchport.report.terminal import Painter, use_color
from torchport.report.wording import escape_unprintable, format_count, format_sentence

_MARGIN = 14  # columns of the words on the left
_CAUSES = ("TP801", "TP804", "TP806")


def render_diagnosis(result: Result, *, color: bool | None = None, width: int | None = None) -> str:
    """The cause with its proof, what to do and the next command; then what followed, and what is harmless."""
    paint = Painter(use_color(sys.stdout) if color is None else color)
    columns = width or min(shutil.get_terminal_size((100, 24)).columns, 120)
    lines = [paint(f"{format_sentence(judge_diagnosis(result)[1])}", "1")]
    for finding in result.findings:
        for word, text in _facts(finding):
            lines += wrap_hanging_indent(f"  {word:<{_MARGIN - 2}}", escape_unprintable(text), columns)
    lines.append(_read(result.data))
    return "\n".join(lines) + "\n"


def judge_diagnosis(result: Result) -> tuple[str, str, str]:
    """ "good", "open" or "bad", what the log says in one sentence, and on what grounds."""
    word = result.data["answer"]
    if word == "clean":
        return "good", "No failure is known by any of these lines, and the end of the run is a good one", ""
    if word == "open":
        return "open", "No failure is known by any of these lines, and none shows that the run has ended well", ""
    first = result.findings[0]
    if word == "sick":
        return "bad", format_sentence(first.message), "No exception was printed: these are signs in the numbers."
    if word == "unknown":
        return "open", "The run failed, and no row knows why: the first error is quoted", first.hint
    return (
        "bad",
        format_sentence(first.message),
        f"Confidence {first.evidence['confidence']}: {first.evidence['why']}.",
    )


def _facts(finding: Finding) -> Iterator[tuple[str, str]]:
    """What is said of one finding, each with the word before it."""
    evidence = finding.evidence
    if finding.code not in _CAUSES:
        where = finding.location
        place = f"{where.path}:{where.line}: " if where else ""
        word = {"TP802": "then", "TP803": "harmless", "TP807": "devices"}.get(finding.code, "not read")
        yield word, f"{place}{finding.message}{_seen(evidence)}"
        return
    for line in evidence["proof"]:
        yield "proof", f"{line['file']}:{line['line']}: {line['text']}"
    if evidence.get("at"):
        yield "raised at", evidence["at"]
    if evidence.get("ranks"):
        yield "on rank", ", ".join(evidence["ranks"])
    if evidence.get("facts"):
        yield "names", ", ".join(evidence["facts"])
    if finding.code == "TP801":
        yield "confidence", f"{evidence['confidence']}: {evidence['why']}"
    if evidence.get("owner"):
        yield "owner", evidence["owner"]
    if finding.hint:
        yield "fix", finding.hint
    if evidence.get("official"):
        yield "CANN says", evidence["official"]
    if evidence.get("before"):
        yield "before it", evidence["before"]
    for guess in evidence.get("guesses", ()):
        yield "a guess", guess
    if evidence.get("next"):
        yield "next", evidence["next"]
    if evidence.get("report"):
        yield "report to", evidence["report"]
    if finding.code in ("TP801", "TP806"):
        yield "more", f"torchport explain {evidence['row']}"


def _seen(evidence: Mapping[str, Any]) -> str:
    parts = []
    if int(evidence.get("seen", 1)) > 1:
        parts.append(f"{evidence['seen']} times")
    if evidence.get("ranks"):
        parts.append(f"rank {', '.join(evidence['ranks'])}")
    return f" ({', '.join(parts)})" if parts else ""


def _read(data: Mapping[str, Any]) -> str:
    stopped = "; reading was interrupted" if data["interrupted"] else ""
    limited = "; the rest of what is longer than --limit was not read" if data["limited"] else ""
    beside = f" and {format_count(len(data['plogs']), 'plog')}" if data["plogs"] else ""
    lines = format_count(data["lines"], "line")
    return f"read: {format_count(data['logs'], 'file')}{beside}, {lines}{stopped}{limited}"
