"""Findings as SARIF 2.1.0, which code hosts show beside the code (docs.oasis-open.org/sarif/sarif/v2.1.0)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from torchport import __version__
from torchport.findings import Finding, Safety, Severity

_LEVEL = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


def render_sarif(findings: Iterable[Finding], titles: Mapping[str, str] | None = None) -> str:
    """One run with all findings; `titles` gives the short description of each rule code."""
    found = list(findings)
    codes = sorted({finding.code for finding in found})
    rules = [{"id": code, "shortDescription": {"text": (titles or {}).get(code, code)}} for code in codes]
    run = {
        "tool": {"driver": {"name": "torchport", "version": __version__, "rules": rules}},
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding, codes.index(finding.code)) for finding in found],
    }
    document = {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}
    return json.dumps(document, indent=1) + "\n"


def _result(finding: Finding, index: int) -> dict[str, Any]:
    text = finding.message + (f"\n{finding.hint}" if finding.hint else "")
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": index,
        "level": _LEVEL[finding.severity],
        "message": {"text": text},
        "properties": {"automatic": bool(finding.fix) and finding.safety is not Safety.REPORT},
    }
    where = finding.location
    if where is not None:
        region = {
            "startLine": where.line,
            "startColumn": where.column,
            "endLine": where.end_line,
            "endColumn": where.end_column,
        }
        artifact = {"uri": quote(where.path, errors="surrogateescape")}
        result["locations"] = [{"physicalLocation": {"artifactLocation": artifact, "region": region}}]
    return result
