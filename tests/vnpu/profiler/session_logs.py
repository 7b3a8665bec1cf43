"""Logs of profiling sessions as the virtual NPU writes them (docs/timeline.md), made by hand: msprof needs nothing else."""

from __future__ import annotations

import dataclasses
import struct
import subprocess
from pathlib import Path

from torchport.vnpu import backend

MSPROF = backend.HOME / "tools" / "profiler" / "bin" / "msprof"
EPOCH = 1_790_000_000_000_000_000  # when the sessions begin, ns since 1970
CUBE, STREAM, DEVICE_CPU, HOST_COPY, COLLECTIVE = 1, 3, 8, 9, 10
CALLS, METRICS, AI_CPU, MARKS, TASK_TIME = 0x1, 0x4, 0x8, 0x80, 0x2


@dataclasses.dataclass(slots=True)
class SessionLog:
    """A log in the making. Times are ns since the session began; launches cost 1000 on the virtual clock."""

    switches: int = CALLS | METRICS | TASK_TIME
    chip: str = "Ascend910B1"
    rank: int = 0
    world: int = 1
    body: bytearray = dataclasses.field(default_factory=bytearray)
    names: dict[str, int] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        self.body += b"VNPUTL1\n"
        chip = self.name(self.chip)
        self.record(1, struct.pack("<IIiiIBxxxqq", 1, 77, self.rank, self.world, chip, 0, 0, EPOCH))
        self.record(
            8, struct.pack("<QIIqqqqqdddii", self.switches, 1, 0, 0, 0, EPOCH, 0, 1000, 3e14, 1e12, 1.8, 24, 48)
        )

    def record(self, kind: int, body: bytes) -> None:
        self.body += struct.pack("<IHH", len(body) + 8, kind, 0) + body

    def name(self, text: str) -> int:
        if text not in self.names:
            self.names[text] = len(self.names)
            encoded = text.encode()
            padded = encoded.ljust((len(encoded) + 7) // 8 * 8, b"\0")
            self.record(2, struct.pack("<II", self.names[text], len(encoded)) + padded)
        return self.names[text]

    def call(
        self, name: str, correlation: int, began: int, ended: int, virtual: tuple[int, int], thread: int = 9
    ) -> None:
        self.record(5, struct.pack("<IIQqqqq", self.name(name), thread, correlation, began, ended, *virtual))

    def task(
        self,
        name: str,
        correlation: int,
        virtual: tuple[int, int],
        wall: tuple[int, int] = (0, 0),
        unit: int = STREAM,
        stream: int = 2,
        shapes: tuple[tuple[int, ...], ...] = ((4, 8), (4, 8)),
        ranks: int = 1,
        size: float = 256.0,
    ) -> None:
        tensors = b"".join(
            struct.pack("<QQBBBBI", 4096, size_of(shape), 6, 2, len(shape), int(i == len(shapes) - 1), 0)
            + struct.pack(f"<{len(shape)}q", *shape)
            for i, shape in enumerate(shapes)
        )
        head = struct.pack("<IHHIIBBHIQ", self.name(name), 0, len(shapes), stream, 9, unit, 0, ranks, 0, correlation)
        times = struct.pack("<6q3d", wall[0], *wall, virtual[0], *virtual, 0.0, size, 0.0)
        self.record(3, head + times + tensors)

    def collective(
        self,
        name: str,
        group: str,
        sequence: int,
        correlation: int,
        ready: int,
        virtual: tuple[int, int],
        ranks: int = 2,
        sent: float = 4e6,
    ) -> None:
        number = self.name(group)
        self.record(6, struct.pack("<IiQQiiq", number, self.rank, sequence, 1000, 4, -1, ready))
        self.task(name, correlation, virtual, unit=COLLECTIVE, shapes=(), ranks=ranks, size=sent)

    def mark(self, kind: int, number: int, message: str, raw: int, virtual: int) -> None:
        self.record(
            7, struct.pack("<IIIIQQqq", kind, 9, self.name("default"), self.name(message), number, 0, raw, virtual)
        )

    def queue_thread(self, thread: int) -> None:
        self.record(10, struct.pack("<II", thread, 0))

    def put(self, raw: int, virtual: int) -> None:
        self.record(11, struct.pack("<qq", raw, virtual))

    def memory(self, used: int, virtual: int) -> None:
        self.record(4, struct.pack("<IIqqQqQ", 0, 0, virtual, virtual, 0, used, used))

    def write(self, folder: Path, end: tuple[int, int] | None, wall: bool = False) -> Path:
        """Make the folder of the session; `end`: where this machine's clock and the virtual one stood; None: killed."""
        if end is not None:
            self.record(9, struct.pack("<qqqqII", end[0], end[0], EPOCH + end[0], end[1], int(wall), 0))
        (folder / "host" / "data").mkdir(parents=True)
        (folder / "host" / "data" / "vnpu.events").write_bytes(self.body)
        return folder


def size_of(shape: tuple[int, ...]) -> int:
    size = 4
    for length in shape:
        size *= length
    return size


def msprof(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([MSPROF, *words], capture_output=True, text=True, check=False)
