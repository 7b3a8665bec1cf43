"""Say whether a CUDA script or project can be ported, and what is in the way.

examples:
  torchport analyze train.py
  torchport analyze project/ --html report.html
  torchport analyze project/ --json > analysis.json
  torchport analyze train.py --run -- --epochs 1     run its first steps on the CPU, judge every operator

Every use of CUDA is listed with what becomes of it: done by `torchport convert`, done but to be reviewed, a decision
for you, or a blocker; and functions of torch that torch_npu computes on the CPU, refuses, or does not have. Code that
is too old for the torch of today, whatever the device, is counted by itself. Nothing of the project is imported or
run, but for --run. `[tool.torchport]` in its pyproject.toml leaves out codes and paths (`torchport check -h`). The
exit code is 1 where something is left to do.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

from torchport.analyze import analyze_run, analyze_tree
from torchport.cli.convert import exit_code
from torchport.convert.project import for_people
from torchport.errors import TorchportError
from torchport.findings import write_atomically
from torchport.report import render_findings, render_operators, render_verdict
from torchport.report.html import render_page
from torchport.report.sarif import render_sarif
from torchport.report.verdict import describe_npu_path
from torchport.rules.catalogue import build_catalogue

PASSES_ARGUMENTS = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "torchport analyze [options] PATH [-- ARGS]"
    parser.add_argument("path", type=Path, metavar="PATH", help="script or folder")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="store the result as JSON here")
    parser.add_argument("--html", type=Path, metavar="FILE", help="store a report as one HTML file here")
    parser.add_argument("--sarif", type=Path, metavar="FILE", help="store the findings as SARIF here")
    parser.add_argument("-v", "--verbose", action="store_true", help="list every note, and words that are no devices")
    parser.add_argument(
        "--run", action="store_true", help="run the script on the CPU, with ARGS, and judge its operators"
    )
    parser.add_argument(
        "--steps", type=_positive, default=3, metavar="N", help="end the run after N training steps (default: 3)"
    )


def run_command(arguments: argparse.Namespace) -> int:
    if arguments.passed and not arguments.run:
        words = " ".join(arguments.passed)
        raise TorchportError(f"arguments for a script that is not run: {words}", hint="Add --run.")
    if arguments.run:
        result = analyze_run(arguments.path, arguments.passed, arguments.steps)
    else:
        result = analyze_tree(arguments.path)
    said = for_people(result.findings, all_=arguments.verbose)
    if arguments.output:
        result.write(arguments.output)
    if arguments.html:
        write_atomically(
            arguments.html, render_page(dataclasses.replace(result, findings=said)).encode("utf-8", "backslashreplace")
        )
    if arguments.sarif:
        titles = {code: entry.title for code, entry in build_catalogue().items()}
        write_atomically(arguments.sarif, render_sarif(result.findings, titles).encode())
    if arguments.json:
        print(result.text(), end="")
    elif not arguments.quiet:
        operators = render_operators(result.data["operators"]) if arguments.run else ""
        print(
            describe_npu_path(result.data["summary"]) + render_findings(said) + operators + render_verdict(result),
            end="",
        )
    return exit_code(result)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number of steps, 1 or more")
    return int(text)
