"""When a recorded run has done enough, and how it ends then."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from torchport.findings import write_atomically

STEPS, ENOUGH = "steps", "enough"
STOP = "stop.json"
# Ranks wait for each other in every step, so none is more than one ahead when another announces the end.
AHEAD = 3
SWALLOWED = 5


class Finished(SystemExit):
    """The run ends here, as if the script had called `sys.exit(0)`: `finally` blocks and exit handlers run."""


class Limit:
    """Ends the run after `steps` steps; or once every curve that is still growing has `enough[0]` values and
    `enough[1]` seconds have passed.

    `folder` is where the ranks of a job tell each other. `announce(why, steps)` is called once, before the end.
    """

    def __init__(
        self, folder: Path, steps: int | None, enough: tuple[int, float] | None, announce: Callable[[str, int], None]
    ) -> None:
        self._folder = folder
        self._steps = steps
        self._enough = enough
        self._announce = announce
        self._start = time.monotonic()
        self._curves: dict[str, tuple[int, int]] = {}  # by site: values so far, and the step of the last
        self._raised = 0

    def count_value(self, site: str, step: int) -> None:
        """A value of the curve at `site` was recorded before step `step` was done."""
        self._curves[site] = (self._curves.get(site, (0, 0))[0] + 1, step)

    def check_limit(self, done: int, world: int, rank: int) -> None:
        """`done` steps are done. Raises Finished where that is where the run ends."""
        end = self._end(done, world, rank)
        if end is None or done < end[1]:
            return
        if not self._raised:
            self._announce(*end)
        self._raised += 1
        if self._raised > SWALLOWED:  # a bare `except:` in the script's loop
            os._exit(0)
        raise Finished(0)

    def _end(self, done: int, world: int, rank: int) -> tuple[str, int] | None:
        if self._steps is not None:
            return STEPS, self._steps
        if self._enough is None:
            return None
        if world == 1:
            return (ENOUGH, done) if self._raised or self._is_enough(done) else None
        told = self._folder / STOP
        if rank == 0 and not told.exists() and self._is_enough(done):
            write_atomically(told, json.dumps(done + AHEAD).encode())
        with contextlib.suppress(FileNotFoundError):
            return ENOUGH, int(json.loads(told.read_bytes()))
        return None

    def _is_enough(self, done: int) -> bool:
        least, seconds = self._enough or (0, 0.0)
        if done < least or time.monotonic() - self._start < seconds:
            return False
        # A curve that ended long ago (a warm-up, a check of the gradient) will not get there.
        return all(count >= least or step < done - least for count, step in self._curves.values())
