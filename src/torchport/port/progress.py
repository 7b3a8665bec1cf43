"""One line per step on stderr, alive where it is a terminal."""

from __future__ import annotations

import io
import shutil
import time
from typing import TextIO

REFRESH_SECONDS = 0.2
CLEAR = "\r\x1b[K"


class Progress:
    """Lines such as `2/5 reference   12.3 s  step 41, loss 0.53`; none where `quiet`."""

    def __init__(self, stream: TextIO, steps: tuple[str, ...], quiet: bool = False) -> None:
        self._stream = stream
        self._steps = steps
        self._quiet = quiet
        self._live = stream.isatty() and not quiet
        self._start = 0.0
        self._drawn = 0.0
        self._step = ""

    def start_step(self, step: str, text: str) -> None:
        """Begin a step."""
        self._step = step
        self._start = time.monotonic()
        self._drawn = 0.0
        self.update(text)

    def update(self, text: str) -> None:
        """Show where the step is; on a terminal only, and not more often than the eye follows."""
        now = time.monotonic()
        if self._live and now - self._drawn >= REFRESH_SECONDS:
            self._drawn = now
            line = self._line(text)[: shutil.get_terminal_size((100, 24)).columns - 1]
            self._stream.write(CLEAR + line)
            self._stream.flush()

    def elapsed_seconds(self) -> float:
        """Since the step began."""
        return time.monotonic() - self._start

    def finish_step(self, text: str, seconds: float | None = None) -> None:
        """End the step with what came of it; after `seconds`, where it ended before now."""
        self._write(self._line(text, seconds) + "\n")

    def make_deferred(self) -> Progress:
        """For a step that is done at the same time: it says nothing until it is given to `show_deferred`."""
        return Progress(io.StringIO(), self._steps, self._quiet)

    def show_deferred(self, other: Progress) -> None:
        """Say what a step has said that was done at the same time."""
        if isinstance(other._stream, io.StringIO):
            self._write(other._stream.getvalue())

    def note(self, text: str) -> None:
        """Say something between two states of a step."""
        self._write(f"    {text}\n")

    def stop(self) -> None:
        """Leave the terminal with a whole line, whatever was being shown."""
        if self._live:
            self._stream.write(CLEAR)
            self._stream.flush()

    def _write(self, text: str) -> None:
        if not self._quiet:
            self._stream.write((CLEAR if self._live else "") + text)
            self._stream.flush()

    def _line(self, text: str, seconds: float | None = None) -> str:
        number = f"{self._steps.index(self._step) + 1}/{len(self._steps)}"
        return f"{number} {self._step:<10} {self.elapsed_seconds() if seconds is None else seconds:6.1f} s  {text}"
