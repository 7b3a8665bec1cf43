"""Fail where a project uses CUDA in a way that does not run on an NPU: for CI.

examples:
  torchport check .
  torchport check src/ --sarif findings.sarif
  torchport check . --strict                   also fail where `torchport convert` would change something

Prints only what keeps the project from running on an NPU. Switch a line off with `# torchport: ignore[TP101]`, codes
and paths for the whole project in pyproject.toml:

  [tool.torchport]
  ignore = ["TP604"]
  exclude = ["third_party/*"]
"""

from __future__ import annotations

import argparse
import fnmatch
import tomllib
from pathlib import Path
from typing import Any

from torchport.analyze import analyze_tree
from torchport.errors import TorchportError
from torchport.findings import Finding, Result, Severity, write_atomically
from torchport.report import render
from torchport.report.sarif import sarif
from torchport.rules.catalogue import catalogue


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "path", type=Path, nargs="?", default=Path(), metavar="PATH", help="script or folder (default: .)"
    )
    parser.add_argument("--strict", action="store_true", help="fail on what convert would change, too")
    parser.add_argument("--sarif", type=Path, metavar="FILE", help="store the findings as SARIF here")


def run(arguments: argparse.Namespace) -> int:
    settings = _settings(arguments.path)
    result = analyze_tree(arguments.path)
    findings = [finding for finding in result.findings if _counts(finding, settings, arguments.strict)]
    if arguments.sarif:
        titles = {code: entry.title for code, entry in catalogue().items()}
        write_atomically(arguments.sarif, sarif(findings, titles).encode())
    if arguments.json:
        print(Result("check", tuple(findings), {"root": str(arguments.path)}, result.inputs).text(), end="")
    elif not arguments.quiet:
        print(
            render(findings) + (f"{len(findings)} findings" if findings else "nothing in the way of an NPU")
        )
    return 1 if findings else 0


def _counts(finding: Finding, settings: dict[str, list[str]], strict: bool) -> bool:
    if finding.code in settings["ignore"]:
        return False
    path = finding.location.path if finding.location else ""
    if any(fnmatch.fnmatch(path, pattern) for pattern in settings["exclude"]):
        return False
    return (finding.severity is not Severity.INFO and not finding.fix) or (strict and bool(finding.fix))


def _settings(path: Path) -> dict[str, list[str]]:
    """`[tool.torchport]` of the nearest pyproject.toml at or above `path`."""
    settings: dict[str, list[str]] = {"ignore": [], "exclude": []}
    for folder in [path.resolve(), *path.resolve().parents]:
        file = folder / "pyproject.toml"
        if not file.is_file():
            continue
        try:
            table: dict[str, Any] = (
                tomllib.loads(file.read_text("utf-8")).get("tool", {}).get("torchport", {})
            )
        except ValueError as error:
            raise TorchportError(f"{file} is not TOML: {error}") from error
        if unknown := set(table) - set(settings):
            raise TorchportError(f"{file}: [tool.torchport] has unknown keys {', '.join(sorted(unknown))}")
        return settings | table
    return settings
