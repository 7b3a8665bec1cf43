"""Runs the cases that can: converted, and as they are with CUDA's calls redirected as `torchport run` does.

Each runs in a fork of one process that has imported torch and torch_npu (tests/vnpu/forked.py), one at a time, on the
virtual NPU. A case runs if its script prints OK as its last word and ends with the status 0.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from casefile import Case

sys.path.insert(0, str(Path(__file__).parents[1] / "vnpu"))

import forked

OURS = str(Path(__file__).parents[1] / "vnpu")  # has modules that a case's may be called as
_PROGRAM = """\
import os, runpy, sys
os.chdir({folder!r})
sys.path[:] = [{folder!r}, *(path for path in sys.path if path != {ours!r})]
sys.argv = {words!r}
{first}
runpy.run_path({words!r}[0], run_name="__main__")
"""


def outcomes(cases: Iterable[Case], work: Path) -> dict[str, dict[str, str]]:
    """What each case says, converted and redirected: nothing where it ran, else the last line of its errors.

    `work` holds a folder for each case with what `scoring.judge_case` leaves there.
    """
    found: dict[str, dict[str, str]] = {"converted": {}, "redirected": {}}
    for case in cases:
        folder = work / case.name
        found["converted"][case.name] = outcome(folder / "after", case.runs)
        first = "import torchport.auto" if case.knows_cuda_only() else ""  # else torchport says to run it as it is
        found["redirected"][case.name] = outcome(folder / "before", case.runs, first)
    return found


def outcome(folder: Path, words: tuple[str, ...], first: str = "") -> str:
    """Run the script and arguments `words` in `folder`, after the line `first`."""
    program = _PROGRAM.format(folder=str(folder.resolve()), ours=OURS, words=list(words), first=first)
    ended = forked.python(program, TORCHPORT_SUMMARY="0")
    if ended.returncode == 0 and ended.stdout.split()[-1:] == ["OK"]:
        return ""
    said = [line for line in ended.stderr.splitlines() if line.strip() and not line.startswith("[")]
    return said[-1] if said else f"status {ended.returncode}, printed {ended.stdout[-80:]!r}"
