"""A process that says in JSON lines what it does, and is given up when it takes too long or grows too large."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

MUCH_KIB = 2 << 20


class EndedError(Exception):
    """It has to be ended: the verdict of what it was at."""


def said(
    stream: IO[bytes], seconds: Callable[[], float], resident: Callable[[], int], most: int
) -> Iterator[dict[str, Any]]:
    """Its lines as they come, to the end of `stream`, of which nothing has been read through a buffer. Raises EndedError
    `seconds()` after the last line, or when `resident()` exceeds `most`, both in KiB: resident memory is what is
    limited, since the device's address range is reserved as a whole."""
    rest, since = b"", time.monotonic()
    while True:
        if select.select([stream], [], [], 1.0)[0]:
            read = os.read(stream.fileno(), 1 << 16)
            if not read:
                return
            *lines, rest = (rest + read).split(b"\n")
            for line in lines:
                yield json.loads(line)
                since = time.monotonic()
        elif time.monotonic() - since > (limit := seconds()):
            raise EndedError(f"TIMEOUT: more than {limit:.0f} s")
        if resident() > most:
            raise EndedError(f"CRASH: more than {most >> 20} GiB of memory")


def end(leader: int) -> None:
    """End the processes of a process group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if leader:
            os.killpg(leader, signal.SIGKILL)


def group_resident(leader: int) -> int:
    """KiB of the processes in a process group together. Pages that several have, as forks of one that has loaded torch,
    count once; that is looked into where the processes would have much if they had nothing in common."""
    if not leader:
        return 0
    group = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if os.getpgid(int(entry.name)) == leader:
                    group.append(int(entry.name))
    total = sum(map(resident, group))
    if len(group) > 1 and total > MUCH_KIB:
        total = sum(_kib(process, "smaps_rollup", "Pss:") for process in group)
    return total


def resident(process: int) -> int:
    """KiB; 0 when the process is gone."""
    return _kib(process, "status", "VmRSS:")


def _kib(process: int, file: str, name: str) -> int:
    """What a line of a file of /proc says; 0 where there is none."""
    try:
        lines = Path(f"/proc/{process}/{file}").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(name)), 0)
