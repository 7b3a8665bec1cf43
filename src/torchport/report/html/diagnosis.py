"""The lines of a log that prove its diagnosis, and what to do."""

from __future__ import annotations

from html import escape

from torchport.findings import Result


def render_diagnosis_section(result: Result) -> str:
    """The proof, the fix and the command; nothing for other results and for logs without a failure."""
    if result.command != "diagnose" or result.data["answer"] not in ("cause", "unknown", "sick"):
        return ""
    first = result.findings[0]
    lines = "\n".join(f"{line['file']}:{line['line']}: {line['text']}" for line in first.evidence["proof"])
    parts = [f"<section id=proof><h2>What proves it</h2><pre>{escape(lines)}</pre>"]
    if first.hint:
        parts.append(f"<h2>What to do</h2><p>{escape(first.hint)}</p>")
    if first.evidence.get("official"):
        parts.append(f"<p>CANN says: {escape(first.evidence['official'])}</p>")
    if first.evidence.get("owner"):
        report = f"; report it to {first.evidence['report']}" if first.evidence["report"] else ""
        parts.append(f"<p>Owner: {escape(first.evidence['owner'] + report)}.</p>")
    parts += [f"<p>A guess: {escape(guess)}</p>" for guess in first.evidence.get("guesses", ())]
    if first.evidence.get("next"):
        parts.append(f"<p><code>{escape(first.evidence['next'])}</code></p>")
    return "".join(parts) + "</section>"
