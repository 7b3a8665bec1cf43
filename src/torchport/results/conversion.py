"""The data of `analyze` and `convert` that reports and later steps read."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping

# Findings on code that is older than the packages of today: it needs them on any device.
_OLD_CODE = frozenset({"TP703", "TP704", "TP705"})


def is_old_code(code: str) -> bool:
    """Whether findings of this code have nothing to do with CUDA: the script is too old for the torch of today."""
    return code in _OLD_CODE


@dataclasses.dataclass(frozen=True, slots=True)
class OldCode:
    """Places that are too old for the torch of today, whatever the device: `changes` are made, `left` are not.

    `unimportable` names the first place of each file that cannot be imported as it is, "util/misc.py:21"; a place that
    convert changes is among them. `torch` is the version that is meant.
    """

    changes: int = 0
    left: int = 0
    unimportable: tuple[str, ...] = ()
    torch: str = ""

    @property
    def places(self) -> int:
        """All of them."""
        return self.changes + self.left

    def __add__(self, other: OldCode) -> OldCode:
        """Both together."""
        both = dict.fromkeys((*self.unimportable, *other.unimportable))
        return OldCode(self.changes + other.changes, self.left + other.left, tuple(both), self.torch or other.torch)


@dataclasses.dataclass(frozen=True, slots=True)
class Summary:
    """Counts of findings, and an estimate of the work that is left.

    `automatic` and `review` count changes, `decisions` and `blockers` places without one. `effort_hours` are hours of a
    person, from and to. `rules` counts the findings of each code. `npu_path` has the first place in each file, as
    file:line, that stays because the NPU has a branch, class or file of its own beside it. All but the hours, `rules`
    and `npu_path` is about CUDA and the NPU; `old` is what the code needs on any device.
    """

    files: int = 0
    automatic: int = 0
    review: int = 0
    decisions: int = 0
    blockers: int = 0
    effort_hours: tuple[float, ...] = (0.0, 0.0)
    rules: Mapping[str, int] = dataclasses.field(default_factory=dict)
    npu_path: tuple[str, ...] = ()
    old: OldCode = OldCode()

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
            self.old + other.old,
        )
