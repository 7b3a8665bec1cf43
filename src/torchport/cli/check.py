"""Fail where a project uses CUDA in a way that does not run on an NPU: for CI.

examples:
  torchport check .
  torchport check src/ --sarif findings.sarif
  torchport check . --strict                   also fail where `torchport convert` would change something

Prints only what keeps the project from running on an NPU. Switch a line off with `# torchport: ignore[TP101]`, codes
and paths for the whole project in its pyproject.toml, which every command honours:

  [tool.torchport]
  ignore = ["TP604"]              neither reported nor acted on
  exclude = ["third_party/*"]     left as they are; paths are seen from the folder of pyproject.toml
"""

from __future__ import annotations

import argparse
from pathlib import Path

from torchport.analyze import analyze_tree
from torchport.convert.project import is_part
from torchport.findings import Finding, Result, Severity, write_atomically
from torchport.report import render_findings
from torchport.report.sarif import render_sarif
from torchport.report.verdict import describe_npu_path
from torchport.report.wording import format_count
from torchport.rules.catalogue import build_catalogue


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "path", type=Path, nargs="?", default=Path(), metavar="PATH", help="script or folder (default: .)"
    )
    parser.add_argument("--strict", action="store_true", help="fail on what convert would change, too")
    parser.add_argument("--sarif", type=Path, metavar="FILE", help="store the findings as SARIF here")


def run_command(arguments: argparse.Namespace) -> int:
    result = analyze_tree(arguments.path)
    findings = [finding for finding in result.findings if _counts(finding, arguments.strict)]
    if arguments.sarif:
        titles = {code: entry.title for code, entry in build_catalogue().items()}
        write_atomically(arguments.sarif, render_sarif(findings, titles).encode())
    if arguments.json:
        print(Result("check", tuple(findings), {"root": str(arguments.path)}, result.inputs).text(), end="")
    elif not arguments.quiet:
        known = describe_npu_path(result.data["summary"])
        print(
            known
            + render_findings(findings)
            + (format_count(len(findings), "finding") if findings else "nothing in the way of an NPU")
        )
    return 1 if findings else 0


def _counts(finding: Finding, strict: bool) -> bool:
    if is_part(finding):
        return False
    return (finding.severity is not Severity.INFO and not finding.fix) or (strict and bool(finding.fix))
