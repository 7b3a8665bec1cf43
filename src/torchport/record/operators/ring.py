"""The files of the last steps only, until numbers stop being numbers: then those are kept for good."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torchport.record.operators import overflow
from torchport.record.operators.overflow import Overflow
from torchport.record.operators.reading import Step
from torchport.record.operators.tables import StepTables


class Ring:
    """Of each step that is whole `add_step` is told, in order. Files of steps before the last `most` are removed, and
    `dropped` is told of each; of the first step with an overflow that no GradScaler has taken care of
    (`left_out(step)`) and of those before it they stay, and `found` says what it was."""

    def __init__(self, most: int, left_out: Callable[[int], bool], dropped: Callable[[Path, int], None]) -> None:
        self._most = most
        self._left_out = left_out
        self._dropped = dropped
        self._files: deque[tuple[Path, int]] = deque()
        self.found: Overflow | None = None

    def add_step(self, number: int, path: Path, tables: StepTables, size: int) -> bool:
        """A step's file; whether it is the one with the overflow."""
        if self.found is not None:  # a step that was under way
            self._remove(path, size)
            return False
        self._files.append((path, size))
        while len(self._files) > self._most:
            self._remove(*self._files.popleft())
        if not overflow.has_suspect_numbers(tables.arrays):
            return False
        with Step(path) as step:
            found = overflow.find_first_overflow(step, number)
        if found is None or (found.phase in overflow.SCALED_PHASES and self._left_out(number)):
            return False
        self.found = found
        return True

    def _remove(self, path: Path, size: int) -> None:
        path.unlink(missing_ok=True)
        self._dropped(path, size)


def describe_overflow(found: Overflow, most: int) -> dict[str, Any]:
    """What the journal keeps of it."""
    return {"step": found.step, "text": found.sentence, "module": found.module, "kept": most}
