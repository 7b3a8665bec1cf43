"""Processes that train a round when they are asked and tell how long a step took: what is compared takes turns."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

ANSWER = "seconds "


def answer(run: Callable[[], float]) -> None:
    """In such a process: call `run` for each line that comes in, print what it gives."""
    for _ in sys.stdin:
        print(f"{ANSWER}{run()}", flush=True)


@contextlib.contextmanager
def asked(
    words: Sequence[str], environment: Mapping[str, str], errors: int | None = None
) -> Iterator[Callable[[], float]]:
    """A process; each call asks it for a round. `errors`: where its standard error goes."""
    with subprocess.Popen(
        words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        asks, answers = process.stdin, process.stdout

        def seconds() -> float:
            asks.write("\n")
            asks.flush()
            for line in answers:
                if line.startswith(ANSWER):  # others, msprobe among them, say what they do
                    return float(line.removeprefix(ANSWER))
            raise SystemExit(f"a process has ended that was to train: {' '.join(words)}")

        yield seconds
        asks.close()
