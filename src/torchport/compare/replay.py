"""Every recorded operator computed again from its own recorded inputs: in float64, and in its own dtype on the CPU.

What a result is further from float64 than the CPU's is, was introduced by that operator: what its inputs brought along
is in both. So one recording is enough, and nothing has to be aligned. The work is done in a process of its own
(`replayed`), which needs torch.
"""

from __future__ import annotations

import csv
import dataclasses
import importlib.util
import io
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from torchport.errors import TorchportError
from torchport.record.gelu import NOTE
from torchport.record.operators import layout
from torchport.record.operators.reading import Operators

JUDGED, UNKNOWN = "judged", "not judged"
ENOUGH = 3  # steps are judged where nobody says which


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One call. `kind` is judged, view, random, memory or "not judged" (`why` says why); `score` and the relative
    errors are those of its worst result (`scores.Score`), `bytes` those of its floating-point results, of which
    `unseen` were not compared."""

    step: int
    call: int
    kind: str
    operator: str
    overload: str = ""
    phase: str = ""
    module: str = ""
    function: str = ""
    source: str = ""
    names: Sequence[str] = ()
    why: str = ""
    score: float = 1.0
    error: float = 0.0
    bound: float = 0.0
    cpu: float = 0.0
    declared: float = 0.0
    of_one: float = 0.0
    wrong: bool = False
    spoilt: str = ""
    result: int = 0
    lost: str = ""
    bytes: int = 0
    unseen: int = 0

    @property
    def configured(self) -> bool:
        """Whether only the precision that the device declares explains its error."""
        return not self.wrong and self.score > 10 and self.declared > 0


@dataclasses.dataclass(frozen=True, slots=True)
class Replay:
    """All rows of the steps that were judged, in the order of calls."""

    rows: Sequence[Row]
    steps: Sequence[int]

    @property
    def wrong(self) -> list[Row]:
        """The operators that nothing declared explains, in the order of calls."""
        return [row for row in self.rows if row.wrong]

    @property
    def first(self) -> Row | None:
        """The operator that is wrong first."""
        return next(iter(self.wrong), None)

    @property
    def share(self) -> float:
        """Of the bytes of floating-point results that are no views and not drawn: how many were judged."""
        judged = sum(row.bytes - row.unseen for row in self.rows if row.kind == JUDGED)
        all_ = sum(row.bytes for row in self.rows if row.kind in (JUDGED, UNKNOWN))
        return judged / all_ if all_ else 1.0

    def to_csv(self) -> str:
        """A line for each call."""
        text = io.StringIO()
        names = [field.name for field in dataclasses.fields(Row)]
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(names)
        writer.writerows(
            [" ".join(row.names) if name == "names" else getattr(row, name) for name in names] for row in self.rows
        )
        return text.getvalue()

    @property
    def unjudged(self) -> list[tuple[str, str, int]]:
        """Operators that were not judged, why, and how often."""
        found = Counter((row.operator, row.why) for row in self.rows if row.kind == UNKNOWN)
        return [(operator, why, count) for (operator, why), count in found.most_common()]


def has_tensors(recorded: Operators) -> bool:
    """Whether a recording keeps what its operators were given and gave."""
    for process in recorded.processes:
        for number in process.steps[:1]:
            with process.step(number) as step:
                return step.about.get("level") == layout.TENSOR
    return False


def replay_recording(path: str | Path, *, rank: int = 0, steps: Iterable[int] | None = None) -> Replay:
    """Judge the calls of a recording's `steps` (its first ENOUGH by default) in the process of `rank`.

    Raises TorchportError where torch is missing, there are no such steps, or they were recorded without tensors.
    """
    recorded = Operators.read(path)
    process = recorded.rank(rank)
    numbers = list(process.steps[:ENOUGH] if steps is None else steps)
    for number in numbers:
        with process.step(number) as step:
            level = step.about.get("level")
        if level != layout.TENSOR:
            raise TorchportError(
                f"{recorded.path} has step {number} at level {level}, without the content of its tensors",
                hint="Record them: torchport run --record DIR --level tensor SCRIPT",
            )
    if importlib.util.find_spec("torch") is None:
        raise TorchportError(
            "to compute recorded operators again needs torch, which is not installed here",
            hint="pip install torch, or compare where it is installed.",
        )
    settings = [event["settings"] for event in recorded.recording.of_kind("device")]
    job = {
        "recording": str(recorded.path.resolve()),
        "rank": rank,
        "steps": numbers,
        "settings": settings[-1] if settings else {},
        "tanh": any(NOTE in event["text"] for event in recorded.recording.of_kind("note")),
    }
    return Replay([Row(**row) for row in _rows(job)], numbers)


def _rows(job: dict[str, Any]) -> Iterable[dict[str, Any]]:
    # The replay computes on the CPU: a backend that loads itself is none of its business.
    # Threads that wait for work by spinning take it from whoever else computes here.
    environment = {"OMP_WAIT_POLICY": "PASSIVE", **os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    command = [sys.executable, "-m", "torchport.compare.replayed"]
    child = subprocess.run(command, input=json.dumps(job), capture_output=True, text=True, check=False, env=environment)
    if child.returncode:
        last = child.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        raise TorchportError(
            f"computing the operators again ended with status {child.returncode}: {last[0]}",
            hint="Is torch whole? `python -c 'import torch'`. Fewer steps at once need less memory.",
        )
    for line in child.stdout.splitlines():
        row = json.loads(line)
        if "error" in row and "kind" not in row:
            raise TorchportError(row["error"], hint=row["hint"])
        yield row
