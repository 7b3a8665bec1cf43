"""One line on stderr for whoever waits longer than two seconds."""

from __future__ import annotations

import time
from typing import TextIO

PATIENCE = 2.0  # seconds without a word
REFRESH = 0.5  # seconds, on a terminal
REPEAT = 10.0  # seconds, elsewhere: a log is not to be filled


class Waiting:
    """Call it with what is being done, as often as there is news."""

    def __init__(self, stream: TextIO, quiet: bool = False) -> None:
        self._stream, self._quiet = stream, quiet
        self._live = stream.isatty()
        self._begun = time.monotonic()
        self._said = 0.0
        self._drawn = False

    def __call__(self, text: str) -> None:
        now = time.monotonic()
        if self._quiet or now - self._begun < PATIENCE or now - self._said < (REFRESH if self._live else REPEAT):
            return
        self._said = now
        line = f"{now - self._begun:6.1f} s  {text}"
        self._stream.write(f"\r\x1b[K{line[:100]}" if self._live else line + "\n")
        self._stream.flush()
        self._drawn = self._live

    def clear_line(self) -> None:
        """Leave the terminal with a whole line."""
        if self._drawn:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._drawn = False
