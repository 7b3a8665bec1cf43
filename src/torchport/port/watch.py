"""What is looked at while a run goes on: how far it is, whether its time is up, whether the machine is large enough."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torchport.launch import host_memory
from torchport.port.progress import Progress
from torchport.record import recording

LOOK_SECONDS = 1.0


class Watch:
    """Called about ten times a second with the seconds so far; gives why the run is to be stopped, or "".

    `notes` is what could be foreseen from the first step.
    """

    def __init__(self, folder: Path, timeout: float | None, progress: Progress) -> None:
        self._tails: dict[Path, _Tail] = {}
        self._folder = folder
        self._timeout = timeout
        self._progress = progress
        self._looked = 0.0
        self.notes: list[str] = []

    def __call__(self, seconds: float) -> str:
        now = time.monotonic()
        if now - self._looked >= LOOK_SECONDS:
            self._looked = now
            for path in (self._folder / recording.PROCESSES).glob(f"*/{recording.JOURNAL}"):
                self._tails.setdefault(path, _Tail(path))
            if host_memory.is_gone():
                return "memory"
        for tail in self._tails.values():
            tail.read_new_events()
        steps = max((tail.steps for tail in self._tails.values()), default=0)
        loss = next((tail.loss for tail in self._tails.values() if tail.loss is not None), None)
        self._foresee(steps, seconds)
        self._progress.update(f"step {steps}, loss {loss:.4g}" if loss is not None else "starting")
        return "timeout" if self._timeout is not None and seconds > self._timeout else ""

    def _foresee(self, steps: int, seconds: float) -> None:
        if self.notes or not steps:
            return
        for tail in self._tails.values():
            if tail.memory and tail.memory["resident"] > 0.8 * tail.memory["machine"]:
                share = tail.memory["resident"] / tail.memory["machine"]
                self._note(
                    f"the first step needs {tail.memory['resident'] / 2**30:.1f} GiB, {share:.0%} of this machine's "
                    "memory: a smaller batch or model may be needed"
                )
        if self._timeout is not None and steps == 1 and seconds > self._timeout / 5:
            self._note(
                f"the first step came after {seconds:.0f} s: --timeout {self._timeout:g} leaves room for few steps"
            )

    def _note(self, text: str) -> None:
        self.notes.append(text)
        self._progress.note(text)


class _Tail:
    """A journal that is being written, read without going over it again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._rest = b""
        self._counts = {"step": 0, "loss": 0, "call": 0}
        self.loss: float | None = None
        self.memory: Mapping[str, Any] | None = None

    @property
    def steps(self) -> int:
        """How many there are so far."""
        return self._counts["step"] or self._counts["loss"] or self._counts["call"]

    def read_new_events(self) -> None:
        """Take in what is new."""
        with open(self._path, "rb") as stream:
            stream.seek(self._offset)
            data = stream.read()
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            event = recording.parse_event(line)
            if event["kind"] in self._counts:
                self._counts[event["kind"]] += 1
            if event["kind"] == "loss":
                self.loss = float(event["value"])
            if event["kind"] == "memory":
                self.memory = event
