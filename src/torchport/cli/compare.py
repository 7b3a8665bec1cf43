"""Judge two recordings of one script: does the second compute what the first computes?

examples:
  torchport compare torchport-out/train/reference torchport-out/train/npu
  torchport compare A B --json > comparison.json

A recording is a folder that `torchport port` leaves. Losses are compared step by step, in fp32 to 1e-4
relative for the first 50 steps and to 1e-2 over the run; statistically where the runs draw random numbers on
the device (dropout). Needs no torch. Exit code 0: they agree. 1: they do not.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from torchport.compare import compare
from torchport.findings import write_atomically
from torchport.record.recording import Recording
from torchport.report import render, render_comparison
from torchport.report.html import page


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("reference", type=Path, metavar="A", help="recording of the original")
    parser.add_argument("port", type=Path, metavar="B", help="recording of the port")
    parser.add_argument("--html", type=Path, metavar="FILE", help="store a report as one HTML file here")


def run(arguments: argparse.Namespace) -> int:
    result = compare(Recording.read(arguments.reference), Recording.read(arguments.port))
    holds = bool(result.data["holds"])
    if arguments.html:
        write_atomically(arguments.html, page(result).encode("utf-8", "backslashreplace"))
    if arguments.json:
        print(result.text(), end="")
    elif not arguments.quiet:
        verdict = "the runs agree" if holds else "the runs do not agree"
        print(
            "\n".join(
                part for part in (render_comparison(result.data), render(result.findings), verdict) if part
            )
        )
    return 0 if holds else 1
