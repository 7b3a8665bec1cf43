"""The data of `analyze` and `convert` that reports and later steps read."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True, slots=True)
class Summary:
    """Counts of findings, and an estimate of the work that is left.

    `automatic` and `review` count changes, `decisions` and `blockers` places without one. `effort_hours` are hours of a
    person, from and to. `rules` counts the findings of each code. `npu_path` has the first place in each file, as
    file:line, that stays because the NPU has a branch, class or file of its own beside it.
    """

    files: int = 0
    automatic: int = 0
    review: int = 0
    decisions: int = 0
    blockers: int = 0
    effort_hours: tuple[float, ...] = (0.0, 0.0)
    rules: Mapping[str, int] = dataclasses.field(default_factory=dict)
    npu_path: tuple[str, ...] = ()

    @property
    def changes(self) -> int:
        """The places that are changed."""
        return self.automatic + self.review

    @property
    def left(self) -> int:
        """The places that a person has to change or decide."""
        return self.decisions + self.blockers

    def __add__(self, other: Summary) -> Summary:
        """The summary of both conversions together."""
        return Summary(
            self.files + other.files,
            self.automatic + other.automatic,
            self.review + other.review,
            self.decisions + other.decisions,
            self.blockers + other.blockers,
            tuple(sum(hours) for hours in zip(self.effort_hours, other.effort_hours, strict=True)),
            dict(sorted((Counter(self.rules) + Counter(other.rules)).items())),
            tuple(dict.fromkeys((*self.npu_path, *other.npu_path))),
        )
