"""The recording: a directory that a run fills while it goes, readable at any moment and after a kill.

- `recording.json`: a `Result` with what was known at the start (script, arguments, device, seed).
- `steps.jsonl`: one JSON object per line, appended with one write each, so that a run that is killed loses at
  most the line it was writing. Its field `kind` is one of

  | kind | fields |
  |---|---|
  | torch | version, backend, threads |
  | seed | of, value: the script seeds a generator itself |
  | optimizer | name, parameters |
  | weights | name, action (saved, loaded, mismatch), detail |
  | precision | dtype: what autocast or the parameters use |
  | random | detail: the device draws random numbers between two steps |
  | step | step (from 0), loss, seconds since the step before, elapsed seconds since the start |
  | end | status (exit code, or minus the signal), error, path, line, timeout (seconds, where it was stopped)
  |

- `weights/`: what `equal` saved. `stdout.txt`, `stderr.txt`: the script's output, where somebody kept it.

Floats that JSON has no word for are the strings "nan", "inf", "-inf".
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torchport.errors import TorchportError
from torchport.findings import Result

HEAD = "recording.json"
JOURNAL = "steps.jsonl"
WEIGHTS = "weights"
STDOUT = "stdout.txt"
STDERR = "stderr.txt"
COMMAND = "record"
LAST_MESSAGES = 12
# 1: first version.
VERSION = 1
# The fields that readers rely on, by kind, and what they are.
FIELDS: dict[str, dict[str, Any]] = {
    "seed": {"of": str, "value": str | None},
    "weights": {"name": str, "action": str, "detail": str},
    "precision": {"dtype": str},
    "random": {"detail": str},
    "step": {"step": int, "loss": int | float | str, "seconds": int | float | None},
    "end": {"status": int, "error": str, "path": str, "line": int, "timeout": int | float},
}


class Journal:
    """Appends events to `steps.jsonl` of `directory`, which must exist. Forked children write nothing."""

    def __init__(self, directory: Path) -> None:
        self._descriptor = os.open(
            directory / JOURNAL, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666
        )
        self._process = os.getpid()
        self._start = time.perf_counter()

    def elapsed(self) -> float:
        """Seconds since the journal was opened."""
        return time.perf_counter() - self._start

    def write(self, kind: str, **fields: Any) -> None:
        """Append one event. Raises OSError where the disk is full."""
        if os.getpid() != self._process:
            return
        line = json.dumps(
            {"kind": kind, **{name: _plain(value) for name, value in fields.items()}}, allow_nan=False
        )
        os.write(self._descriptor, line.encode() + b"\n")

    def close(self) -> None:
        """Close the file; the journal cannot be used afterwards."""
        os.close(self._descriptor)


def end_from_outside(
    directory: Path, status: int, error: str, path: str = "", line: int = 0, timeout: float = 0
) -> None:
    """Add the end of a run that could not write it itself, after the process is gone; one that has an end
    keeps it."""
    if any(event["kind"] == "end" for event in read_journal(directory / JOURNAL)):
        return
    with open(directory / JOURNAL, "ab+") as stream:
        stream.seek(0)
        stream.truncate(stream.read().rfind(b"\n") + 1)  # a line that was cut short
    journal = Journal(directory)
    journal.write("end", status=status, error=error, path=path, line=line, timeout=timeout)
    journal.close()


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """One `backward()`: its loss, and the seconds since the one before (None for the first)."""

    step: int
    loss: float
    seconds: float | None


@dataclasses.dataclass(frozen=True, slots=True)
class Recording:
    """A recording as it was read: `head` is what `recording.json` says, `events` all lines but the steps."""

    path: Path
    head: Mapping[str, Any]
    steps: tuple[Step, ...]
    events: tuple[Mapping[str, Any], ...]

    @classmethod
    def read(cls, path: str | Path) -> Recording:
        """Read the recording in directory `path`, finished or not; a line that was cut short is dropped.

        Raises TorchportError where there is none or it is damaged other than by being cut.
        """
        path = Path(path)
        if not (path / HEAD).is_file():
            raise TorchportError(
                f"{path} is not a recording: it has no {HEAD}",
                hint="A recording is a directory that `torchport port` leaves (reference/ and npu/ in its --out).",
            )
        result = Result.read(path / HEAD)
        if result.command != COMMAND or result.data.get("recording") != VERSION:
            raise TorchportError(f"{path / HEAD} is not a recording of version {VERSION}")
        steps, events = [], []
        for event in read_journal(path / JOURNAL):
            if event["kind"] == "step":
                seconds = event["seconds"]
                steps.append(
                    Step(event["step"], float(event["loss"]), None if seconds is None else float(seconds))
                )
            else:
                events.append(event)
        return cls(path, result.data, tuple(steps), tuple(events))

    def of_kind(self, kind: str) -> list[Mapping[str, Any]]:
        """The events of one kind, in order."""
        return [event for event in self.events if event["kind"] == kind]

    @property
    def losses(self) -> list[float]:
        """The loss of each step."""
        return [step.loss for step in self.steps]

    @property
    def status(self) -> int | None:
        """The script's exit code; None where it was killed or still runs."""
        ends = self.of_kind("end")
        return int(ends[-1]["status"]) if ends else None

    @property
    def output(self) -> str:
        """What the script printed, where it was kept."""
        return self._kept(STDOUT)

    @property
    def last_messages(self) -> list[str]:
        """The last lines that the script wrote to stderr, where they were kept."""
        return self._kept(STDERR).rstrip().splitlines()[-LAST_MESSAGES:]

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
            event = parse(line)
        except ValueError as error:
            raise TorchportError(
                f"{path}:{number}: damaged line: {error}", hint="Record the run again."
            ) from error
        yield event


def parse(line: bytes) -> Mapping[str, Any]:
    """One whole line of a journal. Raises ValueError for what is not one."""
    event = json.loads(line)
    if not isinstance(event, dict) or not isinstance(event.get("kind"), str):
        raise ValueError("not an event")
    for name, kind in FIELDS.get(event["kind"], {}).items():
        if name not in event or not isinstance(event[name], kind):
            raise ValueError(f"a {event['kind']} without {name}")
    if event["kind"] == "step":
        float(event["loss"])
    return event


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
