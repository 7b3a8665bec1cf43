"""Dry runs of the user's command: what is started, with what in its environment, and what it left."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torchport.errors import TorchportError
from torchport.launch import Launch
from torchport.predict.session import NOTES, VARIABLE, Options

TIMELINE = "timeline-%p.vnputl"
_LAST_LINES = 12


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """What is predicted: `launch` in `environment`, for `steps` steps or `seconds`, on the chip `soc`."""

    launch: Launch
    environment: Mapping[str, str]
    soc: str
    steps: int = 3
    seconds: float = 300.0


@dataclasses.dataclass(frozen=True, slots=True)
class Ran:
    """What a run has left: notes and log of each rank in their order, its exit status (None: out of time), wall
    seconds, the last lines that it wrote."""

    notes: list[dict[str, Any]]
    logs: list[Path]
    status: int | None
    seconds: float
    tail: str


def run(plan: Plan, folder: Path, trial: str = "", say: Callable[[str], None] = lambda _: None) -> Ran:
    """Run the plan dry, with its notes in `folder`. The script's output goes to a file there."""
    environment = {
        **plan.environment,
        VARIABLE: Options(str(folder), plan.steps, trial).variable(),
        "VNPU_MODE": "dry",
        "VNPU_TIME": "model",
        "VNPU_SOC": plan.soc,
        "VNPU_TIMELINE": str(folder / TIMELINE),
        "OMP_NUM_THREADS": plan.environment.get("OMP_NUM_THREADS", "1"),
    }
    began = time.monotonic()
    output = folder / "output"
    with open(output, "wb") as sink:
        child = subprocess.Popen(  # the user's own command
            list(plan.launch.command), env=environment, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink,
            start_new_session=True,
        )  # fmt: skip
        status = _wait(child, plan.seconds, say)
    lines = output.read_bytes().decode("utf-8", "replace").splitlines()
    notes = sorted((json.loads(path.read_text()) | {"file": path.stem} for path in folder.glob(f"{NOTES}-*.json")),
                   key=lambda note: note["rank"])  # fmt: skip
    notes = [note for note in notes if note["memory"] is not None or note["error"] is not None]
    logs = [folder / TIMELINE.replace("%p", note["file"].rpartition("-")[2]) for note in notes]
    return Ran(notes, logs, status, time.monotonic() - began, "\n".join(lines[-_LAST_LINES:]))


def _wait(child: subprocess.Popen[bytes], seconds: float, say: Callable[[str], None]) -> int | None:
    """Its exit status, or None where it had to be ended. Nothing of it is left behind."""
    end = time.monotonic() + seconds
    try:
        while True:
            try:
                return child.wait(min(2.0, max(0.0, end - time.monotonic())))
            except subprocess.TimeoutExpired:
                if time.monotonic() >= end:
                    return None
                say(f"{seconds - (end - time.monotonic()):.0f} s of at most {seconds:.0f}")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


@contextlib.contextmanager
def scratch() -> Any:
    """A folder for one run. Raises TorchportError where there is no room for it."""
    try:
        with tempfile.TemporaryDirectory(prefix="torchport-predict-") as folder:
            yield Path(folder)
    except OSError as error:
        if error.errno is None or error.filename is None or "torchport-predict-" not in str(error.filename):
            raise
        raise TorchportError(
            f"no temporary folder could be used: {error}", hint="Set TMPDIR to one with room."
        ) from error
