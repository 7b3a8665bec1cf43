"""Say whether a CUDA script or project can be ported, and what is in the way.

examples:
  torchport analyze train.py
  torchport analyze project/ --json > analysis.json

Every use of CUDA is listed with what becomes of it: done by `torchport convert`, done but to be reviewed, a decision
for you, or a blocker. Nothing of the project is imported or run. The exit code is 1 where something is left to do.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from torchport.analyze import analyze_tree
from torchport.cli.convert import exit_code
from torchport.findings import write_atomically
from torchport.report import render
from torchport.report.html import page
from torchport.report.sarif import sarif
from torchport.rules.catalogue import catalogue


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", type=Path, metavar="PATH", help="script or folder")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="store the result as JSON here")
    parser.add_argument("--html", type=Path, metavar="FILE", help="store a report as one HTML file here")
    parser.add_argument("--sarif", type=Path, metavar="FILE", help="store the findings as SARIF here")


def run(arguments: argparse.Namespace) -> int:
    result = analyze_tree(arguments.path)
    if arguments.output:
        result.write(arguments.output)
    if arguments.html:
        write_atomically(arguments.html, page(result).encode("utf-8", "backslashreplace"))
    if arguments.sarif:
        titles = {code: entry.title for code, entry in catalogue().items()}
        write_atomically(arguments.sarif, sarif(result.findings, titles).encode())
    if arguments.json:
        print(result.text(), end="")
    elif not arguments.quiet:
        summary = result.data["summary"]
        print(
            render(result.findings)
            + f"{summary['files']} files: {summary['automatic']} changes are automatic, "
            + f"{summary['review']} automatic but to be reviewed, {summary['decisions']} are decisions for you, "
            + f"{summary['blockers']} block the port"
        )
    return exit_code(result)
