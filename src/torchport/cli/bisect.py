"""Find the operator that takes a training away from its reference: run it again with operators computed by the CPU.

examples:
  torchport bisect train.py --epochs 1
  torchport bisect --reference gpu train.py      the reference is a recording (`torchport run --record gpu`)
  torchport bisect --steps 20 train.py           where the losses part later
  torchport bisect -- torchrun --nproc-per-node 2 train.py

The script runs on the CPU, then on the NPU, then on the NPU with all operators computed by the CPU, then with half of
them, and so on: with n operators about log2(n) + 4 runs, each ended after --steps steps. Names are proven by a run with
that operator alone. It says so where the losses do not part, where they part with every operator on the CPU as well
(weights, data, random numbers: `torchport compare`), and where no single operator explains it.

Exit code 0: the loss follows the reference. 1: an operator is named. 4: no single operator explains it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from torchport import startup, vnpu
from torchport.cli import UNDECIDED
from torchport.compare import halving
from torchport.launch import Launch, add_target, launch_of

PASSES_ARGUMENTS = True
STEPS = 4
EXIT = {halving.FOLLOWS: 0, halving.FOUND: 1}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `torchport bisect`."""
    add_target(parser)
    parser.add_argument("--reference", type=Path, metavar="REC", help="a recording in place of the run on the CPU")
    parser.add_argument(
        "--steps", type=_positive, default=STEPS, metavar="N", help=f"end each run after N steps (default {STEPS})"
    )
    parser.add_argument("--timeout", type=float, metavar="S", help="stop a run after this many seconds")


def run_command(arguments: argparse.Namespace) -> int:
    """Run the script until an operator is named, or cannot be."""
    from torchport.port import Plan
    from torchport.port.bisect import PHASES, bisect_plan
    from torchport.port.progress import Progress
    from torchport.report.bisect import render_bisect

    launch = launch_of(arguments, nproc=None)
    plan = Plan(launch, Path.cwd(), Path.cwd(), timeout=arguments.timeout, steps=arguments.steps)
    progress = Progress(sys.stderr, PHASES, arguments.quiet)
    try:
        found = bisect_plan(plan, _environments(launch), progress, arguments.reference)
    finally:
        progress.stop()
    data: dict[str, Any] = found.to_json()
    print(json.dumps(data) if arguments.json else render_bisect(data), end="\n" if arguments.json else "")
    return EXIT.get(data["outcome"], UNDECIDED)


def _environments(launch: Launch) -> dict[str, dict[str, str]]:
    """The variables of a run on the CPU, as it is, and of one on the NPU, to which CUDA calls are redirected."""
    from torchport.record import reference

    given = {**os.environ, **dict(launch.variables)}
    npu = {**given, **vnpu.environment(given)}
    cpu = reference.make_reference_environment(given, launch.processes or 1)
    path = given.get("PYTHONPATH", "")
    return {
        "cpu": {
            **cpu,
            "PYTHONPATH": startup.prepend_start_folder(path),
            "TORCHPORT_AUTO": "0",
            "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        },
        "npu": {
            **npu,
            "PYTHONPATH": startup.prepend_start_folder(path),
            "TORCHPORT_AUTO": "1",
            "TORCHPORT_SUMMARY": "0",
            "TORCHPORT_FAILURES": "1",
        },
    }


def _positive(word: str) -> int:
    if not word.isdecimal() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"{word} is no number of steps: 1 or more")
    return int(word)
