"""The data of a comparison of two runs, which `compare` and `port` leave.

Errors are relative to the value of the reference. `allowed` is the bound of an error: infinite if the value is not
judged by itself, None if the value has to be equal. `noise` is how far rounding alone moved the original, None if that
was not measured.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

STEPWISE = "step by step"


@dataclasses.dataclass(frozen=True, slots=True)
class Window:
    """Mean losses over the steps [start, end), and the difference that chance explains."""

    start: int
    end: int
    reference: float
    port: float
    allowed: float
    holds: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class Curve:
    """The values that both runs recorded at one place in the script, such as the loss at `train.py:20`.

    `errors`, `noise` and `allowed` are of the steps that both have; `windows` are the means that a statistical
    comparison looks at.
    """

    name: str = ""
    what: str = "loss"
    reference: tuple[float | None, ...] = ()
    port: tuple[float | None, ...] = ()
    errors: tuple[float, ...] = ()
    noise: tuple[float, ...] | None = None
    allowed: tuple[float, ...] = ()
    windows: tuple[Window, ...] = ()

    @property
    def title(self) -> str:
        """ "loss at train.py:20"."""
        return f"{self.what} at {self.name}" if self.name else self.what


@dataclasses.dataclass(frozen=True, slots=True)
class Steps:
    """How many steps each run did; `kind` says what a step is."""

    kind: str
    reference: int
    port: int


@dataclasses.dataclass(frozen=True, slots=True)
class Covered:
    """Of the steps that both runs did, how many were compared one by one (`single`), and how many by means alone."""

    single: int = 0
    means: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Seconds:
    """The median time of a step of each run; None for less than two steps."""

    reference: float | None = None
    port: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Worst:
    """The largest error of a loss: in the first steps, and in the whole run; None if nothing was compared."""

    first: float | None
    run: float | None


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """A step, and the name of the quantity."""

    step: int
    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class Quantity:
    """One kind of quantity: how many values were compared, and the worst error, which is None if it is not finite."""

    kind: str
    compared: int
    steps: int = 0
    worst: float | None = None
    at: Place | None = None
    allowed: float | None = None
    noise: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Difference:
    """The first value of a quantity that differs by more than is allowed.

    `error` is None if the values have no size, such as checksums, or if it is not finite.
    """

    step: int
    kind: str
    name: str
    reference: float | str | None
    port: float | str | None
    error: float | None
    noise: float | None = None
    allowed: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Noticed:
    """A quantity that showed a fault of the control run."""

    kind: str
    name: str
    error: float
    allowed: float


@dataclasses.dataclass(frozen=True, slots=True)
class ControlRow:
    """One fault of the control run: where it was put, and the quantities that noticed it, the clearest first.

    `possible` is false if the script has no place for it; `why` says why. `repeats` names the fault that a late one is
    the same as.
    """

    name: str
    words: str
    step: int | None = None
    where: str = ""
    possible: bool = True
    why: str = ""
    noticed: tuple[Noticed, ...] = ()
    repeats: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Controls:
    """Which faults this comparison was seen to notice; if not `measured`, `why` says why.

    `smallest` names the smallest changes that were noticed.
    """

    measured: bool
    why: str = ""
    rows: tuple[ControlRow, ...] = ()
    smallest: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Roundoff:
    """A format in which the device declares that it computes, its unit roundoff, and where that is documented."""

    name: str
    roundoff: float
    source: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Yardstick:
    """The rounding that the control run showed: how far it moved each kind of quantity in `steps` steps.

    `chaotic` is the step from which on rounding alone decides what the original computes.
    """

    steps: int
    noise: str
    spread: Mapping[str, float | None]
    chaotic: int | None = None
    declared: tuple[Roundoff, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class ForcedSteps:
    """Steps that were compared one by one, each from the original's own state; the states have `bytes` bytes."""

    steps: int
    bytes: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Draw:
    """The random numbers that an operator of the device drew by itself, and the moments of their law."""

    operator: str
    site: str
    dtype: str
    count: int
    mean: float | None = None
    expected_mean: float | None = None
    variance: float | None = None
    expected_variance: float | None = None
    holds: bool = True
    why: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class MetricRow:
    """A metric that both runs print, by its last value; values are in the unit that is printed (`compare.metrics`)."""

    name: str
    unit: str
    reference: float
    port: float
    total: int | None
    port_total: int | None
    percent: bool
    allowed: float | None
    holds: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Evidence:
    """Where a process computed: operators launched, the steps with some, and devices; "" if unknown."""

    launches: int | None = None
    steps_with: int | None = None
    loss: str = ""
    parameters: str = ""
    gradients: str = ""
    outputs: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class LayerRow:
    """Norms of a layer's gradients or updates (`kind`) at the steps `at`, and the largest relative difference."""

    layer: str
    kind: str
    parameters: int
    drift: float
    step: int
    at: tuple[int, ...]
    reference: tuple[float | None, ...]
    port: tuple[float | None, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Comparison:
    """The data of `compare`, and of `port` under `comparison`.

    `method` says how the bounds were applied, `chance` why single steps could not be compared. `first` are the first
    differences, the earliest step first; `errors` the worst error of each step; `culprit` the operator that is wrong
    first (`compare.culprit`); `evidence` has one entry for each process of the port. `unchecked` says what was not
    compared.
    """

    verdict: str
    reason: str
    decide: tuple[str, ...]
    method: str
    chance: tuple[str, ...]
    tolerance: Mapping[str, Any]
    statistical: Mapping[str, Any]
    steps: Steps
    worst: Worst
    seconds: Seconds
    curves: tuple[Curve, ...]
    errors: tuple[float, ...]
    quantities: tuple[Quantity, ...]
    culprit: Mapping[str, Any] | None
    layers: tuple[LayerRow, ...]
    first: tuple[Difference, ...]
    controls: Controls
    yardstick: Yardstick | None
    forced: ForcedSteps | None
    draws: tuple[Draw, ...]
    metrics: tuple[MetricRow, ...]
    evidence: tuple[Evidence, ...]
    unchecked: tuple[str, ...] = ()
    covered: Covered = Covered()

    @property
    def is_stepwise(self) -> bool:
        """Whether single steps were judged, not means over many."""
        return self.method.startswith(STEPWISE) and not self.chance
