"""What still says CUDA after a conversion."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from torchport.findings import Result

_MEANINGS = {
    "blocker": "will not run; a finding says why",
    "decision": "a finding asks you",
    "kept": "known, and harmless on an NPU",
    "name": "a name or word of the project's own",
    "prose": "a comment, a docstring, a message",
}


def render_residue_section(result: Result[Any]) -> str:
    """Every mention, by what it means; the places folded away. Empty for a result that judges runs."""
    mentions = result.data.get("residue", {}).get("mentions", []) if isinstance(result.data, Mapping) else []
    if not mentions:
        return ""
    parts = []
    for kind in dict.fromkeys([*_MEANINGS, *(str(mention["is"]) for mention in mentions)]):
        some = [mention for mention in mentions if str(mention["is"]) == kind]
        if some:
            places = "".join(
                f"<tr><td>{escape(str(one['path']))}:{int(one['line'])}</td><td><code>{escape(str(one['word']))}</code></td>"
                f"<td>{escape(str(one.get('proof', '')))}</td></tr>"
                for one in some
            )
            summary = f"{len(some)} {escape(kind)}<span class=hint> {_MEANINGS.get(kind, '')}</span>"
            parts.append(f"<details><summary>{summary}</summary><table class=list>{places}</table></details>")
    return f"<section><h2>What still says CUDA ({len(mentions)})</h2>{''.join(parts)}</section>"
