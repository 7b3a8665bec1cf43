"""Run a CUDA script on the NPU of this machine, real or virtual, without touching it.

examples:
  torchport run train.py --epochs 1
  torchport run -m package.train --epochs 1      as `python -m` runs it
  torchport run notebook.ipynb                   the code cells, one after the other
  cat train.py | torchport run -
  torchport run --nproc 4 train.py               one process per NPU, as torchrun starts them
  torchport run --nproc auto --device-list 2,3 train.py       on these NPUs
  torchport run -- torchrun --nproc-per-node 2 train.py       a command line as it is: torchrun, accelerate launch,
  torchport run -- bash train.sh                              deepspeed, python, a shell script
  torchport run --audit audit.jsonl train.py     write down each redirected call
  torchport run --as-is train_npu.py             a script that knows the NPU: nothing is redirected
  torchport run train.py -- --audit x            behind `--` all words are the script's

Behind SCRIPT, options of torchport's stay torchport's, and all other words go to the script; one that both know is
refused. A launcher (torchrun, accelerate, deepspeed) is that of the environment in which torchport is installed.

CUDA calls are redirected while the script runs (`torchport.auto`). At its end stderr says what was redirected, what ran
on the CPU and what could not be done; -q leaves that out. Ends with the script's own exit status, or with torchrun's.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path
from typing import NoReturn

from torchport import startup, vnpu
from torchport.errors import TorchportError
from torchport.launch import STANDALONE, add_target, launch_of

PASSES_ARGUMENTS = True
VISIBLE = "ASCEND_RT_VISIBLE_DEVICES"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "torchport run [options] {SCRIPT | -m MODULE} [ARGS]  or  torchport run [options] -- COMMAND"
    )
    add_target(parser)
    parser.add_argument(
        "--audit", type=Path, metavar="FILE", help="write what was done to each call, as JSON lines"
    )
    parser.add_argument(
        "--as-is", action="store_true", help="redirect nothing: the script asks for the NPU itself"
    )
    several = parser.add_argument_group("several processes, one per NPU")
    several.add_argument(
        "--nproc",
        type=_processes,
        metavar="N",
        help="processes on this machine; auto: one per NPU of --device-list",
    )
    several.add_argument(
        "--device-list",
        type=_devices,
        metavar="0,1,...",
        help="the NPUs that the script sees: its process i gets the i-th of them in ascending order",
    )
    several.add_argument("--nnodes", type=_positive, default=1, metavar="N", help="machines (default 1)")
    several.add_argument(
        "--node-rank", type=int, default=0, metavar="I", help="which of them this is, from 0"
    )
    several.add_argument("--master-addr", default="127.0.0.1", metavar="HOST", help="address of machine 0")
    several.add_argument(
        "--master-port", type=int, metavar="PORT", help="a free port there (default: any, or 29500)"
    )


def run(arguments: argparse.Namespace) -> NoReturn:
    if arguments.json:
        raise TorchportError(
            "--json has nothing to print: stdout is the script's own",
            hint="--audit FILE writes what was done to each call, as JSON lines.",
        )
    devices = arguments.device_list or []
    launch = launch_of(arguments, nproc=_nproc(arguments, devices), where=_where(arguments))
    environment = {**os.environ, **dict(launch.variables)}
    environment.update(vnpu.environment())
    if devices:
        environment[VISIBLE] = ",".join(map(str, devices))
    environment.update(_patching(arguments, environment.get("PYTHONPATH", "")))
    program = shutil.which(launch.command[0], path=environment.get("PATH")) or launch.command[0]
    sys.stdout.flush()
    # This process becomes the script: its exit status, signals and standard streams are the script's own.
    os.execve(program, list(launch.command), environment)  # noqa: S606


def _nproc(arguments: argparse.Namespace, devices: list[int]) -> int | None:
    """How many processes torchrun is to start; None where it is not needed."""
    processes: int | None = arguments.nproc
    if processes == 0:
        processes = len(devices)
        if not devices:
            raise TorchportError("--nproc auto needs a --device-list to count", hint="Or give a number.")
    if devices and processes is not None and processes > len(devices):
        raise TorchportError(
            f"{processes} processes cannot share the {len(devices)} NPUs of --device-list",
            hint="Each needs its own.",
        )
    return 1 if processes is None and arguments.nnodes > 1 else processes


def _where(arguments: argparse.Namespace) -> tuple[str, ...]:
    """How the processes find each other, as options of torchrun's."""
    if arguments.nnodes == 1 and arguments.master_port is None:
        return STANDALONE
    return (
        f"--nnodes={arguments.nnodes}",
        f"--node-rank={arguments.node_rank}",
        f"--master-addr={arguments.master_addr}",
        f"--master-port={arguments.master_port or 29500}",
    )


def _patching(arguments: argparse.Namespace, python_path: str) -> dict[str, str]:
    if arguments.as_is:
        if arguments.audit:
            raise TorchportError(
                "--as-is redirects nothing that --audit could write down", hint="Drop one of them."
            )
        return {"TORCHPORT_AUTO": "0"}
    changes = {"TORCHPORT_AUTO": "1"}
    inherited = [path for path in python_path.split(os.pathsep) if path and path != startup.FOLDER]
    changes["PYTHONPATH"] = os.pathsep.join([startup.FOLDER, *inherited])
    if arguments.quiet:
        changes["TORCHPORT_SUMMARY"] = "0"
    if arguments.audit:
        try:
            arguments.audit.write_text("")
        except OSError as error:
            raise TorchportError(
                f"the audit file {arguments.audit} cannot be written: {error.strerror}"
            ) from error
        changes["TORCHPORT_AUDIT"] = str(arguments.audit.resolve())
    return changes


def _processes(word: str) -> int:
    return 0 if word == "auto" else _positive(word)


def _positive(word: str) -> int:
    if not word.isdecimal() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"{word} is no number of processes: 1 or more")
    return int(word)


def _devices(word: str) -> list[int]:
    """Ascending, as the porting guide's map from processes to devices has them and as the NPU's driver insists."""
    parts = word.split(",")
    if not all(part.isdecimal() for part in parts) or len(set(map(int, parts))) < len(parts):
        raise argparse.ArgumentTypeError(f"{word} is no list of different device numbers")
    return sorted(map(int, parts))
