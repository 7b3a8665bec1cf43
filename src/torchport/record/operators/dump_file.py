"""A dump file of CANN's: what one operator read and wrote.

`aclmdlSetDump` documents it and CANN's `dump_task.proto` describes it: the header's length (uint64, little endian), the
header (a protobuf message), and the bytes of the inputs and then of the outputs, one behind the other.
"""

from __future__ import annotations

import math
import os
import pathlib
import struct
from collections.abc import Iterator
from typing import TypeVar

import torch

# OutputDataType of dump_task.proto.
DTYPES = {
    1: torch.float32,
    2: torch.float16,
    3: torch.int8,
    4: torch.uint8,
    5: torch.int16,
    6: torch.uint16,
    7: torch.int32,
    8: torch.int64,
    9: torch.uint32,
    10: torch.uint64,
    11: torch.bool,
    12: torch.float64,
    16: torch.complex64,
    17: torch.complex128,
    27: torch.bfloat16,
    32: torch.complex32,
    34: torch.float8_e5m2,
    35: torch.float8_e4m3fn,
}
# Numbers of the fields in message DumpData, and in its parts OpOutput and OpInput, whose sizes differ in theirs.
PARTS = {"output": 3, "input": 4}
DATA_TYPE, SHAPE = 1, 3
SIZE = {"output": 6, "input": 5}
_LONGEST = 10  # bytes of a protobuf integer, which has 64 bits
_Kind = TypeVar("_Kind", int, bytes)
Tensors = dict[str, list[torch.Tensor]]  # by "input" and "output"


def read_dump_file(path: str | os.PathLike[str]) -> Tensors:
    """The tensors in a dump file.

    Raises ValueError for a file that is none or ends too early, and for a tensor of a type that torch does not have or
    whose shape does not fit its bytes; OSError where the file cannot be read.
    """
    data = pathlib.Path(path).read_bytes()
    if len(data) < 8 or len(data) < 8 + (length := struct.unpack_from("<Q", data)[0]):
        raise ValueError(f"{path} is no dump of an operator: it ends within its header")
    try:
        return _tensors(data[8 : 8 + length], data[8 + length :])
    except ValueError as error:
        raise ValueError(f"{path} is no dump of an operator that can be read: {error}") from None


def _tensors(header: bytes, data: bytes) -> Tensors:
    place = 0
    found: Tensors = {}
    for part in ("input", "output"):
        found[part] = []
        for number, message in _fields(header):
            if number != PARTS[part]:
                continue
            fields = dict(_fields(_is(bytes, message)))
            kind = _is(int, fields.get(DATA_TYPE, 0))
            dtype = DTYPES.get(kind)
            if dtype is None:
                raise ValueError(f"an {part} has data type {kind}, which torch lacks")
            sizes = _fields(_is(bytes, fields.get(SHAPE, b"")))
            shape = [size for _, packed in sizes for size in _varints(packed)]
            size = _is(int, fields.get(SIZE[part], 0))
            raw = data[place : place + size]
            if len(raw) < size:
                raise ValueError(f"it ends within an {part}")
            if math.prod(shape) * dtype.itemsize != size or max(shape, default=0) >= 2**63:
                raise ValueError(f"an {part} of {size} bytes has the shape {shape} and the type {dtype}")
            place += size
            flat = torch.frombuffer(bytearray(raw), dtype=dtype) if raw else torch.empty(0, dtype=dtype)
            try:
                found[part].append(flat.view(shape))
            except RuntimeError as error:  # an empty one whose other sizes have a product beyond 64 bits
                raise ValueError(f"an {part} has the shape {shape}: {error}") from None
    return found


def _is(kind: type[_Kind], value: object) -> _Kind:
    if not isinstance(value, kind):
        raise ValueError("its header has a field of another kind than CANN's")
    return value


def _varints(data: int | bytes) -> Iterator[int]:
    """The numbers of a repeated field: packed into bytes, or one by one."""
    if isinstance(data, int):
        yield data
        return
    place = 0
    while place < len(data):
        value, place = _varint_at(data, place)
        yield value


def _varint_at(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    for byte in data[place : place + _LONGEST]:
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place
    raise ValueError("its header is not a message")


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field: integers and bytes, of which CANN's messages consist."""
    place = 0
    while place < len(message):
        key, place = _varint_at(message, place)
        value, place = _varint_at(message, place)
        if key & 7 == 0:
            yield key >> 3, value
        elif key & 7 == 2 and place + value <= len(message):
            yield key >> 3, message[place : place + value]
            place += value
        else:
            raise ValueError("its header is not a message")
