"""What rounding does to the original, and what is therefore allowed to the port.

The control run is the original once more, for a few steps, with noise of one unit in the last place. How far each of
its quantities is from the original's is the spread of that quantity; the port may be `Tolerance.spread` times as far.
After the control run's last step the spread is taken to grow on as it grew in its second half, until it is too
large for single steps to say anything. Where the port went on from a state of the original's, its differences begin
anew, and so does the spread.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, takewhile
from typing import Any

from torchport.compare.series import CHANGE, GRADIENT, LOSS, OUTPUT, UPLOAD, Key, Series, count_since_restart
from torchport.compare.tolerance import CHAOTIC, TOLERANCES, UNMEASURED, Tolerance

FASTEST = 2.0  # that the spread is taken to grow by in a step; beyond it nothing can be foretold
# Of steps where more than this would be allowed, none says anything by itself.
MOST = 0.1
# Rounding to half precision leaves about as much of a gradient in each step, so where one batch has a small gradient
# the difference is related to the median of so many steps.
RECENT = 5
# Now and then rounding puts one activation to the other side of a ReLU, or another element first in a maximum. In
# float32 this moves a gradient by up to so much of itself, in so few of its steps that a control run may have had none.
RARE = 3e-3
RARE_SHARE = 1 / 8
RARE_IN_A_ROW = 2  # an optimizer's moments carry it on


@dataclasses.dataclass(frozen=True, slots=True)
class Pair:
    """A quantity in both runs: `errors` relative to the reference, for the steps that both have; infinite where one of
    them has no number. `noise` is the spread up to each step, None without a control run; `allowed` bounds the errors,
    infinite where a step says nothing by itself. `rare` are the places whose error is above the measured bound, and
    explained by what rounding does in few steps (`RARE`)."""

    key: Key
    reference: Series
    port: Series
    errors: list[float]
    noise: list[float] | None
    allowed: list[float]
    rare: tuple[int, ...] = ()

    @property
    def first(self) -> int | None:
        """The first place in the series whose error is above its bound."""
        both = zip(self.errors, self.allowed, strict=True)
        return next((place for place, (error, bound) in enumerate(both) if not error <= bound), None)


def compute_relative_errors(reference: Series, other: Series, *, steady: bool = False) -> list[float]:
    """|other - reference| relative to the reference, for the places that both have; with `steady` to the median of its
    last `RECENT` values, if that is larger. Gradients and updates that do not move the model are equal (`least`)."""
    found = []
    made_of_rounding = reference.kind in (GRADIENT, CHANGE)
    recent = list(_medians_of_recent(reference.values)) if steady else [0.0] * len(reference.values)
    for theirs, ours, least, usual in zip(reference.values, other.values, reference.least, recent, strict=False):
        if theirs is None or ours is None:
            found.append(0.0 if theirs is ours else math.inf)
        elif not math.isfinite(theirs):
            found.append(math.inf if math.isfinite(ours) else 0.0)
        elif not math.isfinite(ours):
            found.append(math.inf)
        elif made_of_rounding and max(abs(theirs), abs(ours)) <= least:
            found.append(0.0)
        else:
            scale = max(abs(theirs), least, usual)
            found.append(abs(ours - theirs) / scale if scale else (0.0 if ours == theirs else math.inf))
    return found


def _medians_of_recent(values: Sequence[float | None]) -> Iterator[float]:
    for place in range(len(values)):
        sizes = [abs(one) for one in values[max(place - RECENT + 1, 0) : place + 1] if one is not None]
        yield statistics.median(size for size in sizes) if sizes and all(map(math.isfinite, sizes)) else 0.0


class Yardstick:
    """Bounds for the quantities of one process, from its control runs `controls` (series by key; there may be none).
    The spread of a quantity is the largest that it has in any of them.

    `spoilt` has (kind, key's place, step) of what a control run did wrong on purpose: those numbers are not rounding.
    With `forced` each step started from the reference's own state: errors do not grow, and all steps are one sample.
    `restarts` are the steps at which the control run went on from a state of the reference's: its spread is that of the
    worst of these windows. `given` is a tolerance that a person gave in place of all this.
    """

    def __init__(
        self,
        tolerance: Tolerance,
        reference: dict[Key, Series],
        *controls: dict[Key, Series],
        spoilt: Iterable[tuple[Key, int]] = (),
        forced: bool = False,
        given: float | None = None,
        restarts: Sequence[int] = (),
    ) -> None:
        self._tolerance = tolerance
        self._given = given
        self._spoilt = set(spoilt)
        self._forced = forced
        self._restarts = restarts
        self.spreads: dict[Key, list[float]] = {}
        for key, theirs in reference.items():
            if spreads := [self._spread(key, theirs, control[key]) for control in controls if key in control]:
                self.spreads[key] = list(_largest(spreads))
        self._pools = {group: list(_medians(rows)) for group, rows in _grouped(self.spreads, 2)}
        self._kinds = {group[0]: list(_medians(rows)) for group, rows in _grouped(self.spreads, 1)}

    def compare_series(self, key: Key, reference: Series, port: Series, restarts: Sequence[int] = ()) -> Pair:
        """The quantity `key` of both runs, with its bounds. At `restarts` the port went on from a state of the
        reference's; what the control run does not have is then measured by the other quantities of its kind."""
        found = self._compute_errors(key, reference, port)
        offsets = count_since_restart(reference, restarts)[: len(found)]
        spread = self.spreads.get(key) or (self._kinds.get(key[0]) if restarts else None)
        pool = self._pools.get(key[:2], []) if key[0] in (GRADIENT, CHANGE) else []
        noise = None
        if spread:
            pooled = [max(own, pool[place] if place < len(pool) else 0.0) for place, own in enumerate(spread)]
            noise = [pooled[offset] for offset in takewhile(lambda offset: offset < len(pooled), offsets)]
            # Data that no rounding reaches are compared as in float32, whatever the model computes in.
            untouched = reference.full and not any(pooled)
            floor = (TOLERANCES["float32"] if untouched else self._tolerance).floors[key[0]]
            measured = list(self._measured(key[0], pooled, max(offsets, default=-1) + 1, floor))
            allowed = [measured[offset] for offset in offsets]
        else:
            allowed = [self._unmeasured(key[0], offset) for offset in offsets]
        rare: tuple[int, ...] = ()
        if self._given is not None:
            allowed = [self._given] * len(found)
        elif spread and self._tolerance.run is not None and key[0] in (GRADIENT, CHANGE):
            rare = _find_rare_places(found, allowed)
            for place in rare:
                allowed[place] = RARE
        return Pair(key, reference, port, found, noise, allowed, rare)

    @property
    def measured(self) -> bool:
        """Whether there is a control run that says anything."""
        return bool(self.spreads)

    def get_floor(self, kind: str) -> float:
        """What is allowed to a quantity of this kind whatever the control run shows."""
        return self._tolerance.floors[kind]

    def find_chaotic_step(self, reference: dict[Key, Series]) -> int | None:
        """The step at which the control run's loss is too far from the original's for steps to be compared."""
        found = []
        for key, spread in self.spreads.items():
            if key[0] in (LOSS, OUTPUT):
                place = next((place for place, value in enumerate(spread) if value > CHAOTIC), None)
                if place is not None:
                    found.append(reference[key].at[place])
        return min(found, default=None)

    def compute_final_spread(self, kind: str) -> float | None:
        """The spread that quantities of this kind have at the end of the control run: the median of them."""
        ends = [spread[-1] for key, spread in self.spreads.items() if key[0] == kind and spread]
        finite = [end for end in ends if math.isfinite(end)]
        return statistics.median(finite) if finite else None

    def _compute_errors(self, key: Key, reference: Series, other: Series) -> list[float]:
        steady = self._tolerance.run is None and key[0] in (GRADIENT, CHANGE)
        return compute_relative_errors(reference, other, steady=steady)

    def _spread(self, key: Key, reference: Series, control: Series) -> list[float]:
        moved = self._compute_errors(key, reference, control)
        clean = [0.0 if (key, at) in self._spoilt else error for at, error in zip(reference.at, moved, strict=False)]
        if self._forced:
            return [max(clean, default=0.0)] * len(clean)
        if self._restarts:
            windows: dict[int, float] = {}
            for offset, error in zip(count_since_restart(reference, self._restarts), clean, strict=False):
                windows[offset] = max(windows.get(offset, 0.0), error)
            clean = list(windows.values())
        # One sample of noise may be small by chance; that the run was made says that the first ones were too few.
        together = self._tolerance.resumed if self._restarts else self._tolerance.together
        start = max(clean[:together], default=0.0)
        return [max(start, value) for value in accumulate(clean, max)]

    def _measured(self, kind: str, spread: Sequence[float], steps: int, floor: float) -> Iterator[float]:
        """The bounds of `steps` steps, the first of which the control run has; none below `floor`."""
        tolerance, known = self._tolerance, len(spread)
        growth = _growth(spread)
        for place in range(steps):
            if place < known:
                bound = max(floor, tolerance.spread * spread[place])
                chaotic = kind in (LOSS, OUTPUT) and spread[place] > CHAOTIC and not self._forced
                yield math.inf if chaotic else bound
                continue
            foretold = spread[-1] * growth ** min(place - known + 1, 10_000 if growth == 1 else 1000)
            bound = max(self._unmeasured(kind, place), tolerance.spread * foretold)
            yield bound if tolerance.spread * foretold <= MOST else math.inf

    def _unmeasured(self, kind: str, place: int) -> float:
        tolerance = self._tolerance
        if kind in (LOSS, OUTPUT):
            late = math.inf if tolerance.run is None else tolerance.run
            return tolerance.first if place < tolerance.first_steps else late
        # Half precision leaves nothing to say of norms where nothing was measured.
        if kind == UPLOAD:  # rounding does not move data
            return UNMEASURED[kind] if self.measured or place < tolerance.first_steps else math.inf
        return UNMEASURED[kind] if tolerance.run is not None and place < tolerance.first_steps else math.inf


def _find_rare_places(errors: Sequence[float], allowed: Sequence[float]) -> tuple[int, ...]:
    """The places with an error above its bound, if rounding can have made them: a fault of the port would be larger, or
    there in more of the steps, or in more one after the other."""
    found = tuple(place for place, (error, bound) in enumerate(zip(errors, allowed, strict=True)) if not error <= bound)
    many = len(found) > max(1, RARE_SHARE * len(errors))
    in_a_row = any(later - place == RARE_IN_A_ROW for place, later in zip(found, found[RARE_IN_A_ROW:], strict=False))
    return () if many or in_a_row or any(not errors[place] <= RARE for place in found) else found


def _largest(spreads: Sequence[list[float]]) -> Iterator[float]:
    """The largest at each place; the last of one that is shorter counts for the places behind it, as none decreases."""
    for place in range(max(map(len, spreads))):
        yield max(spread[min(place, len(spread) - 1)] for spread in spreads if spread)


def _growth(spread: Sequence[float]) -> float:
    """By what factor the spread grows in a step, from its second half."""
    half = len(spread) // 2
    if half < 2 or not spread[half] > 0:
        return 1.0
    factor: float = (spread[-1] / spread[half]) ** (1 / (len(spread) - 1 - half))
    return min(max(factor, 1.0), FASTEST)


def _grouped(spreads: dict[Key, list[float]], words: int) -> Iterator[tuple[Any, list[list[float]]]]:
    """The spreads by the first `words` of their keys."""
    groups: dict[Any, list[list[float]]] = {}
    for key, spread in spreads.items():
        groups.setdefault(key[:words], []).append(spread)
    yield from groups.items()


def _medians(rows: list[list[float]]) -> Iterator[float]:
    for place in range(max(map(len, rows))):
        yield statistics.median(row[place] for row in rows if place < len(row))
