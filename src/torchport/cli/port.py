"""Port a CUDA training script to the NPU and prove that the port trains like the original.

examples:
  torchport port train.py --epochs 1 --batch-size 32
  torchport port --timeout 600 train.py --epochs 1
  torchport port train.py -- --out model.pt               an option that torchport knows too: behind `--` the script's
  torchport port --from npu train.py --epochs 1           do the last two steps again

Converts the script, trains the original on the CPU and the port on npu:0 (a real NPU, or the virtual one),
both from the same weights and random seeds, and compares the loss of each step. Give the script arguments
with which it trains for seconds or minutes. Each step's files are kept in the output folder, with report.html for
people and result.json for programs. Both runs happen in the current folder.

Exit code 0: the port holds. 1: it does not, or the script fails; the findings say where.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torchport.findings import Finding, Result, Severity
from torchport.port import STEPS, Plan, port
from torchport.port.plan import REPORT
from torchport.port.progress import Progress
from torchport.report import printable, render, render_comparison

PASSES_ARGUMENTS = True
MESSAGE_LINES = 8


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "torchport port [options] SCRIPT [ARGS]"
    parser.add_argument("script", type=Path, metavar="SCRIPT", help="the Python file that trains")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="output folder (default: torchport-out/<script name>)"
    )
    parser.add_argument(
        "--timeout", type=_seconds, metavar="S", help="stop a run after this many seconds (default: none)"
    )
    parser.add_argument(
        "--from",
        dest="start",
        choices=STEPS,
        default=STEPS[0],
        help="first step to do; earlier ones are kept",
    )


def run(arguments: argparse.Namespace) -> int:
    out = arguments.out or Path("torchport-out", arguments.script.stem)
    plan = Plan(arguments.script, tuple(arguments.passed), out, arguments.timeout, arguments.start)
    result = port(plan, Progress(sys.stderr, STEPS, arguments.quiet))
    if arguments.json:
        print(result.text(), end="")
    elif not arguments.quiet:
        print(_text(result, out), end="")
    return 0 if result.data["holds"] else 1


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds above 0")
    return value


def _text(result: Result, out: Path) -> str:
    data = result.data
    comparison = data["comparison"]
    parts = [
        render_comparison(comparison) if comparison else "",
        render(_shown(result.findings)),
        _messages(result),
    ]
    verdict = "the port holds" if data["holds"] else "the port does not hold"
    script = Path(data["script"])
    parts.append(f"{script.name}: {verdict}{_basis(data)}\n  {out / REPORT}\n")
    if data["holds"]:
        parts[-1] += f"  {out / 'convert' / 'tree' / script.name} is the port\n"
    return "\n" + "\n".join(part for part in parts if part)


def _shown(findings: tuple[Finding, ...]) -> list[Finding]:
    """What a person has to know; the diff shows what was converted."""
    return [
        finding
        for finding in findings
        if finding.severity is not Severity.INFO or finding.code.startswith("TP3")
    ]


def _messages(result: Result) -> str:
    """The last lines that a failing run wrote to stderr, without the marks below traceback lines."""
    width = shutil.get_terminal_size((100, 24)).columns - 5
    for finding in result.findings:
        lines = [line for line in finding.evidence.get("stderr", ()) if line.strip(" ^~")]
        if lines:
            shown = ("last lines on stderr:", *lines[-MESSAGE_LINES:])
            return "".join(f"  | {printable(line)[:width]}\n" for line in shown)
    return ""


def _basis(data: Mapping[str, Any]) -> str:
    comparison = data["comparison"]
    if not data["holds"]:
        return ""
    return f" ({comparison['steps']['port']} steps compared {comparison['method']}, {comparison['tolerance']['dtype']})"
