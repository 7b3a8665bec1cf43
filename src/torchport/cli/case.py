"""Make a pytest file of one operator's call: against float64, on the CPU and the device, forward and backward.

examples:
  torchport case npu/ --step 3 --op convolution:4 -o case/       the fifth convolution of a recorded step
  torchport case --operator aten::gelu --input 4x32:float16:-5:5 -o case/
  torchport case --spec case.json -o case/                       {"operator": ..., "inputs": [...], "arguments": [...]}
  cd case && pytest                                              on the NPU where there is one; DEVICE=cpu pytest

A recorded call needs a recording with tensors (`torchport run --record DIR --level tensor`); its own results are judged
as well. `torchport compare` names the calls to look at. An input of a spec is SHAPE:DTYPE, perhaps with the lowest and
the highest number; the tensors are the same for the same spec. A conftest in the folder chooses the NPU of this machine
or the virtual one. The folder needs torch, numpy and pytest, and torchport
where the operator is one that the CPU lacks.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from torchport.errors import TorchportError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `torchport case`."""
    parser.add_argument("recording", nargs="?", type=Path, metavar="DIR", help="a recording with tensors")
    parser.add_argument("--step", type=int, metavar="N", help="of this step, from 0 (default: 0)")
    parser.add_argument("--rank", type=int, metavar="R", help="of this rank (default: 0)")
    parser.add_argument("--op", metavar="NAME[:I]", help="the I-th call of this operator in the step, from 0")
    parser.add_argument("--spec", type=Path, metavar="FILE", help="a case that nobody has recorded, as JSON")
    parser.add_argument("--operator", metavar="NAME", help='such as "aten::gelu", "aten::add.Tensor"')
    parser.add_argument(
        "--input", action="append", metavar="SHAPE:DTYPE[:LOW:HIGH]", help="one of its inputs: 4x32:float16:-5:5"
    )
    parser.add_argument("--arguments", metavar="JSON", help='its arguments, {"t": 0} for the first input')
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="DIR", help="a folder that is new or empty")


def run_command(arguments: argparse.Namespace) -> int:
    """Write the folder."""
    from torchport.compare import case  # needs numpy

    chosen = [
        name
        for name, value in (
            ("DIR", arguments.recording),
            ("--spec", arguments.spec),
            ("--operator", arguments.operator),
        )
        if value is not None
    ]
    if len(chosen) != 1:
        raise TorchportError(
            f"a case is of a recorded call or of a spec: {' and '.join(chosen) or 'nothing'} was given",
            hint="Give DIR with --op, or --spec FILE, or --operator NAME with --input.",
        )
    if arguments.recording is not None:
        if not arguments.op:
            raise TorchportError(
                "which call? --op NAME:I says so", hint="`torchport record show DIR --step N` lists them."
            )
        made = case.of_call(
            arguments.recording, arguments.step or 0, arguments.rank or 0, arguments.op, arguments.output
        )
    else:
        for name in ("op", "step", "rank"):
            if getattr(arguments, name) is not None:
                raise TorchportError(f"--{name} is for a recorded call", hint="Give DIR, or leave it out.")
        made = case.of_spec(_spec(arguments), arguments.output)
    if arguments.json:
        print(json.dumps(made))
    elif not arguments.quiet:
        print(f"torchport case: {made['name']} is in {arguments.output}; pytest there runs it", file=sys.stderr)
    return 0


def _spec(arguments: argparse.Namespace) -> Any:
    if arguments.spec is not None:
        return _json(arguments.spec.read_text(), str(arguments.spec))
    spec = {"operator": arguments.operator, "inputs": [_input(text) for text in arguments.input or ()]}
    if arguments.arguments:
        spec["arguments"] = _json(arguments.arguments, "--arguments")
    return spec


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise TorchportError(f"{where} is no JSON: {error}") from error


def _input(text: str) -> dict[str, Any]:
    shape, *rest = text.split(":")
    if len(rest) not in (1, 3):
        raise TorchportError(f"--input {text} is not SHAPE:DTYPE or SHAPE:DTYPE:LOW:HIGH", hint="4x32:float16:-5:5")
    try:
        made: dict[str, Any] = {"shape": [int(size) for size in shape.split("x") if size], "dtype": rest[0]}
        if len(rest) == 3:
            made["range"] = [float(rest[1]), float(rest[2])]
    except ValueError:
        raise TorchportError(f"--input {text}: {shape} is no shape, or the range is none") from None
    return made
