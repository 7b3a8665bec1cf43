"""The data that the steps of `torchport port` leave, and the data of the whole."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from torchport.results.codec import OMITTED
from torchport.results.comparison import Comparison, Evidence
from torchport.results.conversion import Summary
from torchport.results.used_devices import name_card

Command = tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Conversion:
    """The step `convert`: what was rewritten, as a unified diff, and the files that were converted."""

    command: Command
    diff: str
    summary: Summary
    files: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class WrittenFile:
    """A file that a run left: `path` in the user's folder, `change` created, changed or removed, `size` in bytes."""

    path: str
    change: str = ""
    size: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Card:
    """An NPU that a process opened: its `device` there, its `number` on the machine, the most bytes `held` on it."""

    device: str
    number: str
    held: int

    @property
    def name(self) -> str:
        """The device, with the card's number where that is another."""
        return name_card(self.device, self.number)


@dataclasses.dataclass(frozen=True, slots=True)
class RankCards:
    """The NPUs that a rank opened, the one that it works on first."""

    rank: int
    cards: tuple[Card, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Run:
    """The steps `reference` and `npu`: how the run of one side went.

    `status` is the exit status, negative for a signal, None for a run that was `skipped` or stopped from outside.
    `ended` says why torchport ended it ("timeout", "memory", "steps", "enough"; "" if it did not). `modules` are the
    user's modules that it imported, `outside` the paths outside of its folder that it wrote to, `given` the recording
    that was taken in place of a run, `evidence` what shows that it used the NPU, `cards` the NPUs of several ranks.
    """

    command: Command
    status: int | None
    steps: int
    seconds: float
    device: str
    ended: str
    files: tuple[WrittenFile, ...]
    modules: tuple[str, ...]
    notes: tuple[str, ...]
    outside: tuple[str, ...] = ()
    skipped: bool = False
    timed_out: bool = False
    ranks: int = 1
    given: str | None = dataclasses.field(default=None, metadata=OMITTED)
    evidence: Evidence | None = dataclasses.field(default=None, metadata=OMITTED)
    cards: tuple[RankCards, ...] | None = dataclasses.field(default=None, metadata=OMITTED)


@dataclasses.dataclass(frozen=True, slots=True)
class ControlRun:
    """The step `control`: the original once more, with rounding noise and, if `faults`, with small faults.

    `why` says why it did fewer steps than it was asked for ("" if it did them), `messages` are its last words and
    `formats` the formats in which it computed float32 as an NPU does.
    """

    command: Command
    status: int | None
    steps: int
    seconds: float
    why: str
    messages: tuple[str, ...]
    formats: Mapping[str, str]
    faults: bool


@dataclasses.dataclass(frozen=True, slots=True)
class FileRow:
    """A file of both runs: `reference` and `port` say what each run left ("" for nothing).

    `equal` is None if the contents cannot be compared; `difference` is the largest relative difference of numbers, of
    norms for tensors.
    """

    name: str
    kind: str
    reference: str
    port: str
    equal: bool | None
    difference: float | None
    note: str


@dataclasses.dataclass(frozen=True, slots=True)
class SumOrder:
    """Another order of adding than the CPU's, of the virtual NPU: its seed, and how many of the first step's `results`
    of operators are `unequal` to the original's in any bit; 0 of 0 if that was not counted."""

    seed: int
    results: int = 0
    unequal: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class UnconvertedModule:
    """The first place in a file that speaks of CUDA; `line` counts from 1.

    `changes` tells whether converting the file would change it; if not, it names CUDA and a person has to look.
    """

    path: str
    line: int
    why: str
    changes: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class Judged:
    """The step `compare`: the verdict, its reason, what would decide an open one, and what it rests on.

    `comparison` is None if one of the runs is missing; `modules` are the user's modules that were not converted;
    `unchecked` says what was not compared, `sums` that the port added in another order than the CPU's.
    """

    command: Command
    comparison: Comparison | None
    verdict: str
    reason: str
    decide: tuple[str, ...]
    files: tuple[FileRow, ...]
    modules: tuple[UnconvertedModule, ...]
    unchecked: tuple[str, ...] = ()
    sums: SumOrder | None = dataclasses.field(default=None, metadata=OMITTED)


@dataclasses.dataclass(frozen=True, slots=True)
class PortRuns:
    """The runs of a port, by the name of their step."""

    reference: Run | None = None
    control: ControlRun | None = None
    npu: Run | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Port:
    """The data of `torchport port`.

    `port` is the converted script, `backend` "virtual NPU" or "NPU", `diff` what was rewritten, `notes` what a reader
    of the verdict has to know of the runs, `unchecked` what was not compared, `sums` that the port added in another
    order than the CPU's.
    """

    verdict: str
    reason: str
    decide: tuple[str, ...]
    files: tuple[FileRow, ...]
    modules: tuple[UnconvertedModule, ...]
    comparison: Comparison | None
    script: str
    command: Command
    folder: str
    port: str
    backend: str
    summary: Summary
    diff: str
    runs: PortRuns
    notes: tuple[str, ...]
    unchecked: tuple[str, ...] = ()
    sums: SumOrder | None = dataclasses.field(default=None, metadata=OMITTED)
