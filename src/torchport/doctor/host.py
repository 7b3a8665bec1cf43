"""Operating system, processor, memory, and the memory that DataLoader's workers share."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

from torchport import __version__
from torchport.doctor.check import Check, Machine

GIB = 1 << 30
SHARED = 1 << 30  # bytes; containers are given 64 MiB, which a few batches of images fill
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def list_checks(machine: Machine) -> Iterator[Check]:
    """What there is; only shared memory can be too small."""
    yield Check("torchport", True, f"{__version__} in {Path(__file__).parents[1]}")
    yield Check("system", True, f"{_name(machine)}, {platform.machine()}, {platform.release()}")
    yield Check("processor", True, f"{_processor(machine)}, {len(os.sched_getaffinity(0))} cores for this process")
    yield Check("memory", True, _memory(machine))
    if (shared := shared_memory(machine)) is not None:
        fix = "Start the container with `docker run --shm-size=16g` or `--ipc=host`; else use num_workers=0."
        small = shared < SHARED
        why = ": DataLoader workers hand batches over there" if small else ""
        yield Check("shared memory", not small, f"{shared / GIB:.2f} GiB in /dev/shm{why}", fix, advice=True)
    yield Check("python", True, f"{platform.python_version()} ({sys.executable})")


def shared_memory(machine: Machine) -> int | None:
    """Bytes of /dev/shm; None where there is none."""
    try:
        held = os.statvfs(machine.resolve_path("/dev/shm"))  # noqa: S108  it is asked, not written
    except OSError:
        return None
    return held.f_frsize * held.f_blocks


def _name(machine: Machine) -> str:
    for line in machine.read_file_text("/etc/os-release").splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.partition("=")[2].strip('"')
    return platform.system()


def _processor(machine: Machine) -> str:
    for line in machine.read_file_text("/proc/cpuinfo").splitlines():
        if line.startswith(("model name", "CPU part")):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def _memory(machine: Machine) -> str:
    lines = dict(line.split(":", 1) for line in machine.read_file_text("/proc/meminfo").splitlines() if ":" in line)
    total, free = (int(lines.get(key, "0").split()[0]) * 1024 for key in ("MemTotal", "MemAvailable"))
    limits = [int(text) for name in _LIMITS if (text := machine.read_file_text(name).strip()).isdecimal()]
    limit = f", this container may use {min(limits) / GIB:.1f}" if limits and min(limits) < total else ""
    return f"{total / GIB:.1f} GiB, {free / GIB:.1f} free{limit}"
