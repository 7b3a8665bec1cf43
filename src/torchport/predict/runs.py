"""Dry runs of the user's command: what is started, with what in its environment, and what it left."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torchport.errors import TorchportError
from torchport.launch import Launch, host_memory, keeper
from torchport.predict.session import NOTES, VARIABLE, Options

TIMELINE = "timeline-%p.vnputl"
TIME, MEMORY = "time", "memory"
LOOK_SECONDS = 0.5
SAY_SECONDS = 5.0
_LAST_LINES = 400  # a launcher writes a page behind the exception of a rank


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """What is predicted: `launch` in `environment`, for `steps` steps or `seconds`, on the chip `soc`. `host_bytes` is
    what its processes may take of this machine's memory; 0: what there is."""

    launch: Launch
    environment: Mapping[str, str]
    soc: str
    steps: int = 3
    seconds: float = 300.0
    host_bytes: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Ran:
    """What a run has left: notes and log of each rank in their order, its exit status, why it was stopped (TIME, MEMORY
    or "" where it ended itself), the most that its processes held together of this machine's memory, wall seconds, the
    last lines that it wrote."""

    notes: list[dict[str, Any]]
    logs: list[Path]
    status: int
    stopped: str
    held: int
    seconds: float
    tail: str


def run_dry(plan: Plan, folder: Path, trial: str = "", say: Callable[[str], None] = lambda _: None) -> Ran:
    """Run the plan dry, with its notes in `folder`. The script's output goes to files there; nothing of it is left
    running."""
    environment = {
        **plan.environment,
        VARIABLE: Options(str(folder), plan.steps, trial).to_variable(),
        "VNPU_MODE": "dry",
        "VNPU_TIME": "model",
        "VNPU_SOC": plan.soc,
        "VNPU_TIMELINE": str(folder / TIMELINE),
        # Compilers trace what is noted here too, until they give up; without them the operators are those of the model.
        "TORCHDYNAMO_DISABLE": "1",
        "OMP_NUM_THREADS": plan.environment.get("OMP_NUM_THREADS", "1"),
    }
    output, errors = folder / "output", folder / "errors"
    watch = _Watch(plan, say)
    ended = keeper.run_with_keeper(plan.launch.command, environment, Path.cwd(), output, errors, watch)
    lines = [line for path in (output, errors) for line in path.read_bytes().decode("utf-8", "replace").splitlines()]
    notes = sorted(
        (json.loads(path.read_text()) | {"file": path.stem} for path in folder.glob(f"{NOTES}-*.json")),
        key=lambda note: note["rank"],
    )
    # A launcher's own process, and others that never came to the device, have nothing to say.
    notes = [note for note in notes if note["memory"] or note["reads"] or note["elsewhere"] or _failed_itself(note)]
    logs = [folder / TIMELINE.replace("%p", note["file"].rpartition("-")[2]) for note in notes]
    held = max(watch.held, sum(note["held"] for note in notes))
    if len(notes) == 1:
        held = max(held, notes[0]["most_resident"])
    return Ran(notes, logs, ended.status, ended.stopped, held, ended.seconds, "\n".join(lines[-_LAST_LINES:]))


def _failed_itself(note: dict[str, Any]) -> bool:
    """Not torchrun, whose error says that a rank has failed."""
    return bool(note["error"]) and note["error"]["type"] != "ChildFailedError"


class _Watch:
    """Called while a run goes on; gives why it is to be stopped."""

    def __init__(self, plan: Plan, say: Callable[[str], None]) -> None:
        self._plan = plan
        self._say = say
        self._looked = 0.0
        self._said = 0.0
        self.held = 0

    def __call__(self, seconds: float) -> str:
        if seconds - self._looked >= LOOK_SECONDS:
            self._looked = seconds
            self.held = max(self.held, host_memory.measure_process_memory(keeper.list_descendants()))
            if (self._plan.host_bytes and self.held > self._plan.host_bytes) or host_memory.is_gone():
                return MEMORY
        if seconds - self._said >= SAY_SECONDS:
            self._said = seconds
            self._say(f"{seconds:.0f} s of at most {self._plan.seconds:.0f}")
        return TIME if seconds > self._plan.seconds else ""


@contextlib.contextmanager
def make_scratch_folder() -> Any:
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
