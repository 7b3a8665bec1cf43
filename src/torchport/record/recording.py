"""The recording: a directory that a run fills while it goes, readable at any moment and after a kill.

- `recording.json`: a `Result` with what was known at the start: the command, the device it is meant for, the seed.
- `processes/<pid>/steps.jsonl`: what one Python process of the run recorded, one JSON object per line, appended with
  one write each, so that a kill leaves no more than one line that is cut short. Its field `kind` is one of

  | kind | fields |
  |---|---|
  | process | pid, name (of multiprocessing), rank and world (null where not distributed): first, and again when known |
  | torch | version, backend, threads |
  | environment | versions, machine, variables (of the environment, that change what is computed), deterministic, \
default_dtype |
  | seed | of, value: the script seeds a generator itself |
  | optimizer | name, parameters |
  | weights | name, action (saved, loaded, mismatch), detail |
  | start | tensor (name), dtype, difference: a parameter or buffer that was not the original's before it was loaded \
over (`equal.measure_difference`); share (`equal.measure_share`): of one that a later stage begins with; planted: on \
purpose |
  | precision | dtype: what autocast or the parameters use |
  | random | detail: a draw of random numbers that the other run cannot repeat |
  | loss | site, by (backward, grad), value, device, launches, elapsed: the root of a backward pass; of a tensor its \
norm |
  | step | device (of the parameters), gradient (of theirs), launches, seconds since the step before, elapsed: an \
`optimizer.step()` |
  | settings | optimizer (number, as they were built), step, groups: their hyper-parameters, when they are not \
those of the step before |
  | parameters | optimizer, step, names, sizes, devices: of its parameters, when they are others than in the step \
before. Devices are types, in a reference the ones that modules were moved to; none for all together. Optimizer -1: \
leaves of a backward pass, or results of `autograd.grad`, in a run without optimizers |
  | initial | optimizer, norms, sizes: of each parameter, or the part of it that this process has, before the first \
step |
  | norms | optimizer, step, gradient (of each parameter, as the update takes it; null where there is none), norm \
(of a sample of each parameter), change (of that sample since the step before of this optimizer, or since before its \
first). Null where there is nothing to measure: sparse, complex, without data, never measured before |
  | scaler | step (that it was for, or the next where it was left out), scale, skipped: an `update()` of a GradScaler |
  | upload | site, visit, size, checksum (text), sum (weighted by place), norm: a host tensor, before it is copied to \
the device; checksum "" for one that was there already (in the reference nothing tells them apart). Calls in compiled \
code are seen in the reference only |
  | inputs | site, step, norms: of the tensors that an outermost module call was given while training; half: the \
numbers of the tensors in half precision |
  | evaluation | site, step, call, training, modules, norms: a module was called without gradients after so many \
steps, the first 8 calls of a site; how many of its modules were in training mode, and the norms of what it gave |
  | autocast | site, dtype, enabled: a region, once each |
  | drawn | operator, site, dtype, count, mean, variance, expected_mean, expected_variance and more (`draws.own`): \
numbers of the device's own, drawn beside the run; error: that it cannot |
  | placed | site, cuda, cpu: names of the parameters and buffers of a module that was called there, by their device; \
in a reference by the one that their module was moved to |
  | planted | name (start, evaluation), where (a tensor, a site): what a control run recorded wrongly on purpose |
  | fault | name, step, what (gradient, change, input), optimizer, parameter, site: what a control run did wrong on \
purpose |
  | device | settings: the format in which the NPU computes each kind of float32 layer, and whether it is virtual; in \
a control run the formats that it took for granted (`roundoff`) |
  | call | site, value (norm of the outputs), device, launches, elapsed: an outermost module call before any loss |
  | memory | resident, machine: bytes of this process and of the machine, after the first step |
  | cards | cards: the NPUs that the process has opened, each with device ("npu:1"), number (on the machine) \
and held (most bytes so far); after the first step and at the end |
  | modules | files: source files that were imported and are the user's |
  | note | text: what people should know of how the run was made |
  | npu | touched: what of an NPU a reference used all the same |
  | error | error, path, line: an exception that nobody caught; ours: whether the recorder raised it |
  | stop | why (steps, enough), steps: the recorder ended the run |
  | operators | step (-1: after the last), file, calls, tensors, bytes, lost: what was called since the step before \
is whole in that file (`operators`); written once it is in its place |
  | dropped | file: a step's file that was removed, as --keep-last says |
  | overflow | step, text, module, kept: the first result that is no number, where the last steps alone are kept |
  | overflowed | step: after it the overflow flag of an NPU without infinity is up |
  | seen | operators (name: calls), refused: what the NPU was asked to compute, and what of it the CPU could not in \
its place (`on_cpu`) |
  | restored | step: the state that the reference had before this step was loaded |
  | invariant | name, text, site, step: an invariant of training that does not hold (`invariants`) |
  | watched | name, judged: an invariant, and how often it was there to be judged; at the end |
  | replicated | module: the class of a module that was given to DistributedDataParallel |
  | replica | checksum: of the parameters that the optimizers have at the end |
  | end | launches, elapsed: the process is about to end |

  Each parameter has its own numbers for the first 200 steps; from then on `norms` has one entry for all of an
  optimizer, and `parameters` says so. Without optimizers 200 passes are measured. Numbers of a device are read together
  after each optimizer step, so a run that is killed loses the step that it was in.

- `end.json`: how the run ended, written by who started it: `End`.
- `outside.jsonl`: what was opened for writing outside of the run's folder (`writes`).
- `operators/`: an HDF5 file for each step and process, where operators were recorded (`operators.layout`).
- `weights/`: what `equal` saved, with the states of the random generators; `states/`: what `states` saved later.
- `batches/`: what `pack` kept.
- `stdout.txt`, `stderr.txt`: the run's output, where somebody kept it.

Floats that JSON has no word for are the strings "nan", "inf", "-inf".
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torchport.errors import TorchportError, name_path_in_errors
from torchport.findings import Result, write_atomically

HEAD = "recording.json"
PROCESSES = "processes"
JOURNAL = "steps.jsonl"
END = "end.json"
OUTSIDE = "outside.jsonl"
WEIGHTS = "weights"
BATCHES = "batches"
STATES = "states"
STDOUT = "stdout.txt"
STDERR = "stderr.txt"
STACKS = "stack.txt"
COMMAND = "record"
LAST_MESSAGES = 12
# 1: one process, one loss per step.
# 2: a journal for each process, losses by call site, optimizer steps of their own, devices and launches.
# 3: perhaps the operators of each step, in `operators/`; the rest as in 2.
VERSION = 3
READABLE = (2, 3)
_NUMBER = int | float | str  # text: nan, inf, -inf
# The fields that readers rely on, by kind, and what they are.
FIELDS: dict[str, dict[str, Any]] = {
    "process": {"pid": int, "name": str, "rank": int | None, "world": int | None},
    "seed": {"of": str, "value": str | None},
    "weights": {"name": str, "action": str, "detail": str},
    "restored": {"step": int},
    "start": {"tensor": str, "dtype": str, "difference": _NUMBER},
    "precision": {"dtype": str},
    "random": {"detail": str},
    "loss": {"site": str, "by": str, "value": _NUMBER, "device": str, "launches": int | None},
    "step": {"device": str, "gradient": str, "launches": int | None, "seconds": int | float | None},
    "settings": {"optimizer": int, "step": int, "groups": list},
    "parameters": {"optimizer": int, "step": int, "names": list, "sizes": list},
    "initial": {"optimizer": int, "norms": list, "sizes": list},
    "norms": {"optimizer": int, "step": int, "gradient": list, "norm": list, "change": list},
    "scaler": {"step": int, "scale": _NUMBER, "skipped": bool},
    "upload": {"site": str, "visit": int, "size": int, "checksum": str, "sum": _NUMBER, "norm": _NUMBER},
    "inputs": {"site": str, "step": int, "norms": list},
    "evaluation": {"site": str, "step": int, "call": int, "training": int, "modules": int, "norms": list},
    "autocast": {"site": str, "dtype": str, "enabled": bool},
    "drawn": {"operator": str, "site": str, "dtype": str, "count": int, "mean": _NUMBER, "variance": _NUMBER},
    "placed": {"site": str, "cuda": list, "cpu": list},
    "planted": {"name": str, "where": str},
    "fault": {"name": str, "step": int, "what": str, "optimizer": int | None, "parameter": int | None},
    "device": {"settings": dict},
    "call": {"site": str, "value": _NUMBER, "device": str, "launches": int | None},
    "memory": {"resident": int, "machine": int},
    "cards": {"cards": list},
    "modules": {"files": list},
    "note": {"text": str},
    "npu": {"touched": str},
    "error": {"error": str, "path": str, "line": int},
    "stop": {"why": str, "steps": int},
    "invariant": {"name": str, "text": str, "site": str, "step": int},
    "watched": {"name": str, "judged": int},
    "replicated": {"module": str},
    "operators": {"step": int, "file": str, "calls": int, "bytes": int, "lost": int},
    "seen": {"operators": dict, "refused": list},
    "dropped": {"file": str},
    "overflow": {"step": int, "text": str},
    "overflowed": {"step": int},
    "replica": {"checksum": _NUMBER},
    "end": {"launches": int | None},
}
OPTIMIZER, BACKWARD, GRADIENT, CALL = "optimizer step", "backward", "gradient", "call"


def begin_recording(directory: Path, *, side: str, command: Sequence[str], device: str, seed: int, **more: Any) -> None:
    """Make `directory` a recording of a run that is about to start, by its `recording.json`; `more` is plain JSON that
    is kept there too."""
    known = {"recording": VERSION, "side": side, "command": list(command), "device": device, "seed": seed}
    Result(COMMAND, data={**known, **more}).write(directory / HEAD)


class Journal:
    """Appends events to the journal of this process below `directory`, made at the first event.

    A forked child writes nothing: what it does belongs to its parent's work (data loading). With `drops` the run goes
    on where nothing can be written any more: stderr says so once, and what comes is thrown away.
    """

    def __init__(self, directory: Path, *, drops: bool = False) -> None:
        self._directory = directory
        self._drops = drops
        self._full = False
        self._descriptor: int | None = None
        self._process = os.getpid()
        self._start = time.perf_counter()

    def get_elapsed_seconds(self) -> float:
        """Seconds since the journal was made."""
        return time.perf_counter() - self._start

    def write_event(self, kind: str, **fields: Any) -> None:
        """Append one event. Raises OSError, which names the file, where the disk is full; with `drops` nothing."""
        if os.getpid() != self._process or self._full:
            return
        try:
            self._append(kind, fields)
        except OSError as error:
            if not self._drops:
                raise
            self._full = True
            print(
                f"torchport: the journal {error.filename} cannot be written: {error.strerror}; the run goes on without",
                file=sys.stderr,
            )

    def _append(self, kind: str, fields: Mapping[str, Any]) -> None:
        path = self._directory / PROCESSES / str(self._process) / JOURNAL
        if self._descriptor is None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        line = json.dumps({"kind": kind, **{name: _plain(value) for name, value in fields.items()}}, allow_nan=False)
        left = line.encode() + b"\n"
        with name_path_in_errors(path):
            while left:  # a disk that becomes full takes a part
                left = left[os.write(self._descriptor, left) :]

    def close(self) -> None:
        """Close the file; the journal cannot be used afterwards."""
        if self._descriptor is not None:
            os.close(self._descriptor)


@dataclasses.dataclass(frozen=True, slots=True)
class End:
    """How a run ended: exit code, or minus the signal's number; why we ended it ("", "timeout", "memory"); for a
    time-out its seconds and where the main thread was."""

    status: int
    seconds: float = 0.0
    stopped: str = ""
    limit: float = 0.0
    path: str = ""
    line: int = 0

    def write_to(self, directory: Path) -> None:
        """Store it in the recording."""
        write_atomically(directory / END, json.dumps(dataclasses.asdict(self)).encode())

    @classmethod
    def read_from(cls, directory: Path) -> End | None:
        """None where the run goes on, or who started it was killed. Raises TorchportError for a damaged file."""
        try:
            return cls(**json.loads((directory / END).read_bytes()))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError) as error:
            raise TorchportError(f"{directory / END} is damaged: {error}", hint="Record the run again.") from error


@dataclasses.dataclass(frozen=True, slots=True)
class Process:
    """What one process of a run recorded, in order."""

    pid: int
    events: tuple[Mapping[str, Any], ...]

    def of_kind(self, kind: str) -> list[Mapping[str, Any]]:
        """The events of one kind, in order."""
        return [event for event in self.events if event["kind"] == kind]

    @property
    def rank(self) -> int | None:
        """Its rank in torch.distributed; None where it has none."""
        ranks = [event["rank"] for event in self.of_kind("process") if event["rank"] is not None]
        return int(ranks[-1]) if ranks else None

    @property
    def order(self) -> tuple[int, str, int]:
        """Sorts the processes of two runs of one command in the same way."""
        names = [event["name"] for event in self.of_kind("process")]
        return (-1 if self.rank is None else self.rank, names[-1] if names else "", self.pid)

    @property
    def step_kind(self) -> str:
        """What a step is: an `optimizer.step()`; without one a backward pass or `autograd.grad`; without one a
        module call."""
        if self.of_kind("step"):
            return OPTIMIZER
        roots = {event["by"] for event in self.of_kind("loss")}
        return BACKWARD if "backward" in roots else GRADIENT if roots else CALL

    @property
    def steps(self) -> list[Mapping[str, Any]]:
        """The events that are its steps."""
        return self.of_kind({OPTIMIZER: "step", BACKWARD: "loss", GRADIENT: "loss", CALL: "call"}[self.step_kind])

    def collect_curves(self) -> dict[str, list[float]]:
        """The losses of each call site in order; where there is none, the norms of what each module gave."""
        found: dict[str, list[float]] = {}
        for event in self.of_kind("loss") or self.of_kind("call"):
            found.setdefault(event["site"], []).append(float(event["value"]))
        return found


@dataclasses.dataclass(frozen=True, slots=True)
class Recording:
    """A recording as it was read: `head` is what `recording.json` says, `processes` those that recorded something,
    by rank."""

    path: Path
    head: Mapping[str, Any]
    processes: tuple[Process, ...]
    end: End | None

    @classmethod
    def from_directory(cls, path: str | Path) -> Recording:
        """Read the recording in directory `path`, finished or not; a line that was cut short is dropped.

        Raises TorchportError where there is none or it is damaged other than by being cut.
        """
        path = Path(path)
        if not (path / HEAD).is_file():
            raise TorchportError(
                f"{path} is not a recording: it has no {HEAD}",
                hint="A recording is a folder that `torchport run --record DIR` leaves, or `port`: reference/ and "
                "npu/ in its --out.",
            )
        result = Result.read(path / HEAD)
        if result.command != COMMAND or result.data.get("recording") not in READABLE:
            raise TorchportError(
                f"{path / HEAD} is not a recording of version {' or '.join(map(str, READABLE))}",
                hint="Record the run again.",
            )
        processes = [
            Process(int(folder.name), tuple(read_journal(folder / JOURNAL)))
            for folder in (path / PROCESSES).glob("[0-9]*")
        ]
        return cls(path, result.data, tuple(sorted(processes, key=lambda one: one.order)), End.read_from(path))

    @property
    def trained(self) -> tuple[Process, ...]:
        """The processes that did a step, by rank. Several ranks of a job, or the one process of a script."""
        training = tuple(process for process in self.processes if process.of_kind("loss") or process.of_kind("step"))
        return training or tuple(process for process in self.processes if process.steps)[:1]

    @property
    def steps(self) -> int:
        """The steps of the process that did the fewest."""
        return min((len(one.steps) for one in self.trained), default=0)

    def of_kind(self, kind: str) -> list[Mapping[str, Any]]:
        """The events of one kind in all processes, rank by rank."""
        return [event for process in self.processes for event in process.of_kind(kind)]

    @property
    def status(self) -> int | None:
        """The run's exit code; None where it was killed with who started it, or still runs."""
        return None if self.end is None else self.end.status

    @property
    def stopped(self) -> str:
        """Why the run was ended before its own end: "steps", "enough", "timeout", "memory"; "" where it was not."""
        if self.end is not None and self.end.stopped:
            return self.end.stopped
        return str(next((event["why"] for event in self.of_kind("stop")), ""))

    @property
    def output(self) -> str:
        """What the run printed, where it was kept."""
        return self._kept(STDOUT)

    @property
    def messages(self) -> str:
        """What the run wrote to stderr, where it was kept."""
        return self._kept(STDERR)

    @property
    def last_messages(self) -> list[str]:
        """The last lines of `messages`."""
        return self.messages.rstrip().splitlines()[-LAST_MESSAGES:]

    def _kept(self, name: str) -> str:
        try:
            return (self.path / name).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""


def read_journal(path: Path) -> Iterator[Mapping[str, Any]]:
    """The events of a journal, in order; nothing where there is none yet.

    The last line is dropped where it was cut short. Raises TorchportError for damage anywhere else.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return
    # What follows the last newline is nothing, or the line that a kill cut short.
    for number, line in enumerate(lines[:-1], 1):
        try:
            event = parse_event(line)
        except ValueError as error:
            raise TorchportError(f"{path}:{number}: damaged line: {error}", hint="Record the run again.") from error
        yield event


def parse_event(line: bytes) -> Mapping[str, Any]:
    """One whole line of a journal. Raises ValueError for what is not one."""
    event = json.loads(line)
    if not isinstance(event, dict) or not isinstance(event.get("kind"), str):
        raise ValueError("not an event")
    for name, kind in FIELDS.get(event["kind"], {}).items():
        if name not in event or not isinstance(event[name], kind):
            raise ValueError(f"a {event['kind']} without {name}")
        if kind is _NUMBER:
            float(event[name])
    return event


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
