"""This machine's memory: what programs may still take of it, and what some processes hold."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path

# Of all memory, what is left when nothing is: the kernel would end some process of the machine's next, not necessarily
# the one that takes it.
LEAST_SHARE = 0.03


def free_memory() -> tuple[int, int]:
    """What a program may still take of the machine's memory, swap with it, and all of the memory, in bytes."""
    found: Mapping[str, int] = {
        name: int(rest.split()[0]) * 1024
        for name, _, rest in (line.partition(":") for line in Path("/proc/meminfo").read_text().splitlines())
        if name in ("MemTotal", "MemAvailable", "SwapFree")
    }
    return found["MemAvailable"] + found["SwapFree"], found["MemTotal"]


def is_gone() -> bool:
    """Whether less than LEAST_SHARE is left."""
    free, total = free_memory()
    return free < LEAST_SHARE * total


def measure_process_memory(processes: Iterable[int]) -> int:
    """Bytes that these processes hold together: what several share (libraries, memory of forks) counts once."""
    total = 0
    for process in processes:
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
    return total
