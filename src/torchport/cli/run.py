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
  torchport run --check-memory train.py          name each use of device memory that is freed or not the tensor's
  torchport run --invariants train.py            name what the training does wrong by itself, on whatever device
  torchport run --record gpu train.py            record the run in the folder gpu, for `port --reference gpu`
  torchport run --record cpu --on cpu train.py   on the CPU, which answers as CUDA devices
  torchport run --record npu --level tensor --filter step=3 --filter module=layer4 train.py
                                                 with the content of their tensors, of one step and module
  torchport run --record npu --level tensor --keep-last 3 train.py     of the steps before the first NaN
  torchport run train.py -- --audit x            behind `--` all words are the script's

Behind SCRIPT, options of torchport's stay torchport's, and all other words go to the script; one that both know is
refused. A launcher (torchrun, accelerate, deepspeed) is that of the environment in which torchport is installed.

CUDA calls are redirected while the script runs (`torchport.auto`). At its end stderr says what was redirected, what ran
on the CPU and what could not be done, why the script failed where that is known (`torchport diagnose`), and in one line
which NPUs each rank has used; -q leaves that out. Ends with the script's own exit status, or with torchrun's; with 1
where that is 0 but an operator of the virtual NPU has failed and the script has not waited for it.

With --invariants, what each training has in common is watched: gradients are cleared, weights move, clipping comes
before the step ... (`torchport record invariants`). 1 where the script ends with 0 and one of them is broken.

With --record the script runs on the GPU where there is one (--on says otherwise), in place and with its own output; its
random numbers are those of a port. The folder gets loss and weights, the batches of the first 20 steps, and every
operator that is called, forward, backward and in the optimizer (--level, --filter): `torchport record show DIR`.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, NoReturn

from torchport import startup, vnpu
from torchport.errors import TorchportError
from torchport.launch import STANDALONE, Launch, add_target, launch_of

PASSES_ARGUMENTS = True
LEVELS = ("statistics", "tensor", "module", "none")
VISIBLE = "ASCEND_RT_VISIBLE_DEVICES"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    parser.add_argument("--audit", type=Path, metavar="FILE", help="write what was done to each call, as JSON lines")
    parser.add_argument("--as-is", action="store_true", help="redirect nothing: the script asks for the NPU itself")
    parser.add_argument(
        "--check-memory",
        action="store_true",
        help="one block of the virtual NPU's memory for each tensor, nothing behind it, freed ones not given out again",
    )
    parser.add_argument(
        "--invariants",
        action="store_true",
        help="name what is wrong in the training itself: weights that do not move, gradients that nothing clears ...",
    )
    recorded = parser.add_argument_group("a recorded run")
    recorded.add_argument("--record", type=Path, metavar="DIR", help="record the run in this folder")
    recorded.add_argument(
        "--on",
        choices=("cpu", "cuda", "npu"),
        help="the device of a recorded run (default: the GPU where there is one, else the NPU)",
    )
    recorded.add_argument(
        "--level",
        choices=LEVELS,
        help="of its operators: statistics of tensors (default), also the tensors, those of modules alone, or none",
    )
    recorded.add_argument(
        "--filter",
        action="append",
        metavar="KIND=PATTERN",
        help="only operators of this module=, operator=, step= or rank=; several of a kind: any of them",
    )
    recorded.add_argument(
        "--keep-last",
        type=_positive,
        metavar="N",
        help="keep the operators of the last N steps; of those before the first NaN or infinity for good",
    )
    recorded.add_argument("--max-bytes", type=_bytes, metavar="SIZE", help="end the recording of operators at 2G, say")
    recorded.add_argument(
        "--on-full", choices=("stop", "drop"), help="a full disk stops the run (default), or the recording alone"
    )
    recorded.add_argument("--force", action="store_true", help="replace the recording that DIR holds")
    recorded.add_argument(
        "--control-of",
        type=Path,
        metavar="DIR",
        help="with noise in the last place of what DIR has recorded: the yardstick of `compare --control`",
    )
    recorded.add_argument("--steps", type=_positive, metavar="N", help="end a recorded run after N steps")
    several = parser.add_argument_group("several processes, one per NPU")
    several.add_argument(
        "--nproc", type=_processes, metavar="N", help="processes on this machine; auto: one per NPU of --device-list"
    )
    several.add_argument(
        "--device-list",
        type=_devices,
        metavar="0,1,...",
        help="the NPUs that the script sees: its process i gets the i-th of them in ascending order",
    )
    several.add_argument("--nnodes", type=_positive, default=1, metavar="N", help="machines (default 1)")
    several.add_argument("--node-rank", type=int, default=0, metavar="I", help="which of them this is, from 0")
    several.add_argument("--master-addr", default="127.0.0.1", metavar="HOST", help="address of machine 0")
    several.add_argument("--master-port", type=int, metavar="PORT", help="a free port there (default: any, or 29500)")


