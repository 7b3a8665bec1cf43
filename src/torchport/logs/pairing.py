"""The numbers of two logs that belong together, by name and step."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Mapping

from torchport.logs.reading import Printed, read_numbers

MOST_NAMES = 1000
MOST_NUMBERS = 200_000  # of one name; later ones are left out
MOST_TOGETHER = 2_000_000  # of all names: some 300 MB
# The keys of pairs. Epochs are rounded: some trainers print fewer of their digits than others.
STEP, EPOCH, ORDER = "step", "epoch", "order"
_EPOCH_DIGITS = 2


@dataclasses.dataclass(slots=True)
class Series:
    """The numbers of one name in one log, in order."""

    name: str
    numbers: list[Printed] = dataclasses.field(default_factory=list)
    left_out: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Pair:
    """One number in both logs."""

    first: Printed
    second: Printed

    @property
    def digit(self) -> float:
        """How far the two may be apart by printing alone: half a unit in the last place of each."""
        return (self.first.digit + self.second.digit) / 2


@dataclasses.dataclass(frozen=True, slots=True)
class Paired:
    """The pairs of a name. `by` is their key; `alone` counts the numbers without a partner in each log."""

    name: str
    by: str
    pairs: tuple[Pair, ...]
    alone: tuple[int, int]


def collect_series(lines: Iterable[str]) -> dict[str, Series]:
    """The numbers of a log by their names, as many as the limits above allow."""
    found: dict[str, Series] = {}
    together = 0
    for printed in read_numbers(lines):
        series = found.get(printed.name)
        if series is None:
            if len(found) >= MOST_NAMES:
                continue
            series = found[printed.name] = Series(printed.name)
        if len(series.numbers) < MOST_NUMBERS and together < MOST_TOGETHER:
            series.numbers.append(printed)
            together += 1
        else:
            series.left_out += 1
    return found


def pair_series(first: Mapping[str, Series], second: Mapping[str, Series]) -> list[Paired]:
    """Each name that both logs have, in the order of the first."""
    return [pair_numbers(name, first[name].numbers, second[name].numbers) for name in first if name in second]


def pair_numbers(name: str, first: list[Printed], second: list[Printed]) -> Paired:
    """By step if both print steps, else by epoch and the order within it, else by order alone.

    Of several numbers of one name and step the first counts: other ranks without a prefix, a bar that is drawn again.
    """
    by = _choose(first, second)
    left, right = _by_key(first, by), _by_key(second, by)
    pairs = tuple(Pair(number, right[key]) for key, number in left.items() if key in right)
    return Paired(name, by, pairs, (len(left) - len(pairs), len(right) - len(pairs)))


def _choose(first: list[Printed], second: list[Printed]) -> str:
    if all(any(number.step is not None and not number.near for number in side) for side in (first, second)):
        return STEP
    if all(any(number.epoch is not None for number in side) for side in (first, second)):
        return EPOCH
    return ORDER


def _by_key(numbers: list[Printed], by: str) -> dict[tuple[float, ...], Printed]:
    found: dict[tuple[float, ...], Printed] = {}
    for key, number in _keyed(numbers, by):
        found.setdefault(key, number)
    return found


def _keyed(numbers: list[Printed], by: str) -> Iterator[tuple[tuple[float, ...], Printed]]:
    counts: collections.Counter[float] = collections.Counter()
    restarts = by == STEP and _restarts(numbers)
    for place, number in enumerate(numbers):
        if by == ORDER:
            yield (place,), number
        elif by == STEP and number.step is not None and not number.near:
            yield ((number.step, number.epoch) if restarts and number.epoch is not None else (number.step,)), number
        elif by == EPOCH and number.epoch is not None:
            epoch = round(number.epoch, _EPOCH_DIGITS)
            yield (epoch, counts[epoch]), number
            counts[epoch] += 1


def _restarts(numbers: list[Printed]) -> bool:
    """Whether steps begin anew in each epoch, as MindSpore's do: then they need the epoch beside them."""
    seen: dict[int, float] = {}
    for number in numbers:
        if number.step is None or number.epoch is None or number.near:
            continue
        if seen.setdefault(number.step, number.epoch) != number.epoch:
            return True
    return False
