"""What of a run is recorded: a level, and filters by module, operator, step and rank."""

from __future__ import annotations

import difflib
import fnmatch
import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torchport.errors import TorchportError

KINDS = ("module", "operator", "step", "rank")
LEVELS = ("statistics", "tensor", "module")
NONE = "none"
STOP, DROP = "stop", "drop"
NEAR, FEW = 3, 10  # names that are listed


@dataclass(frozen=True, slots=True)
class Wanted:
    """`level` is one of LEVELS; each list in `filters`, by kind, has patterns of which one has to match.

    `max_bytes` ends the recording of operators, `on_full` says what becomes of the run when they cannot be written;
    of `keep_last` steps alone the files are kept (`ring`).
    """

    level: str = "statistics"
    filters: Mapping[str, Sequence[str]] = field(default_factory=dict)
    max_bytes: int | None = None
    on_full: str = STOP
    keep_last: int | None = None

    @classmethod
    def from_words(
        cls,
        level: str,
        words: Iterable[str],
        max_bytes: int | None = None,
        on_full: str = STOP,
        keep_last: int | None = None,
    ) -> Wanted:
        """From `KIND=PATTERN` words. Raises TorchportError for a level, a kind or a pattern that says nothing."""
        if level not in LEVELS:
            raise TorchportError(f"there is no level {level!r} of recording", hint=f"There are {', '.join(LEVELS)}.")
        if on_full not in (STOP, DROP):
            raise TorchportError(f"on_full is {STOP!r} or {DROP!r}, not {on_full!r}")
        filters: dict[str, list[str]] = {}
        for word in words:
            kind, equals, pattern = word.partition("=")
            if not equals or kind not in KINDS or not pattern:
                near = difflib.get_close_matches(kind, KINDS, 1)
                raise TorchportError(
                    f"the filter {word!r} is none of {', '.join(f'{one}=PATTERN' for one in KINDS)}",
                    hint=f"Did you mean {near[0]}=...?" if near and near[0] != kind else "Give a pattern behind the =.",
                )
            if kind in ("step", "rank"):
                _numbers(pattern)
            filters.setdefault(kind, []).append(pattern)
        return cls(level, filters, max_bytes, on_full, keep_last)

    def is_operator_wanted(self, name: str) -> bool:
        """Whether an operator counts: `aten::convolution`, for which `convolution` matches as well."""
        patterns = self.filters.get("operator")
        short = name.partition("::")[2] or name
        return not patterns or any(fnmatch.fnmatchcase(one, pattern) for pattern in patterns for one in (name, short))

    def is_module_wanted(self, name: str) -> bool:
        """Whether a module's operators count; those inside it do with it."""
        patterns = self.filters.get("module")
        return not patterns or any(
            fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(name, f"{pattern}.*") for pattern in patterns
        )

    def is_step_wanted(self, number: int) -> bool:
        """Whether a step counts."""
        return self._number("step", number)

    def is_rank_wanted(self, number: int) -> bool:
        """Whether a rank counts; a process without one is rank 0."""
        return self._number("rank", number)

    def _number(self, kind: str, number: int) -> bool:
        patterns = self.filters.get(kind)
        return not patterns or any(number in _numbers(pattern) for pattern in patterns)

    def describe_unmatched(self, modules: Iterable[str], operators: Iterable[str], world: int) -> list[str]:
        """A sentence for each filter that matches none of the names of `modules` or `operators` that there are, with
        near ones, or none of `world` ranks."""
        short = {name.partition("::")[2]: name for name in operators}
        said = []
        for kind, names, match in (
            ("module", sorted(modules), Wanted.is_module_wanted),
            ("operator", sorted({*short, *short.values()}), Wanted.is_operator_wanted),
        ):
            for pattern in self.filters.get(kind, ()):
                if not any(match(Wanted(filters={kind: [pattern]}), name) for name in names):
                    near = difflib.get_close_matches(pattern, names, NEAR, 0.5)
                    few = ", ".join(filter(None, names)) if len(names) <= FEW else f"{len(names):,} names"
                    tail = f": near are {', '.join(near)}" if near else f"; there are {few}"
                    said.append(f"no {kind} of the first step matches {kind}={pattern}{tail}")
        if not any(map(self.is_rank_wanted, range(world))):
            ranks = " or ".join(self.filters["rank"])
            said.append(f"there is no rank={ranks}: the run has {world}, counted from 0")
        return said

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it, for `Wanted(**plain)`."""
        return {
            "level": self.level,
            "filters": {kind: list(patterns) for kind, patterns in self.filters.items()},
            "max_bytes": self.max_bytes,
            "on_full": self.on_full,
            "keep_last": self.keep_last,
        }


@functools.cache
def _numbers(pattern: str) -> range:
    """`3` or `3-5`."""
    first, dash, last = pattern.partition("-")
    if not first.isdecimal() or (dash and not last.isdecimal()) or (dash and int(last) < int(first)):
        raise TorchportError(f"{pattern!r} is no number and no range of numbers", hint="Give 3 or 3-5.")
    return range(int(first), int(last or first) + 1)


UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def size_of(word: str) -> int:
    """Bytes in `500M`, `2GiB`, `10000`. Raises ValueError."""
    text = word.strip().upper().removesuffix("IB").removesuffix("B")
    unit = text[-1:] if text[-1:] in UNITS and not text[-1:].isdigit() else ""
    number = float(text.removesuffix(unit)) if unit else float(text)
    if not 0 < number < 1 << 62:
        raise ValueError(word)
    return int(number * UNITS[unit])