def run_command(arguments: argparse.Namespace) -> int:
    if arguments.json:
        raise TorchportError(
            "--json has nothing to print: stdout is the script's own",
            hint="--audit FILE writes what was done to each call, as JSON lines.",
        )
    for name in ("on", "steps", "level", "filter", "keep_last", "max_bytes", "on_full", "force", "control_of"):
        taken = arguments.record is not None or (arguments.invariants and name in ("on", "steps"))
        if not taken and getattr(arguments, name):
            raise TorchportError(
                f"--{name.replace('_', '-')} is for a recorded run", hint="Give --record DIR, or leave it out."
            )
    devices = arguments.device_list or []
    launch = launch_of(arguments, nproc=_nproc(arguments, devices), where=_where(arguments))
    sys.stdout.flush()
    if arguments.record is not None:
        return _record(arguments, launch)
    if arguments.invariants:
        with tempfile.TemporaryDirectory(prefix="torchport-") as folder:
            arguments.record, arguments.level = Path(folder, "recording"), "none"
            return _record(arguments, launch, temporary=True)
    return _become(launch, _on_npu(arguments, launch))


def _become(launch: Launch, environment: dict[str, str]) -> NoReturn:
    program = shutil.which(launch.command[0], path=environment.get("PATH")) or launch.command[0]
    # This process becomes the script: its exit status, signals and standard streams are the script's own.
    os.execve(program, list(launch.command), environment)  # noqa: S606


def _record(arguments: argparse.Namespace, launch: Launch, *, temporary: bool = False) -> int:
    from torchport.port import Plan, in_place, tee  # here, as below: most runs need nothing of it
    from torchport.record.recording import Recording

    on = arguments.on or ("cuda" if in_place.has_cuda() else "npu")
    if on == "cuda" and not in_place.has_cuda():
        raise TorchportError(
            "--on cuda: this machine has no GPU, or the torch of this environment is not built for CUDA",
            hint="--on cpu records the script on the CPU, which answers as CUDA devices.",
        )
    if arguments.control_of is not None:
        Recording.from_directory(arguments.control_of)  # raises where it is none
    operators = _operators(arguments)
    environment = _on_npu(arguments, launch) if on == "npu" else _original(arguments, launch, on)
    plan = Plan(launch, arguments.record.absolute(), Path.cwd(), steps=arguments.steps)
    ended = in_place.record_in_place(
        plan,
        on,
        environment,
        operators,
        force=arguments.force,
        invariants=arguments.invariants,
        control_of=arguments.control_of,
    )
    broken = arguments.invariants and _say_invariants(arguments.record, quiet=arguments.quiet)
    if not arguments.quiet and not temporary:
        print(f"torchport run: {in_place.summarize_recording(arguments.record)}", file=sys.stderr)
    return tee.propagate_status(ended.status) or int(broken)


def _say_invariants(recorded: Path, *, quiet: bool) -> bool:
    """Whether invariants are broken; says which, and how far that word reaches."""
    from torchport.compare.invariants import judge_invariants
    from torchport.record.recording import Recording
    from torchport.report import render_invariants
    from torchport.report.terminal import use_color

    result = judge_invariants(Recording.from_directory(recorded))
    if result.findings or not quiet:
        said = render_invariants(result, color=use_color(sys.stderr))
        print(f"torchport run: invariants of training\n{said}", end="", file=sys.stderr)
    return bool(result.findings)


def _operators(arguments: argparse.Namespace) -> dict[str, Any] | None:
    """What of the operators is recorded; None for nothing."""
    from torchport.record.operators.wanted import NONE, Wanted

    if arguments.level == NONE:
        for name in ("filter", "keep_last", "max_bytes", "on_full"):
            if getattr(arguments, name):
                raise TorchportError(
                    f"--{name.replace('_', '-')} is for operators, of which --level none records nothing",
                    hint="Leave one of them out.",
                )
        return None
    wanted = Wanted.from_words(
        arguments.level or LEVELS[0],
        arguments.filter or (),
        arguments.max_bytes,
        arguments.on_full or "stop",
        arguments.keep_last,
    )
    if importlib.util.find_spec("h5py") is None:
        if arguments.level or arguments.filter or arguments.max_bytes or arguments.keep_last:
            raise TorchportError("operators are kept in HDF5 files, which needs h5py", hint="pip install 'h5py>=3.11'")
        if not arguments.quiet:
            print("torchport run: operators are not recorded: h5py is not installed", file=sys.stderr)
        return None
    return wanted.to_dict()


