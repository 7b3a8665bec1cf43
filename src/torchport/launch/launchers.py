"""Programs that start a training script in one process per device: where the script is in their command lines."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence

# torch_npu has imported that module by the time it is run, which runpy warns of.
_QUIET = ("-W", "ignore::RuntimeWarning:runpy")


@dataclasses.dataclass(frozen=True, slots=True)
class Launcher:
    """One program: the module that it is, its options without a value, and the one that has the number of processes.

    Options are listed with `-` between words; they are the same with `_`. `subcommand` must be its first word.
    """

    module: str | None
    flags: frozenset[str]
    processes: str
    default: int
    subcommand: str = ""


def _flags(names: str) -> frozenset[str]:
    return frozenset(names.split())


TORCHRUN = Launcher(
    "torch.distributed.run",
    frozenset({"--standalone", "-m", "--module", "--no-python", "--run-path", "--virtual-local-rank"}),
    "--nproc-per-node",
    1,
)
_LEGACY = dataclasses.replace(TORCHRUN, module="torch.distributed.launch", flags=TORCHRUN.flags | {"--use-env"})
ACCELERATE = Launcher(
    "accelerate.commands.launch",
    _flags(
        "--cpu --debug --downcast-bf16 --dynamo-use-dynamic --dynamo-use-fullgraph "
        "--dynamo-use-regional-compilation --enable-cpu-affinity --fp8-use-autocast-during-eval --module -m "
        "--multi-gpu --no-python --no-tpu-cluster --quiet -q --same-network --tpu --tpu-cluster "
        "--tpu-use-sudo --use-deepspeed --use-fsdp --use-megatron-lm --use-parallelism-config --use-xpu "
        "--ipex --use-mps-device"
    ),
    "--num-processes",
    0,
)
DEEPSPEED = Launcher(
    "deepspeed.launcher.runner",
    _flags(
        "--module --no-python --no-local-rank --no-ssh --no-ssh-check --force-multi --save-pid "
        "--elastic-training --bind-cores-to-rank"
    ),
    "--num-gpus",
    0,
)
FABRIC = Launcher(None, frozenset(), "--devices", 1)
_PROGRAMS = {
    "torchrun": TORCHRUN,
    "accelerate": dataclasses.replace(ACCELERATE, subcommand="launch"),
    "accelerate-launch": ACCELERATE,
    "deepspeed": DEEPSPEED,
    "ds": DEEPSPEED,
    "fabric": dataclasses.replace(FABRIC, subcommand="run"),
    "lightning": dataclasses.replace(FABRIC, subcommand="run"),
}
_MODULES = {
    "torch.distributed.run": TORCHRUN,
    "torch.distributed.launch": _LEGACY,
    "accelerate.commands.launch": ACCELERATE,
    "accelerate.commands.accelerate_cli": dataclasses.replace(ACCELERATE, subcommand="launch"),
    "accelerate": dataclasses.replace(ACCELERATE, subcommand="launch"),
    "deepspeed.launcher.runner": DEEPSPEED,
}


def find_program_launcher(name: str, words: Sequence[str]) -> Launcher | None:
    """The launcher that the program `name`, started with `words`, is."""
    return _fits(_PROGRAMS.get(os.path.basename(name)), words)


def find_module_launcher(name: str, words: Sequence[str]) -> Launcher | None:
    """The launcher that `python -m name`, started with `words`, is."""
    return _fits(_MODULES.get(name), words)


def _fits(launcher: Launcher | None, words: Sequence[str]) -> Launcher | None:
    fits = launcher is not None and (not launcher.subcommand or launcher.subcommand in words[:1])
    return launcher if fits else None


@dataclasses.dataclass(frozen=True, slots=True)
class Reading:
    """A launcher's words: `options` with their values (a flag has ""), then the program and its own arguments."""

    options: Mapping[str, str]
    own: tuple[str, ...]
    target: str | None
    arguments: tuple[str, ...]

    def has_option(self, *names: str) -> bool:
        """Whether one of the options is given."""
        return any(name in self.options for name in names)


def in_python(python: Sequence[str], module: str, words: Sequence[str]) -> tuple[str, ...]:
    """The command line that runs a launcher's `module` with `words`; `python` may have options of its own."""
    return (*python, *_QUIET, "-m", module, *words)


def read_options(launcher: Launcher, words: Sequence[str]) -> Reading:
    """Find the program that `launcher` starts among `words` (the launcher's own name not among them).

    An option that is not known to be a flag takes the word behind it, unless that is a Python file.
    """
    options: dict[str, str] = {}
    at = len(launcher.subcommand.split())
    while at < len(words) and words[at].startswith("-") and words[at] != "--":
        name, equals, value = words[at].partition("=")
        if name.startswith("--"):
            name = name.replace("_", "-")
        at += 1
        if not equals and name not in launcher.flags and at < len(words) and not words[at].endswith(".py"):
            value = words[at]
            at += 1
        options[name] = value
    own = tuple(words[:at])
    if at < len(words) and words[at] == "--":
        at += 1
    target = words[at] if at < len(words) else None
    return Reading(options, own, target, tuple(words[at + 1 :]))


def count_processes(launcher: Launcher, reading: Reading, environ: Mapping[str, str]) -> int:
    """How many processes are started on this machine; 0 where only the running launcher can tell (`gpu`, `auto`)."""
    given = reading.options.get(launcher.processes)
    if launcher.processes == TORCHRUN.processes and given is None:
        given = environ.get("PET_NPROC_PER_NODE")
    include = reading.options.get("--include") or reading.options.get("-i")
    if launcher is DEEPSPEED and given is None and include and ":" in include:
        return len(include.partition(":")[2].split(","))  # localhost:0,1
    if given is None:
        return launcher.default
    return int(given) if given.isdecimal() else 0
