"""The findings: what is left to do first, what is done folded away."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from itertools import groupby

from torchport.findings import Finding, Result, Safety, Severity
from torchport.report.terminal import by_severity

SOURCE = 300  # characters of the code that a finding is about


def render_findings_section(result: Result) -> str:
    """Two tables with one filter for both."""
    if not result.findings:
        return ""
    ordered = by_severity(result.findings)
    left = [one for one in ordered if _word(one) != "done" and one.severity is not Severity.INFO]
    rest = [one for one in ordered if _word(one) == "done" or one.severity is Severity.INFO]
    parts = [
        "<section id=findings><h2>Findings</h2>",
        '<p class=filter><label>Filter <input id=filter type=search placeholder="a word, a file, a code"></label> '
        "<output id=count></output></p>",
        f"<h3>To look at ({len(left)})</h3>{_table(left)}" if left else "<p>Nothing is left to look at.</p>",
    ]
    if rest:
        parts.append(f"<details><summary>Done, or good to know ({len(rest)})</summary>{_table(rest)}</details>")
    return "".join(parts) + "</section>"


def _table(some: Iterable[Finding]) -> str:
    parts = []
    for path, group in groupby(some, key=lambda finding: finding.location.path if finding.location else ""):
        head = f"<tr><th colspan=3>{escape(path)}</th></tr>" if path else ""
        parts.append(f"<tbody>{head}{''.join(map(_row, group))}</tbody>")
    return f"<table class=list>{''.join(parts)}</table>"


def _row(finding: Finding) -> str:
    word, where = _word(finding), finding.location
    place = f"{where.line}:{where.column}" if where else ""
    source = str(finding.evidence.get("source", ""))[:SOURCE]
    quiet = word == "done" and finding.severity is Severity.INFO
    return (
        f'<tr data-path="{escape(where.path if where else "")}"><td>{place}</td>'
        f"<td><span class='word {word}'>{word}</span> <span class=code>{escape(finding.code)}</span></td>"
        f"<td>{escape(finding.message)}"
        + (f"<p class=hint>{escape(finding.hint)}</p>" if finding.hint and not quiet else "")
        + (f"<pre>{escape(source)}</pre>" if source and "\n" not in source.strip() else "")
        + _messages(finding)
        + "</td></tr>"
    )


def _messages(finding: Finding) -> str:
    """What a failing run wrote last to stderr, folded."""
    lines = [str(line) for line in finding.evidence.get("stderr", ())]
    if not lines:
        return ""
    text = escape("\n".join(lines))
    return f"<details open><summary>last lines on stderr</summary><pre>{text}</pre></details>"


def _word(finding: Finding) -> str:
    if finding.fix:
        return "review" if finding.safety is Safety.REVIEW else "done"
    return finding.severity.value
