"""Read the event log of the virtual NPU (VNPU_TIMELINE), whose format docs/timeline.md has."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterator
from pathlib import Path

from torchport.errors import TorchportError

MAGIC = b"VNPUTL1\n"
# Numbers of csrc/device/description.h.
UNITS = (
    "none",
    "cube",
    "depthwise",
    "stream",
    "norm",
    "pool",
    "move",
    "gather",
    "device_cpu",
    "host_copy",
    "collective",
)
# Numbers of c10::ScalarType, by the names that torch has for them.
DTYPES = {
    0: "uint8",
    1: "int8",
    2: "int16",
    3: "int32",
    4: "int64",
    5: "float16",
    6: "float32",
    7: "float64",
    8: "complex32",
    9: "complex64",
    10: "complex128",
    11: "bool",
    15: "bfloat16",
    23: "float8_e5m2",
    24: "float8_e4m3fn",
    27: "uint16",
    28: "uint32",
    29: "uint64",
}
_PROCESS, _NAME, _TASK, _MEMORY = 1, 2, 3, 4
_HEAD = struct.Struct("<IHH")
_PROCESS_BODY = struct.Struct("<IIiiIBxxxqq")
_NAME_BODY = struct.Struct("<II")
_TASK_BODY = struct.Struct("<IHHIIBBHIQ6q3d")
_TENSOR = struct.Struct("<QQBBBBI")
_MEMORY_BODY = struct.Struct("<IIqqQqQ")


@dataclasses.dataclass(frozen=True, slots=True)
class Tensor:
    """An operand: device address, bytes that it spans, dtype, aclFormat, shape; whether it is written, and a view."""

    address: int
    bytes: int
    dtype: str
    format: int
    shape: tuple[int, ...]
    output: bool
    view: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Task:
    """What a stream has done. Times are nanoseconds: `queued`, `began`, `ended` on the machine's monotonic clock, the
    virtual ones on the chip's. `flops`, `bytes` and `converted` are what the time model counts, `unit` of UNITS."""

    name: str
    device: int
    stream: int
    thread: int
    unit: str
    failed: bool
    ranks: int
    correlation: int
    queued: int
    began: int
    ended: int
    virtual_queued: int
    virtual_began: int
    virtual_ended: int
    flops: float
    bytes: float
    converted: float
    tensors: tuple[Tensor, ...]

    @property
    def virtual_time(self) -> int:
        """Nanoseconds on the chip."""
        return self.virtual_ended - self.virtual_began


@dataclasses.dataclass(frozen=True, slots=True)
class Memory:
    """Memory of a device taken from the driver, or given back (`bytes` < 0); `used` is what is in use afterwards."""

    device: int
    time: int
    virtual_time: int
    address: int
    bytes: int
    used: int


@dataclasses.dataclass(slots=True)
class Log:
    """A log as a whole. `whole` is false where its last record was cut off: the process was killed."""

    process: int
    rank: int
    world: int
    chip: str
    dry: bool
    monotonic: int
    realtime: int
    tasks: list[Task]
    memory: list[Memory]
    whole: bool


def read_timeline(path: Path) -> Log:
    """Read a log. Raises TorchportError where it is none, or one of a later version."""
    data = path.read_bytes()
    if not data.startswith(MAGIC):
        raise TorchportError(
            f"{path} is no event log of the virtual NPU", hint="VNPU_TIMELINE=file leaves one; see docs/timeline.md."
        )
    names: dict[int, str] = {}
    log: Log | None = None
    chip = 0
    for kind, at, end in _records(data):
        if kind == _NAME:
            number, length = _NAME_BODY.unpack_from(data, at)
            start = at + _NAME_BODY.size
            names[number] = data[start : start + length].decode()
        elif kind == _PROCESS:
            version, process, rank, world, chip, dry, monotonic, realtime = _PROCESS_BODY.unpack_from(data, at)
            if version != 1:
                raise TorchportError(f"{path} is an event log of version {version}, which this torchport does not know")
            log = Log(process, rank, world, "", bool(dry), monotonic, realtime, [], [], True)
        elif log is not None and kind == _TASK:
            log.tasks.append(_task(data, at, names))
        elif log is not None and kind == _MEMORY:
            device, _, *rest = _MEMORY_BODY.unpack_from(data, at)
            log.memory.append(Memory(device, *rest))
        last = end
    if log is None:
        raise TorchportError(f"{path} ends before its first record", hint="The process that wrote it was killed.")
    log.chip = names.get(chip, "")
    log.whole = last == len(data)
    return log


def _records(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Kind, start of the body and end of each whole record."""
    at = len(MAGIC)
    while at + _HEAD.size <= len(data):
        length, kind, _ = _HEAD.unpack_from(data, at)
        if length < _HEAD.size or at + length > len(data):
            return
        yield kind, at + _HEAD.size, at + length
        at += length


def _task(data: bytes, at: int, names: dict[int, str]) -> Task:
    name, device, count, stream, thread, unit, failed, ranks, _, correlation, *rest = _TASK_BODY.unpack_from(data, at)
    at += _TASK_BODY.size
    tensors = []
    for _ in range(count):
        address, size, dtype, layout, rank, flags, _ = _TENSOR.unpack_from(data, at)
        at += _TENSOR.size
        shape = struct.unpack_from(f"<{rank}q", data, at)
        at += 8 * rank
        tensors.append(
            Tensor(address, size, DTYPES.get(dtype, str(dtype)), layout, shape, bool(flags & 1), bool(flags & 2))
        )
    queued, began, ended, virtual_queued, virtual_began, virtual_ended, flops, size, converted = rest
    return Task(
        names.get(name, "?"),
        device,
        stream,
        thread,
        UNITS[unit],
        bool(failed),
        ranks,
        correlation,
        queued,
        began,
        ended,
        virtual_queued,
        virtual_began,
        virtual_ended,
        flops,
        size,
        converted,
        tuple(tensors),
    )
