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
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torchport.errors import TorchportError
from torchport.record.gelu import NOTE
from torchport.record.operators import layout
from torchport.record.operators.reading import Operators

JUDGED, UNKNOWN = "judged", "not judged"
# Judged where nobody says which: the first steps of the first rank, and one of each other rank; of all, the last one
# and the one in which the runs part. A fault of a later step or of one card shows in them.
ENOUGH = 3
MOST_RANKS = 8


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One call. `kind` is judged, view, random, memory or "not judged" (`why` says why); `score` and the relative
    errors are those of its worst result (`scores.Score`), `bytes` those of its floating-point results, of which
    `unseen` were not compared."""

    step: int
    call: int
    kind: str
    operator: str
    rank: int = 0
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
    """All rows of what was judged, by step, rank and call: `judged` has the steps of each rank, `recorded` how many
    steps all ranks have."""

    rows: Sequence[Row]
    judged: Mapping[int, Sequence[int]]
    recorded: int = 0

    @property
    def steps(self) -> list[int]:
        """The steps of which something was judged."""
        return sorted({step for steps in self.judged.values() for step in steps})

    @property
    def reach(self) -> str:
        """The judged steps in words: "steps 0, 1, 2, 8 of rank 0; step 0 of ranks 1, 2"."""
        if len(self.judged) == 1:
            return _count_steps(next(iter(self.judged.values())))
        groups: dict[tuple[int, ...], list[int]] = {}
        for rank, steps in self.judged.items():
            groups.setdefault(tuple(steps), []).append(rank)
        return "; ".join(
            f"{_count_steps(steps)} of rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
            for steps, ranks in groups.items()
        )

    @property
    def left_out(self) -> int:
        """How many recorded steps, of all ranks, were not judged."""
        return max(0, self.recorded - sum(map(len, self.judged.values())))

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


def choose_steps(
    recorded: Operators, ranks: Sequence[int] | None = None, parted: int | None = None
) -> dict[int, list[int]]:
    """The steps of each rank that are judged where nobody says which; `parted` is the one in which the runs part. Of
    `ranks` that are asked for, each is judged as the first is."""
    asked = [number if one.rank is None else one.rank for number, one in enumerate(recorded.processes)]
    found = {}
    for place, rank in enumerate(asked[:MOST_RANKS] if ranks is None else ranks):
        steps = recorded.rank(rank).steps
        wanted = {*steps[: ENOUGH if place == 0 or ranks is not None else 1], *steps[-1:]}
        if parted is not None and parted in steps:
            wanted.add(parted)
        if wanted:
            found[rank] = sorted(wanted)
    return found


def replay_recording(
    path: str | Path,
    *,
    ranks: Sequence[int] | None = None,
    steps: Sequence[int] | None = None,
    parted: int | None = None,
) -> Replay:
    """Judge the calls of a recording: `steps` of `ranks`, and where one is not given, as `choose_steps` says.

    Raises TorchportError where torch is missing, there are no such steps, or they were recorded without tensors.
    """
    recorded = Operators.read(path)
    chosen = choose_steps(recorded, ranks, parted)
    if steps is not None:
        chosen = dict.fromkeys(chosen, sorted(set(steps)))
    for rank, numbers in chosen.items():
        process = recorded.rank(rank)
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
        "ranks": list(chosen.items()),
        "settings": settings[-1] if settings else {},
        "tanh": any(NOTE in event["text"] for event in recorded.recording.of_kind("note")),
    }
    rows = sorted((Row(**row) for row in _rows(job)), key=lambda row: (row.step, row.rank))  # each in order of calls
    return Replay(rows, chosen, sum(len(process.steps) for process in recorded.processes))


def _count_steps(steps: Sequence[int]) -> str:
    return f"step{'' if len(steps) == 1 else 's'} {', '.join(map(str, steps))}"


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
