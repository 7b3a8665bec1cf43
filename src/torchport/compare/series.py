"""What a process recorded, as series of numbers: one for each quantity and place, step after step.

Two runs of a script are compared series by series. A series is found again in the other run by its key: the kind of
quantity, where it comes from (the line of a loss, an optimizer), and a number (which parameter of the optimizer).
"""

from __future__ import annotations

import bisect
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from torchport.record.recording import Process

LOSS, OUTPUT, GRADIENT, CHANGE, INPUTS, UPLOAD = KINDS = ("loss", "output", "gradient", "change", "inputs", "upload")
Key = tuple[str, str, int]
# Smaller losses than this share of the first one are compared as if they were that large.
LEAST_LOSS = 1e-3
# A parameter whose gradient (or change) is below this share of that of all parameters does not move the model.
LEAST_SHARE = 1e-6
# Adam makes a step of a gradient that is rounding alone (the bias of an attention's keys, which softmax does not see).
# It may be so many times as large.
OF_ROUNDING = 10.0


@dataclasses.dataclass(slots=True)
class Series:
    """`values` in the order recorded, None for a gradient that is not there. `at` has the steps that the process had
    done before each, `least` how large each is taken to be at least where a difference is related to it. `full` is a
    tensor that was not in half precision, whatever the model computes in. `by_chance` says that other threads than the
    main one gave the values, in an order of chance."""

    kind: str
    name: str
    at: list[int] = dataclasses.field(default_factory=list)
    values: list[float | None] = dataclasses.field(default_factory=list)
    least: list[float] = dataclasses.field(default_factory=list)
    full: bool = False
    by_chance: bool = False

    def add(self, at: int, value: Any, least: float = 0.0) -> None:
        """Append a value; text is what JSON has no number for."""
        self.at.append(at)
        self.values.append(None if value is None else float(value))
        self.least.append(least)

    def sort_values(self) -> Series:
        """The series in the order of its values."""
        return self.select_places(sorted(range(len(self.values)), key=self.numbers.__getitem__))

    def select_places(self, places: Sequence[int]) -> Series:
        """The series with the values at these places alone."""
        return Series(
            self.kind,
            self.name,
            [self.at[place] for place in places],
            [self.values[place] for place in places],
            [self.least[place] for place in places],
            self.full,
        )

    @property
    def numbers(self) -> list[float]:
        """The values of a series that has one in every step."""
        return [math.nan if value is None else value for value in self.values]


def list_restarts(process: Process) -> list[int]:
    """The steps that began from a state of the reference's."""
    return sorted({int(event["step"]) for event in process.of_kind("restored")})


def count_since_restart(one: Series, restarts: Sequence[int]) -> list[int]:
    """For each value, how many the series has had since the last of `restarts`; without any, its place."""
    found: list[int] = []
    first, last = 0, None
    for place, at in enumerate(one.at):
        begun = bisect.bisect_right(restarts, at)
        if begun != last:
            first, last = place, begun
        found.append(place - first)
    return found


def collect_series(process: Process) -> dict[Key, Series]:
    """All series of a process, in the order in which they began."""
    found: dict[Key, Series] = {}
    names: dict[int, list[str]] = {}
    generation: dict[int, int] = {}
    trains = bool(process.of_kind("loss"))
    counted = {"step"} if process.of_kind("step") else {"loss" if trains else "call"}
    done = 0
    for event in process.events:
        kind = event["kind"]
        if kind == "loss" or (kind == "call" and not trains):
            what = LOSS if kind == "loss" else OUTPUT
            one = found.setdefault((what, event["site"], 0), Series(what, event["site"]))
            first = abs(one.values[0] or 0.0) if one.values else abs(float(event["value"]))
            one.add(done, event["value"], LEAST_LOSS * first if math.isfinite(first) else 0.0)
        elif kind == "parameters":
            names[event["optimizer"]] = list(map(str, event["names"]))
            generation[event["optimizer"]] = generation.get(event["optimizer"], -1) + 1
        elif kind == "norms":
            number = event["optimizer"]
            where = f"optimizer {number}.{generation.get(number, 0)}"
            _norms(found, event, where, names.get(number, []))
        elif kind == "inputs":
            for number, value in enumerate(event["norms"]):
                one = found.setdefault(
                    (INPUTS, event["site"], number), Series(INPUTS, f"{event['site']}, input {number}", full=True)
                )
                one.full = one.full and number not in event.get("half", (number,))
                one.add(event["step"], value)
        elif kind == "upload":
            one = found.setdefault((UPLOAD, event["site"], 0), Series(UPLOAD, event["site"]))
            # Without a checksum: on the device already, so nothing was copied.
            one.add(done, event["sum"] if event["checksum"] else None, float(event["norm"]))
            one.by_chance = one.by_chance or bool(event.get("aside"))
        done += kind in counted
    return found


def _norms(found: dict[Key, Series], event: Mapping[str, Any], where: str, names: list[str]) -> None:
    # Later steps have one number for the whole optimizer.
    whole = len(event["gradient"]) != len(names)
    rounding: set[int] = set()  # parameters with a gradient that does not move the model, and is not zero
    for kind, field in ((GRADIENT, "gradient"), (CHANGE, "change")):
        values = event[field]
        least = LEAST_SHARE * math.hypot(*(float(value) for value in values if value is not None))
        if kind == GRADIENT:
            rounding = {number for number, value in enumerate(values) if value and 0 < abs(float(value)) <= least}
        for number, value in enumerate(values):
            name = "all parameters" if whole else names[number]
            key = (kind, f"{where}, all" if whole else where, number)
            one = found.setdefault(key, Series(kind, name))
            own = OF_ROUNDING * abs(float(value)) if kind == CHANGE and number in rounding and value else 0.0
            one.add(event["step"], value, max(least, own) if math.isfinite(least) else 0.0)
