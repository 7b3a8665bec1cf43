"""All quantities of two runs, compared: which differ, from which step on, and what is said of it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence

from torchport.compare.conditions import error_finding
from torchport.compare.controls import Fault, read_faults
from torchport.compare.series import (
    CHANGE,
    GRADIENT,
    INPUTS,
    LOSS,
    OUTPUT,
    UPLOAD,
    Key,
    Series,
    collect_series,
    list_restarts,
)
from torchport.compare.tolerance import Tolerance
from torchport.compare.yardstick import Pair, Yardstick
from torchport.findings import Finding
from torchport.record.recording import Process, Recording
from torchport.record.uploads import VISITS
from torchport.results.comparison import Difference, Place, Quantity

MOST_FIRST = 20
SAYS_NOTHING = 1.0  # relative: by such a bound a value may be anything, zero too
# The first of several that differ in the same step is what explains the others.
ORDER = (UPLOAD, INPUTS, OUTPUT, LOSS, GRADIENT, CHANGE)
_WHAT = {
    UPLOAD: "data that are copied to the device at",
    INPUTS: "data that a model is given at",
    GRADIENT: "gradient of",
    CHANGE: "change of",
}
_HINT = {
    UPLOAD: "Look at how the data are read, shuffled and augmented: what is chosen by the device there?",
    INPUTS: "Look at what is done to the data on the device before the model has them.",
    GRADIENT: "Look at the loss, the parts of the model behind that parameter, clipping, and what is frozen.",
    CHANGE: "Look at the optimizer, and at what else changes parameters.",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Side:
    """One process of a run that trained, as series."""

    process: Process
    series: dict[Key, Series]
    restarts: list[int]

    @classmethod
    def all_of(cls, recording: Recording | None) -> list[Side]:
        """The processes of a run, by rank."""
        trained = () if recording is None else recording.trained
        return [cls(one, collect_series(one), list_restarts(one)) for one in trained]


@dataclasses.dataclass(frozen=True, slots=True)
class Compared:
    """The quantities of one process in both runs, with its yardstick, and what its control run did wrong; `noise` is
    the run that the yardstick was measured by."""

    prefix: str
    reference: Side
    port: Side
    control: Side | None
    noise: Side | None
    yardstick: Yardstick
    pairs: list[Pair]
    faults: list[Fault]

    def select_pairs(self, *kinds: str) -> list[Pair]:
        """The quantities of these kinds."""
        return [pair for pair in self.pairs if pair.key[0] in kinds]


def compare_quantities(
    reference: Recording,
    port: Recording,
    control: Recording | None,
    longer: Sequence[Recording],
    tolerance: Tolerance,
    *,
    forced: bool = False,
    given: float | None = None,
) -> list[Compared]:
    """The quantities of each process, rank by rank. `longer` are control runs with nothing wrong, each
    with other noise: a quantity may be as far as in that one which moved it most."""
    several = len(reference.trained) > 1
    controls, longers = Side.all_of(control), list(zip(*map(Side.all_of, longer), strict=False))
    found = []
    for rank, (theirs, ours) in enumerate(zip(Side.all_of(reference), Side.all_of(port), strict=False)):
        beside = controls[rank] if rank < len(controls) else None
        made = read_faults(beside.process) if beside is not None else []
        if rank < len(longers):
            yardstick = Yardstick(
                tolerance,
                theirs.series,
                *(one.series for one in longers[rank]),
                given=given,
                restarts=longers[rank][0].restarts,
            )
        else:
            spoilt = [place for fault in made for place in fault.find_touched_steps(theirs.series)]
            moved = [] if beside is None else [beside.series]
            yardstick = Yardstick(tolerance, theirs.series, *moved, spoilt=spoilt, forced=forced, given=given)
        pairs = [
            yardstick.compare_series(key, *_alike(one, ours.series[key]), () if forced else ours.restarts)
            for key, one in theirs.series.items()
            if key in ours.series and (key[0] != UPLOAD or len(one.values) == len(ours.series[key].values))
        ]
        number = theirs.process.rank
        prefix = f"rank {number}, " if several and number is not None else ""
        noise = longers[rank][0] if rank < len(longers) else beside
        found.append(Compared(prefix, theirs, ours, beside, noise, yardstick, pairs, made))
    return found


def _alike(reference: Series, port: Series) -> tuple[Series, Series]:
    """The values of both runs that belong together.

    What is on the device already is not copied there, which the reference, where all is on the host, cannot tell: where
    the numbers of copies differ, they are not the same copies. Copies of several threads have no order, and
    are compared if all of them were recorded.
    """
    if reference.kind != UPLOAD:
        return reference, port
    if reference.by_chance or port.by_chance:
        if len(port.values) >= VISITS or None in port.values:
            return reference.select_places([]), port.select_places([])
        return reference.sort_values(), port.sort_values()
    both = [place for place, value in enumerate(port.values) if value is not None]
    return reference.select_places(both), port.select_places(both)


def find_quantity_differences(both: Sequence[Compared]) -> Iterator[tuple[int, Finding]]:
    """What the quantities other than losses say: for each kind and process the first that differs, and its step."""
    for one in both:
        gradients = any(pair.first is not None for pair in one.select_pairs(GRADIENT))
        for kind in (UPLOAD, INPUTS, GRADIENT, CHANGE):
            differing = [(pair, place) for pair in one.select_pairs(kind) if (place := pair.first) is not None]
            if not differing:
                continue
            pair, place = min(differing, key=lambda found: found[0].reference.at[found[1]])
            step = pair.reference.at[place]
            also = f", and {len(differing) - 1} more" if len(differing) > 1 else ""
            yield (
                step,
                error_finding(
                    "TP354",
                    f"the {_WHAT[kind]} {one.prefix}{pair.reference.name}{also} differs from step {step} on: "
                    f"{_values(pair, place)}",
                    _HINT[kind] if kind != CHANGE or gradients else f"The gradients agree. {_HINT[kind]}",
                    step=step,
                ),
            )


def _values(pair: Pair, place: int) -> str:
    ours, theirs = pair.port.values[place], pair.reference.values[place]
    if ours is None or theirs is None:
        return "there is none" if ours is None else "the original has none"
    bound = pair.allowed[place]
    return f"{ours:.6g} against {theirs:.6g}, {pair.errors[place]:.1e} relative where {bound:.1e} is allowed"


def summarize_quantities(both: Sequence[Compared]) -> Iterator[Quantity]:
    """For each kind of quantity: the number of values compared, and the worst against its bound; values that rounding
    alone makes are left out."""
    for kind in ORDER:
        pairs = [(one, pair) for one in both for pair in one.select_pairs(kind)]
        judged = [
            (error_, bound, one, pair, place)
            for one, pair in pairs
            for place, (error_, bound) in enumerate(zip(pair.errors, pair.allowed, strict=True))
            if bound < SAYS_NOTHING or error_ > bound
        ]
        if not judged:
            continue
        worst = max(judged, key=lambda row: row[0] / row[1] if row[1] else row[0])
        value, bound, one, pair, place = worst
        yield Quantity(
            kind,
            len(judged),
            steps=max(sum(math.isfinite(bound) for bound in pair.allowed) for _, pair in pairs),
            worst=value if math.isfinite(value) else None,
            at=Place(pair.reference.at[place], one.prefix + pair.reference.name),
            allowed=bound,
            noise=None if not pair.noise or place >= len(pair.noise) else pair.noise[place],
        )


def list_first_differences(both: Sequence[Compared]) -> list[Difference]:
    """Where the runs part: the first difference of each quantity, the earliest step first."""
    found: list[Difference] = []
    for one in both:
        for pair in one.pairs:
            place = pair.first
            if place is None:
                continue
            value = pair.errors[place]
            found.append(
                Difference(
                    step=pair.reference.at[place],
                    kind=pair.key[0],
                    name=one.prefix + pair.reference.name,
                    reference=pair.reference.values[place],
                    port=pair.port.values[place],
                    error=value if math.isfinite(value) else None,
                    noise=None if not pair.noise or place >= len(pair.noise) else pair.noise[place],
                    allowed=pair.allowed[place],
                )
            )
    found.sort(key=lambda row: (row.step, ORDER.index(row.kind), -(row.error or math.inf)))
    return found[:MOST_FIRST]
