"""Look at files of operators in a process of its own first: what stops HDF5 there stops nobody here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from torchport.errors import TorchportError
from torchport.record.operators.step_file import HINT

MEMORY = 1 << 30  # bytes of address space
SECONDS = 20  # of processor time for a file


def check_files(paths: Sequence[Path]) -> dict[Path, str]:
    """What is wrong with each file, by path; nothing for one whose tables can be read. Contents are not
    read."""
    left = list(paths)
    found: dict[Path, str] = {}
    while left:
        answered = 0
        with _child(left) as child:
            assert child.stdout is not None
            for line in child.stdout:
                if sentence := json.loads(line):
                    found[left[answered]] = sentence
                answered += 1
            child.wait()
        if answered < len(left):
            limits = f"{SECONDS} s of processor time or {MEMORY >> 30} GiB"
            found[left[answered]] = (
                f"{left[answered]}: it takes more than {limits} to read, or ends the reader (status {child.returncode})"
            )
            answered += 1
        left = left[answered:]
    return found


def require_readable(path: Path) -> None:
    """Raises TorchportError for a file that `check_files` finds something wrong with."""
    if sentence := check_files([path]).get(path):
        raise TorchportError(sentence, hint=HINT)


def _child(paths: Sequence[Path]) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", PROGRAM, *map(str, paths)]
    # One thread: each takes address space for its stack and for its share of the allocator's.
    quiet = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
    return subprocess.Popen(
        words,
        env={**os.environ, **quiet},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def _sentences(paths: Sequence[str]) -> Iterator[str]:
    """For the child: a sentence for each file, "" for one that is whole."""
    import resource

    from torchport.record.operators.step_file import StepFile

    for path in paths:
        used = resource.getrusage(resource.RUSAGE_SELF)
        resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + SECONDS, -1))
        try:
            with StepFile(Path(path)) as file:
                file.check_blocks()
        except TorchportError as error:
            yield error.message
        except MemoryError:
            yield f"{path}: it takes more than {MEMORY >> 30} GiB to read"
        else:
            yield ""


def main(paths: Sequence[str]) -> None:
    """What the child does."""
    for sentence in _sentences(paths):
        print(json.dumps(sentence), flush=True)


PROGRAM = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, ({MEMORY}, {MEMORY}))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
from torchport.record.operators.checking import main
main(sys.argv[1:])
"""
