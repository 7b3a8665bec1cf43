"""Judge two recordings of one script: does the second compute what the first computes?

examples:
  torchport compare torchport-out/train/reference torchport-out/train/npu
  torchport compare A B --json > comparison.json

Answers in the words of `torchport port`, which leaves such recordings. Losses are compared step by step, in fp32 to
1e-4 relative for the first 50 steps and to 1e-2 over the run; statistically where the runs draw random numbers on the
device (dropout). Needs no torch. Exit code 0: holds. 1: does not hold. 4: undecided, with what would decide it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from torchport.cli import UNDECIDED
from torchport.compare import compare
from torchport.findings import write_atomically
from torchport.record.recording import Recording
from torchport.report import render_compare
from torchport.report.html import page

EXIT = {"holds": 0, "does not hold": 1}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("reference", type=Path, metavar="A", help="recording of the original")
    parser.add_argument("port", type=Path, metavar="B", help="recording of the port")
    parser.add_argument("--html", type=Path, metavar="FILE", help="store a report as one HTML file here")


def run(arguments: argparse.Namespace) -> int:
    result = compare(Recording.read(arguments.reference), Recording.read(arguments.port))
    if arguments.html:
        write_atomically(arguments.html, page(result).encode("utf-8", "backslashreplace"))
    if arguments.json:
        print(result.text(), end="")
    elif not arguments.quiet:
        print(render_compare(result), end="")
    return EXIT.get(result.data["verdict"], UNDECIDED)
