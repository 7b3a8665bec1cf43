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
    """Counts of findings: `automatic` and `review` count changes, `decisions` places without one, `blockers` what keeps
    the project from running, a plugin with all its kernels as one. `rules` counts the findings of each code.
    `effort_hours` is what results of earlier versions have; nothing writes it, as nothing was measured for it.
    `npu_path` has the first place in each file, as file:line, that stays because the NPU has a branch, class or file of
    its own beside it; `old` is what the code needs on any device, and counts nowhere else but in `rules`.
    """

    files: int = 0
    automatic: int = 0
    review: int = 0
    decisions: int = 0
    blockers: int = 0
    effort_hours: tuple[float, ...] = ()
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
            (),
            dict(sorted((Counter(self.rules) + Counter(other.rules)).items())),
            tuple(dict.fromkeys((*self.npu_path, *other.npu_path))),
            self.old + other.old,
        )


NEEDED, OPTIONAL, APART, UNREACHED = "blocks", "optional", "apart", "unreached"


@dataclasses.dataclass(frozen=True, slots=True)
class Obstacle:
    """One thing that does not exist on an NPU, with all its places.

    `state` is "blocks" where a path from an entry point reaches it without another way, "optional" where the code goes
    on without it, "apart" where only tests, benchmarks, examples or CI need it, "unreached" where nothing that starts
    leads there. `place` ("path:line") is where that shows, `why` says it, `work` what the effort rests on (empty: no
    kernels).
    """

    name: str
    kind: str
    state: str
    place: str
    why: str
    work: str = ""
    places: int = 1


@dataclasses.dataclass(frozen=True, slots=True)
class LibraryUse:
    """A package that is made for CUDA or needs another version on an NPU: as the project lists it, and what to take."""

    name: str
    version: str
    status: str
    counterpart: str
    places: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class OperatorUse:
    """A function of torch without a kernel for the NPU: what happens, and where it is called."""

    name: str
    how: str
    places: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Release:
    """The versions that an analysis is about."""

    torch: str = ""
    torch_npu: str = ""
    cann: str = ""
