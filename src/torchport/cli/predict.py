"""Predict what a training script costs on a chip: memory, milliseconds a step, throughput, and what bounds it.

examples:
  torchport predict train.py --soc Ascend910B3 -- --batch-size 256
  torchport predict train.py --soc Ascend910B3 --nproc 8 -- --batch-size 256     one card and eight
  torchport predict --as-is train_npu.py          a script that knows the NPU: nothing is redirected
  torchport predict -m package.train --json       for programs
  torchport predict train.py --html report.html   with the memory over a step and the timeline

The script runs unmodified on the virtual NPU in dry mode: every operator is checked and memory is allocated by
torch_npu's own allocator, but no kernel runs, so a model of the chip's size needs none of this machine's memory. Values
of the device are zero; lines that read them are listed. Times are those of the chip's time model; what stands behind
them is said with each.

Exit code 0: it fits, on N cards where --nproc asks for them. 1: memory is out, or the script failed. 2: nothing to
predict.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import sys
import time
from pathlib import Path

from torchport import startup, vnpu
from torchport.errors import TorchportError, name_path_in_errors
from torchport.findings import write_atomically
from torchport.launch import add_target, launch_of
from torchport.predict import Plan, predict_plan
from torchport.record.operators.wanted import size_of
from torchport.report import render_prediction
from torchport.vnpu import chips

PASSES_ARGUMENTS = True
PATIENCE = 2.0  # seconds without a word


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `torchport predict`."""
    add_target(parser)
    parser.add_argument("--soc", metavar="NAME", help=f"the chip (default: VNPU_SOC or {chips.DEFAULT})")
    parser.add_argument("--nproc", type=_positive, metavar="N", help="also as N ranks, one per NPU")
    parser.add_argument("--steps", type=_positive, default=3, metavar="N", help="steps to run (default: 3)")
    parser.add_argument(
        "--limit", type=float, default=300.0, metavar="SECONDS", help="for each run of the script (default: 300)"
    )
    parser.add_argument(
        "--host-memory",
        type=_amount,
        default=0,
        metavar="SIZE",
        help="end a run that takes more of this machine's memory, such as 16GiB (default: when there is no more)",
    )
    parser.add_argument("--as-is", action="store_true", help="redirect nothing: the script asks for the NPU itself")
    parser.add_argument("--no-tries", action="store_true", help="where memory is out, do not try what would fit")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a report")


def run_command(arguments: argparse.Namespace) -> int:
    """Predict, print, and answer 0 where it fits, else 1."""
    soc, _ = chips.select_chip({**os.environ, "VNPU_SOC": arguments.soc} if arguments.soc else None)
    if vnpu.detect({**os.environ, "TORCHPORT_BACKEND": "vnpu"}).kind is not vnpu.Kind.VNPU:
        raise TorchportError("the virtual NPU is not built, which runs the script", hint="`make setup` builds it.")
    if arguments.html is not None:
        with name_path_in_errors(arguments.html):
            arguments.html.resolve().parent.stat()
            if arguments.html.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(arguments.html))
    launch = launch_of(arguments, nproc=None)
    several = launch_of(arguments, nproc=arguments.nproc) if (arguments.nproc or 1) > 1 else None
    environment = {**os.environ, **dict(launch.variables), "TORCHPORT_BACKEND": "vnpu", "VNPU_SOC": soc}
    environment.update(vnpu.environment(environment))
    environment["PYTHONPATH"] = startup.prepend_start_folder(environment.get("PYTHONPATH", ""))
    environment["TORCHPORT_AUTO"] = "0" if arguments.as_is else "1"
    environment["TORCHPORT_SUMMARY"] = "0"
    plan = Plan(launch, environment, soc, arguments.steps, arguments.limit, arguments.host_memory)
    began = time.monotonic()

    def say(text: str) -> None:
        if not arguments.quiet and time.monotonic() - began > PATIENCE:
            print(f"torchport predict: {text}", file=sys.stderr)

    found = predict_plan(plan, several, tries=not arguments.no_tries, say=say)
    if arguments.json:
        json.dump(found.to_json(), sys.stdout)
        print()
    else:
        print(render_prediction(found))
    if arguments.html is not None:  # last: where it cannot be written, what was found is not lost
        from torchport.report.html.prediction import render_prediction_page

        write_atomically(arguments.html, render_prediction_page(found).encode())
    return 0 if found.fits else 1


def _positive(word: str) -> int:
    if not word.isdecimal() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"{word} is no number: 1 or more")
    return int(word)


def _amount(word: str) -> int:
    try:
        return size_of(word)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{word} is no amount of memory: write for example 16GiB") from None
