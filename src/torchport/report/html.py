"""A result as one HTML file that needs nothing else: no network, no scripts to be read, printable.

Every text is escaped; a content security policy forbids whatever is not in the file. Scripts only add a filter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import escape
from itertools import groupby, zip_longest
from typing import Any

from torchport import __version__
from torchport.findings import Finding, Result, Safety, Severity

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --add: #2a82; --del: #d332; --dim: #888; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.5rem; border-bottom: 1px solid var(--line); }
.verdict { padding: .8rem 1rem; border-left: .4rem solid var(--dim); background: #8881; }
.verdict.good { border-color: #2a8; } .verdict.open { border-color: #da2; } .verdict.bad { border-color: #d33; }
.numbers { display: flex; flex-wrap: wrap; gap: 1rem; padding: 0; list-style: none; }
.numbers b { display: block; font-size: 1.6rem; line-height: 1.1; }
table { border-collapse: collapse; width: 100%; }
td, th { text-align: left; vertical-align: top; padding: .25rem .6rem; }
tr { border-top: 1px solid var(--line); } code, .diff { font: 13px/1.45 ui-monospace, monospace; }
.word { border-radius: .3rem; padding: 0 .4rem; border: 1px solid currentColor; white-space: nowrap; }
.error { color: #d33; } .warning, .review { color: #b80; } .info { color: #27a; } .done { color: #284; }
.hint { color: var(--dim); } .diff td { white-space: pre-wrap; overflow-wrap: anywhere; padding: 0 .4rem; width: 50%; }
.diff tr { border: 0; } .add { background: var(--add); } .del { background: var(--del); } .hunk { color: var(--dim); }
#filter { display: none; } .scripted #filter { display: block; margin: .5rem 0; font: inherit; width: 24rem; }
"""
_SCRIPT = """
document.body.classList.add('scripted');
document.getElementById('filter').addEventListener('input', event => {
  const wanted = event.target.value.toLowerCase();
  for (const row of document.querySelectorAll('#findings tbody tr'))
    row.hidden = !row.textContent.toLowerCase().includes(wanted);
});
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")


def page(result: Result) -> str:
    """The result of analyze or convert: verdict, numbers, findings, what is left of CUDA, the changes side by side."""
    root = str(result.data.get("root", ""))
    summary = result.data.get("summary", {})
    parts = [
        f"<h1>torchport {escape(result.command)}: {escape(root)}</h1>",
        _verdict(summary),
        _numbers(summary),
        _next(result.command, root, summary),
        _findings(result.findings),
        _residue(result.data.get("residue", {})),
        _diff(str(result.data.get("diff", ""))),
        f"<p class=hint>torchport {escape(__version__)}, {len(result.inputs)} files read</p>",
    ]
    return (
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8>"
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name=viewport content="width=device-width">'
        f"<title>torchport {escape(result.command)} {escape(root)}</title><style>{_STYLE}</style></head><body>\n"
        + "\n".join(parts)
        + f"\n<script>{_SCRIPT}</script></body></html>\n"
    )


def _verdict(summary: dict[str, Any]) -> str:
    blockers, decisions = summary.get("blockers", 0), summary.get("decisions", 0)
    if blockers:
        kind, text = (
            "bad",
            f"{blockers} places keep this from running on an NPU; {decisions} more need a decision.",
        )
    elif decisions:
        kind, text = "open", f"Nothing blocks the port, and {decisions} places need a decision."
    else:
        kind, text = "good", "Nothing blocks the port, and nothing needs a decision."
    return f'<p class="verdict {kind}">{text}</p>'


def _numbers(summary: dict[str, Any]) -> str:
    words = {
        "files": "files",
        "automatic": "safe changes",
        "review": "changes to review",
        "decisions": "decisions",
        "blockers": "blockers",
    }
    items = [f"<li><b>{int(summary.get(key, 0))}</b>{word}</li>" for key, word in words.items()]
    if "effort_hours" in summary:
        low, high = summary["effort_hours"]
        items.append(f"<li><b>{low:g} to {high:g} h</b>estimated by hand</li>")
    return f"<ul class=numbers>{''.join(items)}</ul>"


def _next(command: str, root: str, summary: dict[str, Any]) -> str:
    path = escape(root)
    steps = (
        [f"torchport convert {path} -o {path}_npu"] if command == "analyze" else [f"torchport port {path}"]
    )
    if summary.get("decisions") or summary.get("blockers"):
        steps.append("torchport explain TP101")
    return "<p>Next: " + ", ".join(f"<code>{step}</code>" for step in steps) + "</p>"


def _findings(findings: Iterable[Finding]) -> str:
    rows = []
    for path, group in groupby(
        findings, key=lambda finding: finding.location.path if finding.location else ""
    ):
        for finding in group:
            where = finding.location
            word = "done" if finding.fix else finding.severity.value
            word = "review" if finding.fix and finding.safety is Safety.REVIEW else word
            quiet = bool(finding.fix) and finding.severity is Severity.INFO and finding.safety is Safety.SAFE
            hint = f"<div class=hint>{escape(finding.hint)}</div>" if finding.hint and not quiet else ""
            source = escape(str(finding.evidence.get("source", "")))[:300]
            place = f"{where.line}:{where.column}" if where else ""
            rows.append(
                f"<tr><td><span class='word {word}'>{word}</span></td><td>{escape(finding.code)}</td>"
                f"<td>{escape(path)}:{place}</td><td>{escape(finding.message)}{hint}"
                + (f"<div><code>{source}</code></div>" if source else "")
                + "</td></tr>"
            )
    if not rows:
        return "<h2>Findings</h2><p>None.</p>"
    head = "<thead><tr><th></th><th>Rule</th><th>Place</th><th>What</th></tr></thead>"
    return (
        f"<h2>Findings ({len(rows)})</h2><input id=filter placeholder='filter by any word' aria-label=filter>"
        f"<table id=findings>{head}<tbody>{''.join(rows)}</tbody></table>"
    )


def _residue(residue: dict[str, Any]) -> str:
    mentions = residue.get("mentions", [])
    if not mentions:
        return ""
    counts = ", ".join(f"{int(count)} {escape(kind)}" for kind, count in residue["counts"].items() if count)
    rows = [
        f"<tr><td>{escape(str(one['is']))}</td><td>{escape(str(one['path']))}:{int(one['line'])}</td>"
        f"<td><code>{escape(str(one['word']))}</code></td></tr>"
        for one in mentions
    ]
    return (
        f"<h2>What still says CUDA ({len(mentions)})</h2><p>{counts}</p>"
        f"<details><summary>all places</summary><table>{''.join(rows)}</table></details>"
    )


def _diff(diff: str) -> str:
    if not diff:
        return ""
    return f"<h2>Changes</h2><table class=diff>{''.join(_diff_rows(diff.splitlines()))}</table>"


def _diff_rows(lines: list[str]) -> Iterator[str]:
    """Rows with the old line left and the new one right; removed and added lines of a block face each other."""
    removed: list[str] = []
    added: list[str] = []
    for line in [*lines, ""]:
        if line.startswith("-") and not line.startswith("--- "):
            removed.append(line[1:])
            continue
        if line.startswith("+") and not line.startswith("+++ "):
            added.append(line[1:])
            continue
        for old, new in zip_longest(removed, added):
            yield f"<tr>{_cell(old, 'del')}{_cell(new, 'add')}</tr>"
        removed, added = [], []
        if line.startswith("+++ "):
            yield f"<tr><th colspan=2>{escape(line[6:])}</th></tr>"
        elif found := _HUNK.match(line):
            yield f"<tr class=hunk><td>line {found[1]}</td><td>line {found[2]}</td></tr>"
        elif line.startswith(" "):
            yield f"<tr>{_cell(line[1:], '')}{_cell(line[1:], '')}</tr>"


def _cell(text: str | None, kind: str) -> str:
    return "<td></td>" if text is None else f"<td class='{kind}'>{escape(text)}</td>"