def _on_npu(arguments: argparse.Namespace, launch: Launch) -> dict[str, str]:
    """The environment of a script whose CUDA calls go to the NPU."""
    environment = {**os.environ, **dict(launch.variables)}
    environment.update(vnpu.environment(environment))
    if arguments.device_list:
        environment[VISIBLE] = ",".join(map(str, arguments.device_list))
    if arguments.check_memory:
        environment.update(_checking(environment))
    environment.update(_patching(arguments, environment.get("PYTHONPATH", "")))
    return environment


def _original(arguments: argparse.Namespace, launch: Launch, on: str) -> dict[str, str]:
    """The environment of a script that runs as it is, on the GPU, or on the CPU as the reference of a port."""
    for name, given in (
        ("audit", arguments.audit),
        ("as-is", arguments.as_is),
        ("device-list", arguments.device_list),
        ("check-memory", arguments.check_memory),
    ):
        if given:
            raise TorchportError(f"--{name} is for a run on an NPU", hint="Leave it out, or give --on npu.")
    environment = {**os.environ, **dict(launch.variables)}
    if on == "cpu":
        from torchport.record import reference

        environment = reference.make_reference_environment(environment, launch.processes or 1)
    return {
        **environment,
        "PYTHONPATH": startup.prepend_start_folder(environment.get("PYTHONPATH", "")),
        "TORCHPORT_AUTO": "0",
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",  # no NPU is wanted
    }


def _nproc(arguments: argparse.Namespace, devices: list[int]) -> int | None:
    """How many processes torchrun is to start; None where it is not needed."""
    processes: int | None = arguments.nproc
    if processes == 0:
        processes = len(devices)
        if not devices:
            raise TorchportError("--nproc auto needs a --device-list to count", hint="Or give a number.")
    if devices and processes is not None and processes > len(devices):
        raise TorchportError(
            f"{processes} processes cannot share the {len(devices)} NPUs of --device-list", hint="Each needs its own."
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


def _checking(environment: dict[str, str]) -> dict[str, str]:
    """Variables with which each tensor has a block of memory of its own, that the virtual NPU watches."""
    backend = vnpu.detect(environment)
    if backend.kind is not vnpu.Kind.VNPU:
        raise TorchportError(
            f"--check-memory is the virtual NPU's: {backend.reason}",
            hint="TORCHPORT_BACKEND=vnpu runs the script on it.",
        )
    return {"VNPU_CHECK_MEMORY": "1", "PYTORCH_NO_NPU_MEMORY_CACHING": "1"}


def _patching(arguments: argparse.Namespace, python_path: str) -> dict[str, str]:
    always = {"TORCHPORT_FAILURES": "1", "PYTHONPATH": startup.prepend_start_folder(python_path)}
    if not arguments.quiet:
        always |= {"TORCHPORT_DIAGNOSE": "1", "TORCHPORT_USED": "1"}
    if arguments.as_is:
        if arguments.audit:
            raise TorchportError("--as-is redirects nothing that --audit could write down", hint="Drop one of them.")
        return {**always, "TORCHPORT_AUTO": "0"}
    changes = {**always, "TORCHPORT_AUTO": "1"}
    if arguments.quiet:
        changes["TORCHPORT_SUMMARY"] = "0"
    if arguments.audit:
        try:
            arguments.audit.write_text("")
        except OSError as error:
            raise TorchportError(f"the audit file {arguments.audit} cannot be written: {error.strerror}") from error
        changes["TORCHPORT_AUDIT"] = str(arguments.audit.resolve())
    return changes


def _processes(word: str) -> int:
    return 0 if word == "auto" else _positive(word)


def _positive(word: str) -> int:
    if not word.isdecimal() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"{word} is no number of processes: 1 or more")
    return int(word)


def _bytes(word: str) -> int:
    from torchport.record.operators.wanted import size_of

    try:
        return size_of(word)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{word} is no size: 500M, 2G, 10000") from None


def _devices(word: str) -> list[int]:
    """Ascending, as the porting guide's map from processes to devices has them and as the NPU's driver insists."""
    parts = word.split(",")
    if not all(part.isdecimal() for part in parts) or len(set(map(int, parts))) < len(parts):
        raise argparse.ArgumentTypeError(f"{word} is no list of different device numbers")
    return sorted(map(int, parts))
