"""Run a CUDA script on the NPU of this machine, real or virtual, without touching it.

examples:
  torchport run train.py -- --epochs 1
  torchport run --nproc 4 train.py               one process per NPU, as torchrun starts them
  torchport run --nproc auto --device-list 2,3 train.py       on these NPUs
  torchport run --audit audit.jsonl train.py     write down each redirected call
  torchport run --as-is train_npu.py             a script that knows the NPU: nothing is redirected

CUDA calls are redirected while the script runs (`torchport.auto`). At its end stderr says what was redirected, what ran
on the CPU and what could not be done; -q leaves that out. Ends with the script's own exit status, or with torchrun's.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import NoReturn

import torchport
from torchport import vnpu
from torchport.errors import TorchportError

PASSES_ARGUMENTS = True
# Has a sitecustomize, which Python runs at its start.
START = Path(torchport.__file__).parent / "auto" / "start"
VISIBLE = "ASCEND_RT_VISIBLE_DEVICES"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "torchport run [options] SCRIPT [-- ARGS]"
    parser.add_argument("script", type=Path, metavar="SCRIPT", help="the Python file to run")
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
    if not arguments.script.is_file():
        raise TorchportError(
            f"there is no script {arguments.script}", hint="The script's own arguments follow after `--`."
        )
    environment = {**os.environ, **vnpu.environment()}
    if arguments.device_list:
        environment[VISIBLE] = ",".join(map(str, arguments.device_list))
    environment.update(_patching(arguments))
    sys.stdout.flush()
    # This process becomes the script: its exit status, signals and standard streams are the script's own.
    os.execve(sys.executable, [sys.executable, *_words(arguments)], environment)  # noqa: S606


def _words(arguments: argparse.Namespace) -> list[str]:
    script = [str(arguments.script), *arguments.passed]
    devices = arguments.device_list or []
    processes = arguments.nproc
    if processes == 0:
        processes = len(devices)
        if not devices:
            raise TorchportError("--nproc auto needs a --device-list to count", hint="Or give a number.")
    if devices and processes is not None and processes > len(devices):
        raise TorchportError(
            f"{processes} processes cannot share the {len(devices)} NPUs of --device-list",
            hint="Each needs its own.",
        )
    if processes is None and arguments.nnodes == 1:
        return script
    if arguments.nnodes == 1 and arguments.master_port is None:
        where = ["--standalone"]  # with a port that the system chooses
    else:
        where = [
            f"--nnodes={arguments.nnodes}",
            f"--node-rank={arguments.node_rank}",
            f"--master-addr={arguments.master_addr}",
            f"--master-port={arguments.master_port or 29500}",
        ]
    where.append(f"--nproc-per-node={processes or 1}")
    # torch_npu has imported that module by then, which runpy warns of.
    return ["-W", "ignore::RuntimeWarning:runpy", "-m", "torch.distributed.run", *where, *script]


def _patching(arguments: argparse.Namespace) -> dict[str, str]:
    if arguments.as_is:
        if arguments.audit:
            raise TorchportError(
                "--as-is redirects nothing that --audit could write down", hint="Drop one of them."
            )
        return {"TORCHPORT_AUTO": "0"}
    changes = {"TORCHPORT_AUTO": "1"}
    inherited = [
        path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != str(START)
    ]
    changes["PYTHONPATH"] = os.pathsep.join([str(START), *inherited])
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
