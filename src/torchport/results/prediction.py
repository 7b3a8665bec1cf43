"""The data of `torchport predict`: whether a script fits a chip, and the time of a step. Nothing is NaN in its JSON."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from torchport.results import codec


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """One step. Times in milliseconds: `time` from the end of one step to the end of the next, `busy` that some stream
    worked, `exposed` that nothing but communication did, `units` by unit, `operators` by operator with their number."""

    time: float
    busy: float
    exposed: float
    units: Mapping[str, float]
    operators: Mapping[str, tuple[int, float]]
    launches: int
    converted: float
    bound: str


@dataclasses.dataclass(frozen=True, slots=True)
class Peak:
    """The most that the allocator held, in bytes. `owners` and `modules` (activations, by module) are the memory that
    was alive then; `rounding` is the part of `allocated` that no tensor asked for, `fragmentation` what was reserved
    beyond it. `curve` are bytes over the timed step, evenly spaced over its allocations."""

    allocated: int
    reserved: int
    total: int
    owners: Mapping[str, int]
    modules: Mapping[str, int]
    rounding: int
    fragmentation: int
    curve: tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Loading:
    """The data loader of one rank: `time`, milliseconds of this machine's processor that a step's batches take, which
    `workers` share (0: the program itself makes them, before the step). `paced` is the step's time with it."""

    time: float
    workers: int
    paced: float


@dataclasses.dataclass(frozen=True, slots=True)
class Ranks:
    """The prediction for a number of ranks: of the slowest one its step, the largest peak, and samples a second of all.

    `failure` is why they do not fit, or did not run, "" if they do; `resident` the bytes of this machine's memory that
    their processes held together, `wall_step` and `processor_step` the seconds that the timed step took here. `timed`
    is the number of this step, from 1, and `batches` the samples of one rank in each step. Numbers are NaN if there
    was no step.
    """

    ranks: int
    fits: bool
    failure: str
    step: Step | None
    low: float
    high: float
    samples: float
    timed: int
    batches: tuple[float, ...]
    throughput: float
    loading: Loading | None
    peak: Peak | None
    resident: int
    seconds: float
    wall_step: float
    processor_step: float

    @property
    def rate(self) -> float:
        """Samples a second, 0 if they are not known."""
        return self.throughput if math.isfinite(self.throughput) else 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class Read:
    """A line that reads a value of the device, by which `call` and how often."""

    path: str
    line: int
    call: str
    count: int


@dataclasses.dataclass(frozen=True, slots=True)
class Trial:
    """A change that was tried because memory was out: whether it fits, and its peak in bytes (None if not)."""

    change: str
    fits: bool
    peak: int | None
    owners: Mapping[str, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Task:
    """A task of the timed step: `at` and `us` are microseconds, from the step's begin and long."""

    name: str
    stream: int
    unit: str
    at: float
    us: float
    shapes: tuple[tuple[int, ...], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Prediction:
    """A script on a chip.

    `fits` and `failure` are the ones of what was asked for: `many` if that is there, else `one`, which is the script as
    it is started without more ranks. `reads` are the lines that read values of the device and `unknown_reads` how
    often; `unfilled` the bytes of weights made on the host that were given no values, of which the script has read
    `unfilled_read`; `shapes` operators with sizes that depend on data, and `sizes` what those were taken to be;
    `compiled` that the script calls torch.compile, which does nothing here; `advice` the changes that were tried.
    """

    soc: str
    steps: int
    fits: bool
    failure: str
    one: Ranks
    many: Ranks | None
    validated: str
    reads: tuple[Read, ...]
    unknown_reads: int
    unfilled: int
    unfilled_read: int
    shapes: Mapping[str, int]
    sizes: str
    compiled: bool
    advice: tuple[Trial, ...]
    timeline: tuple[Task, ...]

    def to_json(self) -> dict[str, Any]:
        """The prediction as JSON values. JSON has no NaN: a number that is not known is null."""
        found: dict[str, Any] = codec.to_json(self, not_finite=lambda _: None)
        return found
