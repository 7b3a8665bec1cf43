"""Port a CUDA training script to the NPU and prove that the port computes what the original computes.

examples:
  torchport port train.py --epochs 1 --batch-size 32
  torchport port --steps 50 train.py             end both runs after 50 steps
  torchport port -m pkg.train --epochs 1         as `python -m pkg.train`
  torchport port --nproc 2 train.py              as two ranks, each with an NPU of its own
  torchport port -- torchrun --nproc-per-node 2 train.py --lr 1     or accelerate launch, deepspeed, bash run.sh ...
  torchport port notebook.ipynb                  its code cells, in order
  torchport port PROJECT --main PROJECT/train.py convert the whole folder
  torchport port --reference gpu train.py        compare with a run on a GPU: `torchport run --record gpu train.py`
  torchport port train.py --from npu             run the port again, after editing it in OUT/convert/tree

Converts the script and the modules of yours that it imports, runs the original on the CPU and the port on npu:0 (a real
NPU, or the virtual one), both from the same weights and random numbers, and compares them step by step. A step is
an optimizer.step(); without one, a backward(); without one, a module call. Each run works in a copy of the current
folder: nothing in it changes. Words that torchport knows are its own, before and after SCRIPT; the others, and all
after `--`, are the script's. The original runs once more with rounding noise, which is the yardstick, and with three
small faults that are taken back (--no-control: without those). Without --steps, runs that are still going end once
every loss has 50 steps and a minute has passed.

The word, its exit code, and what it means:
  holds          0   the port ran on the NPU and computed what the original computes
  does not hold  1   it did not; the findings have the first step and quantity where the two part
  undecided      4   the original fails here, or this machine cannot tell; the reason, and what would decide it
The script's own exit status is in the report (OUT/report.html, OUT/result.json).
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from pathlib import Path

from torchport import vnpu
from torchport.cli import UNDECIDED
from torchport.cli.compare import TOLERANCE, parse_relative_tolerance
from torchport.errors import TorchportError
from torchport.launch import Launch, add_target, launch_of
from torchport.port import STEPS, Plan, run_port
from torchport.port.plan import REPORT
from torchport.port.progress import Progress
from torchport.report.port import render_port

PASSES_ARGUMENTS = True
EXIT = {"holds": 0, "does not hold": 1, "undecided": UNDECIDED}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="output folder (default: torchport-out/<script>, one per script)"
    )
    parser.add_argument("--steps", type=_count, metavar="N", help="end both runs after N steps")
    parser.add_argument(
        "--timeout", type=_seconds, metavar="S", help="stop a run after this many seconds and judge what there is"
    )
    parser.add_argument(
        "--reference",
        type=Path,
        metavar="REC",
        help="compare with this recording of the original, made by `torchport run --record`",
    )
    parser.add_argument("--nproc", type=_count, metavar="N", help="start the script as N ranks, as torchrun does")
    parser.add_argument(
        "--main", type=Path, metavar="SCRIPT", help="the script that trains, where a folder is given to be converted"
    )
    parser.add_argument(
        "--no-follow", action="store_true", help="convert the script alone, not the modules that it imports"
    )
    parser.add_argument(
        "--from", dest="start", choices=STEPS, default=STEPS[0], help="first step to do; earlier ones are kept"
    )
    parser.add_argument("--tolerance", type=parse_relative_tolerance, metavar="X", help=TOLERANCE)
    parser.add_argument(
        "--reordered",
        action="store_true",
        help="the virtual NPU adds in an order other than the CPU's, as every real device does (seed: 1)",
    )
    parser.add_argument(
        "--no-control",
        action="store_true",
        help="do not put small faults into a run of the original, to show that the comparison notices them",
    )
    parser.add_argument(
        "--no-operators",
        action="store_true",
        help="where the losses part, run nothing again to name the operator that is wrong first",
    )
    parser.add_argument("--force", action="store_true", help="overwrite a converted tree that was edited")


def run_command(arguments: argparse.Namespace) -> int:
    if arguments.reference is not None and arguments.steps is not None:
        raise TorchportError(
            "--steps cannot be given with --reference: the port does as many steps as the recording has",
            hint="`torchport run --record DIR --steps N` records N.",
        )
    project = None
    if arguments.main is not None:
        project, arguments.script = Path(arguments.script or "."), str(arguments.main)
    launch = launch_of(arguments, nproc=arguments.nproc, keep=_stdin_file(arguments))
    out = arguments.out or _default_out(launch)
    plan = Plan(
        launch,
        out.absolute(),
        Path.cwd(),
        timeout=arguments.timeout,
        steps=arguments.steps,
        start=arguments.start,
        follow=not arguments.no_follow,
        project=project,
        force=arguments.force,
        reference=None if arguments.reference is None else arguments.reference.resolve(),
        control=not arguments.no_control,
        operators=not arguments.no_operators,
        tolerance=arguments.tolerance,
        sum_order=vnpu.choose_sum_order(reordered=arguments.reordered),
    )
    result = run_port(plan, Progress(sys.stderr, STEPS, arguments.quiet))
    if arguments.json:
        print(result.text(), end="")
    elif not arguments.quiet:
        print(render_port(result, report=str(out / REPORT), port=result.data.port), end="")
    return EXIT[result.data.verdict]


def _stdin_file(arguments: argparse.Namespace) -> Path | None:
    """Where a script from stdin is kept: in the output folder, which the runs do not see."""
    if arguments.script != "-":
        return None
    return (arguments.out or Path("torchport-out", "stdin")) / "stdin.py"


def _default_out(launch: Launch) -> Path:
    """torchport-out/<script>, with a mark where the script is not in the current folder: a/train.py and b/train.py
    are two."""
    if launch.kind == "stdin":
        return Path("torchport-out", "stdin")
    if launch.script is None:
        name, rest = (
            Path(launch.command[1] if len(launch.command) > 1 else launch.command[0]).stem,
            " ".join(launch.command),
        )
    else:
        name, path = launch.script.stem, launch.script.resolve()
        rest = "" if path.parent == Path.cwd() else str(path)
        if (Path.cwd() / f"{name}.py").exists() and path.suffix != ".py":
            rest = str(path)  # train.ipynb beside train.py
    mark = f"-{hashlib.sha256(rest.encode()).hexdigest()[:6]}" if rest else ""
    return Path("torchport-out", f"{name}{mark}")


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds above 0")
    return value


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number above 0")
    return int(text)
