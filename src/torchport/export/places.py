"""The lines at which a model takes Python values from tensors, and their values over all inputs that were tried."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from torchport.export.frozen import Taken, is_guard

OPEN, VARIED, GUARD, ASSUMED = "open", "varied", "guard", "assumed"
FEW = 4  # values that are shown


@dataclasses.dataclass(slots=True)
class Place:
    """A line, with the values that it took by run: run 0 is the one that was traced."""

    where: str
    what: str
    data: bool = False
    values: dict[int, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    sizes: dict[int, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    constants: set[int] = dataclasses.field(default_factory=set)
    distances: dict[int, tuple[float | None, ...]] = dataclasses.field(default_factory=dict)
    matters: bool | None = None  # whether another value makes another graph; None: not known

    @property
    def guards(self) -> bool:
        """Whether the line only checks or reports."""
        return is_guard(self.where)

    @property
    def has_other_sizes(self) -> bool:
        """Whether the sizes that decide the value were not the same in all runs.

        A truth value is decided by how far its sides are apart: two lengths that change together are as one that does
        not.
        """
        decide = self.distances if self.what == "a truth value" else self.sizes
        return len(set(decide.values())) > 1

    def judge(self, varied: Iterable[int], held: Iterable[int], assumed: Sequence[str] = ()) -> str:
        """The state by the runs that were compared and hold; in `varied` the graph was another than in the trace.

        A value from contents has to have been another in a run with another graph: one that only was another may have
        been cut to the same (`min(count, 10)`). A truth value that hangs on sizes has to have been both if these
        sizes were different; other values that hang on sizes have changed with them.
        """
        if self.guards:
            return GUARD
        if any(self.where == text or self.where.endswith(f"/{text}") for text in assumed):
            return ASSUMED
        if self.matters is False:
            return VARIED
        runs = varied if self.data else held
        if any(self.values[run] != self.values.get(0) for run in runs if run in self.values):
            return VARIED
        fixed = not self.data and (self.what != "a truth value" or not self.has_other_sizes)
        return VARIED if fixed else OPEN

    def show_values(self, run: int) -> str:
        """The values of a run, a few of them."""
        values = self.values.get(run, ())
        return ", ".join(values[:FEW]) + (f" and {len(values) - FEW} more" if len(values) > FEW else "")

    def to_json(self, state: str) -> dict[str, Any]:
        """For the answer of the child."""
        return {
            "where": self.where,
            "what": self.what,
            "from": "contents" if self.data else "sizes",
            "traced": self.show_values(0),
            "state": state,
        }


class Places:
    """The lines of all runs."""

    def __init__(self) -> None:
        self._places: dict[tuple[str, str], Place] = {}
        self._graphs: dict[int, tuple[Any, int]] = {}

    def __iter__(self) -> Iterator[Place]:
        return iter(self._places.values())

    def add(self, run: int, given: Sequence[Any], taken: Iterable[Taken], graph: int) -> None:
        """Keep what a run with these inputs took, and its graph."""
        self._graphs[run] = ([tuple(tensor.shape) for tensor in given], graph)
        for one in taken:
            place = self._places.setdefault((one.place, one.what), Place(one.place, one.what))
            place.data |= one.data
            place.values[run] = (*place.values.get(run, ()), one.value)
            place.sizes[run] = (*place.sizes.get(run, ()), *one.sizes)
            place.constants.update(one.constants)
            place.distances[run] = (*place.distances.get(run, ()), one.distance)

    def has_open_contents(self, assumed: Sequence[str]) -> bool:
        """Whether other contents have to be tried: a value from contents matters, as far as is known."""
        return any(place.data and state == OPEN for place, state in self._judge([], assumed))

    def _judge(self, held: Iterable[int], assumed: Sequence[str]) -> list[tuple[Place, str]]:
        runs = list(held)
        # Graphs of other sizes differ by these.
        varied = [
            run
            for run in runs
            if run in self._graphs
            and self._graphs[run] != self._graphs[0]
            and self._graphs[run][0] == self._graphs[0][0]
        ]
        return [(place, place.judge(varied, runs, assumed)) for place in self]

    def get_graph(self, run: int) -> int:
        """The number that stands for the graph of a run."""
        return self._graphs[run][1]

    def find_changed(self, run: int) -> list[Place]:
        """The lines with other values in this run than in the one that was traced."""
        return [
            place
            for place in self
            if run in place.values
            and place.values[run] != place.values.get(0)
            and place.matters is not False
            and not place.guards
        ]

    def to_json(self, held: Iterable[int], assumed: Sequence[str]) -> list[dict[str, Any]]:
        """All lines with their states."""
        return [place.to_json(state) for place, state in self._judge(held, assumed)]
