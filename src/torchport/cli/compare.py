"""Judge two recordings of one script: does the second compute what the first computes?

examples:
  torchport compare torchport-out/train/reference torchport-out/train/npu --control torchport-out/train/control
  torchport compare A B --json > comparison.json
  torchport compare A B --tolerance 1e-3

Answers in the words of `torchport port`, which leaves such recordings, as `torchport run --record` does. Losses,
gradients, updates and data are compared step by step. How far they may differ, the control run says: the original once
more with rounding noise. Without one, losses in fp32 are held to 1e-4 relative for 50 steps and to 1e-2 after them,
and it is not known which faults would be noticed. Needs no torch. Exit code 0: holds. 1: does not hold. 4: undecided,
with what would decide it.
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
TOLERANCE = (
    "relative difference allowed to every quantity, in place of what the original's own rounding allows"
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("reference", type=Path, metavar="A", help="recording of the original")
    parser.add_argument("port", type=Path, metavar="B", help="recording of the port")
    parser.add_argument(
        "--control",
        type=Path,
        metavar="C",
        help="recording of the original with noise: what rounding does to it",
    )
    parser.add_argument("--tolerance", type=relative, metavar="X", help=TOLERANCE)
    parser.add_argument("--html", type=Path, metavar="FILE", help="store a report as one HTML file here")


def run(arguments: argparse.Namespace) -> int:
    reference, port = Recording.read(arguments.reference), Recording.read(arguments.port)
    control = Recording.read(arguments.control) if arguments.control else None
    result = compare(reference, port, control=control, given=arguments.tolerance)
    if arguments.html:
        write_atomically(arguments.html, page(result).encode("utf-8", "backslashreplace"))
    if arguments.json:
        print(result.text(), end="")
    elif not arguments.quiet:
        print(render_compare(result), end="")
    return EXIT.get(result.data["verdict"], UNDECIDED)


def relative(text: str) -> float:
    """A relative tolerance."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a relative difference between 0 and 1")
    return value
