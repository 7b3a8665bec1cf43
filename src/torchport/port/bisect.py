"""Run a script again and again with some operators computed by the CPU, until its loss follows the reference."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torchport.compare import halving
from torchport.compare.halving import Found
from torchport.errors import TorchportError
from torchport.launch import keeper
from torchport.port import surroundings
from torchport.port.plan import Plan
from torchport.port.progress import Progress
from torchport.port.watch import Watch
from torchport.record import recording, session
from torchport.record.recording import Recording

REFERENCE, RUN = PHASES = ("reference", "run")
STEPS = 4  # of each run, where nobody says: an update is seen in the loss behind it


@dataclasses.dataclass(frozen=True, slots=True)
class Bisected:
    """What was found, and what it rests on: `away` is how far the loss on the device is from the reference's, `seen`
    how often it was asked for each operator, `refused` those that the CPU could not compute in its place, `steps` how
    many of them were compared."""

    found: Found
    away: float
    seen: Mapping[str, int]
    refused: Sequence[str]
    steps: int

    def to_json(self) -> dict[str, Any]:
        """For machines."""
        return {
            "outcome": self.found.outcome,
            "operators": list(self.found.names),
            "sentence": self.found.sentence,
            "away": str(self.away),
            "bound": self.found.bound,
            "steps": self.steps,
            "candidates": len(self.seen),
            "refused": list(self.refused),
            "runs": [dataclasses.asdict(one) | {"distance": str(one.distance)} for one in self.found.tries],
        }


def bisect_plan(
    plan: Plan, environments: Mapping[str, Mapping[str, str]], progress: Progress, reference: Path | None = None
) -> Bisected:
    """Find the operator that takes the loss of `plan`'s command away on the NPU.

    `environments` has the variables of a run on the "cpu" and on the "npu". The reference is run on the CPU, or is the
    recording in the folder `reference`; each run begins with its weights. Raises TorchportError where the script
    reaches no loss.
    """
    with _folder() as folder:
        runs = _Runs(plan, environments, progress, folder)
        known = runs.run_reference() if reference is None else Recording.from_directory(reference)
        losses = _losses(known)
        runs.begin_with(known)
        plain = runs.run_on_npu([])
        counts: dict[str, int] = {}
        for event in plain.of_kind("seen"):
            for name, count in event["operators"].items():
                counts[name] = counts.get(name, 0) + int(count)
        steps = len(next(iter(losses.values())))
        away = halving.measure_loss_distance(losses, _losses(plain))
        refused: set[str] = set()

        def far(names: Sequence[str]) -> float:
            made = runs.run_on_npu(names)
            refused.update(name for event in made.of_kind("seen") for name in event["refused"])
            return halving.measure_loss_distance(losses, _losses(made))

        found = halving.halve_candidates(sorted(counts), away, far)
        return Bisected(found, away, counts, sorted(refused), steps)


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="torchport-bisect-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _losses(recorded: Recording) -> Mapping[str, Sequence[float]]:
    """Of the process with the lowest rank."""
    curves = recorded.trained[0].collect_curves() if recorded.trained else {}
    if not curves:
        messages = "; ".join(recorded.last_messages[-2:])
        raise TorchportError(
            f"the run in {recorded.path} reached no loss{f': {messages}' if messages else ''}",
            hint="`torchport run` shows what the script says.",
        )
    return curves


class _Runs:
    """The runs of one command, each in a folder of its own."""

    def __init__(
        self, plan: Plan, environments: Mapping[str, Mapping[str, str]], progress: Progress, folder: Path
    ) -> None:
        self._plan = plan
        self._environments = environments
        self._progress = progress
        self._folder = folder
        self._weights = ""
        self._kind = ""
        self._count = 0

    def run_reference(self) -> Recording:
        """The script on the CPU."""
        place = self._folder / REFERENCE
        weights = str(place / recording.WEIGHTS)
        return self._record(place, "cpu", session.REFERENCE, {"save": weights}, "reference on the CPU")

    def begin_with(self, known: Recording) -> None:
        """The weights of the reference are those of the runs that follow."""
        weights = known.path / recording.WEIGHTS
        self._weights = str(weights.resolve()) if weights.is_dir() else ""
        self._kind = known.trained[0].step_kind

    def run_on_npu(self, names: Sequence[str]) -> Recording:
        """The script on the NPU with the operators `names` computed by the CPU."""
        self._count += 1
        what = f"{len(names)} operators on the CPU" if names else "on the NPU"
        changes = {"load": self._weights, "on_cpu": list(names), "kind": self._kind}
        return self._record(self._folder / f"{RUN}{self._count}", "npu", session.NPU, changes, what)

    def _record(self, place: Path, on: str, side: str, changes: Mapping[str, Any], what: str) -> Recording:
        self._progress.start_step(REFERENCE if on == "cpu" else RUN, what)
        place.mkdir()
        options = session.Options(
            str(place),
            side=side,
            roots=[str(folder) for folder in self._plan.list_viewed_folders()],
            steps=self._plan.steps,
            **changes,
        )
        command = self._plan.launch.command
        recording.begin_recording(place, side=side, command=command, device=on, seed=options.seed)
        environment = {**surroundings.SAME, **self._environments[on], session.VARIABLE: options.to_variable()}
        program = shutil.which(command[0], path=environment.get("PATH")) or command[0]
        keeper.run_with_keeper(
            [program, *command[1:]],
            environment,
            self._plan.folder,
            place / recording.STDOUT,
            place / recording.STDERR,
            Watch(place, self._plan.timeout, self._progress),
        )
        made = Recording.from_directory(place)
        self._progress.finish_step(f"{what}: {made.steps} steps")
        return made
