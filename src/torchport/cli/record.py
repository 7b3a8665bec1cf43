"""Look into a recording: its steps, its operators, one of them as files.

examples:
  torchport record show npu/                                steps, sizes, what is missing
  torchport record show npu/ --step 3                       the operators of a step with their statistics
  torchport record text npu/ --step 3 > npu.txt             the same for diff: nothing in it that changes by chance
  torchport record extract npu/ --step 3 --op convolution:4 -o case/       that call's arguments, inputs and outputs
  torchport record overflow npu/                            the first NaN, infinity or saturated tensor of each step
  torchport record invariants npu/                          what the training does wrong by itself
  torchport record import dump/20261123/0 -o dumped/        CANN's dump files (aclmdlSetDump) as a recording

`torchport run --record DIR` makes one. The fourth convolution is convolution:3: calls are counted from 0. A case has
call.json and a .npy for each tensor; it needs a recording with contents (--level tensor). Needs h5py and numpy, no
torch, but for import. Exit code 1: overflow or invariants has found some. 2: damaged, with the file and the place.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any

from torchport.errors import TorchportError
from torchport.report import render_invariants
from torchport.report.wording import format_count

ACTIONS = ("show", "text", "extract", "overflow", "invariants", "import")
NEEDS = {
    "show": (),
    "text": ("step",),
    "extract": ("step", "op", "output"),
    "overflow": (),
    "invariants": (),
    "import": ("output",),
}
TAKES = {
    "show": ("step", "rank"),
    "text": ("step", "rank"),
    "extract": ("step", "rank", "op", "output"),
    "overflow": ("step",),
    "invariants": (),
    "import": ("output",),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `torchport record`."""
    parser.add_argument("action", choices=ACTIONS, help="what to do; see above")
    parser.add_argument("recording", type=Path, metavar="DIR", help="a recording; for import a folder of dump files")
    parser.add_argument("--step", type=int, metavar="N", help="of this step, from 0")
    parser.add_argument("--rank", type=int, metavar="R", help="of this rank (default: 0)")
    parser.add_argument("--op", metavar="NAME[:I]", help="the I-th call of this operator in the step")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="a folder that is new or empty")


def run_command(arguments: argparse.Namespace) -> int:
    """Do what `arguments.action` names."""
    action = arguments.action
    for name in ("step", "rank", "op", "output"):
        given, option = getattr(arguments, name) is not None, "-o" if name == "output" else f"--{name}"
        if given and name not in TAKES[action]:
            raise TorchportError(f"{action} takes no {option}")
        if not given and name in NEEDS[action]:
            raise TorchportError(f"{action} needs {option}", hint=f"torchport record {action} --help has an example.")
    if action == "invariants":
        return _invariants(arguments)
    # Here: these need numpy, which not every command's user has.
    from torchport.record.operators import cases, dumps, listing

    if action == "import":
        # torch reads the dumps on the host: a backend that loads itself would need CANN.
        os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
        made = dumps.convert_dumps(arguments.recording, arguments.output)
        print(f"torchport record: {format_count(made, 'operator')} in {arguments.output}", file=sys.stderr)
        return 0
    if action == "overflow":
        return _overflow(arguments)
    rank = arguments.rank or 0
    if action == "extract":
        case = cases.extract_call(arguments.recording, arguments.step, rank, arguments.op, arguments.output)
        _say(arguments, case, [f"{case['name']} of step {arguments.step} is in {arguments.output}"])
        return 0
    if arguments.step is None:
        shown = listing.build_overview(arguments.recording)
        _say(arguments, shown, listing.overview_lines(shown))
        return 2 if shown["damaged"] else 0
    calls = listing.read_calls(arguments.recording, arguments.step, rank)
    if arguments.json:
        print(json.dumps(list(calls)))
        return 0
    for call in calls:
        for line in listing.call_lines(call, numbers=action == "show"):
            print(line)
    return 0


def _invariants(arguments: argparse.Namespace) -> int:
    from torchport.compare.invariants import judge_invariants
    from torchport.record.recording import Recording

    result = judge_invariants(Recording.from_directory(arguments.recording))
    print(result.text() if arguments.json else render_invariants(result), end="")
    return 1 if result.findings else 0


def _overflow(arguments: argparse.Namespace) -> int:
    from torchport.record.operators.listing import open_recording
    from torchport.record.operators.overflow import find_overflows

    recorded = open_recording(arguments.recording)
    found = list(find_overflows(recorded, None if arguments.step is None else [arguments.step]))
    flags = [event["step"] for event in recorded.recording.of_kind("overflowed")]
    lines = [one.sentence for one in found]
    lines += [
        f"step {step}: the NPU's overflow flag is up, which has the largest number for infinity" for step in flags
    ]
    data = {"overflows": [dataclasses.asdict(one) for one in found], "flags": flags}
    _say(arguments, data, lines or ["every result is a number, or was asked not to be"])
    return 1 if flags or not all(one.handled for one in found) else 0


def _say(arguments: argparse.Namespace, data: Any, lines: list[str]) -> None:
    for line in [json.dumps(data)] if arguments.json else lines:
        print(line)
