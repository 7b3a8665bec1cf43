"""A dump file of CANN's: what one operator read and wrote.

`aclmdlSetDump` documents it and CANN's `dump_task.proto` describes it: the header's length (uint64, little endian), the
header (a protobuf message), and the bytes of the inputs and then of the outputs, one behind the other.
"""

from __future__ import annotations

import os
import pathlib
import struct
from collections.abc import Iterator
from typing import Any

import torch

# OutputDataType of dump_task.proto.
DTYPES = {
    1: torch.float32, 2: torch.float16, 3: torch.int8, 4: torch.uint8, 5: torch.int16, 6: torch.uint16,
    7: torch.int32, 8: torch.int64, 9: torch.uint32, 10: torch.uint64, 11: torch.bool, 12: torch.float64,
    16: torch.complex64, 17: torch.complex128, 27: torch.bfloat16, 32: torch.complex32, 34: torch.float8_e5m2,
    35: torch.float8_e4m3fn,
}  # fmt: skip
# Numbers of the fields in message DumpData, and in its parts OpOutput and OpInput, whose sizes differ in theirs.
PARTS = {"output": 3, "input": 4}
DATA_TYPE, SHAPE = 1, 3
SIZE = {"output": 6, "input": 5}
Tensors = dict[str, list[torch.Tensor]]  # by "input" and "output"


def read(path: str | os.PathLike[str]) -> Tensors:
    """The tensors in a dump file.

    Raises ValueError for a file that is none or ends too early, and for a tensor of a type that torch does not have.
    """
    data = pathlib.Path(path).read_bytes()
    if len(data) < 8 or len(data) < 8 + (length := struct.unpack_from("<Q", data)[0]):
        raise ValueError(f"{path} is no dump of an operator: it ends within its header")
    try:
        return _tensors(path, data[8 : 8 + length], data[8 + length :])
    except IndexError:
        raise ValueError(f"{path} is no dump of an operator: its header is not a message") from None


def _tensors(path: str | os.PathLike[str], header: bytes, data: bytes) -> Tensors:
    place = 0
    found: Tensors = {}
    for part in ("input", "output"):
        found[part] = []
        for number, message in _fields(header):
            if number != PARTS[part]:
                continue
            fields = dict(_fields(message))
            dtype = DTYPES.get(fields.get(DATA_TYPE, 0))
            if dtype is None:
                raise ValueError(
                    f"{path}: an {part} has data type {fields.get(DATA_TYPE, 0)}, which torch lacks"
                )
            shape = [size for _, sizes in _fields(fields.get(SHAPE, b"")) for size in _varints(sizes)]
            size = fields.get(SIZE[part], 0)
            raw = data[place : place + size]
            if len(raw) < size:
                raise ValueError(f"{path} ends within an {part}")
            place += size
            flat = torch.frombuffer(bytearray(raw), dtype=dtype) if raw else torch.empty(0, dtype=dtype)
            found[part].append(flat.view(shape))
    return found


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
    while True:
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Number and value of each field: integers and bytes, of which CANN's messages consist."""
    place = 0
    while place < len(message):
        key, place = _varint_at(message, place)
        value, place = _varint_at(message, place)
        if key & 7 not in (0, 2):
            raise IndexError("a kind of field that CANN's messages do not have")
        if key & 7 == 0:
            yield key >> 3, value
        else:
            yield key >> 3, message[place : place + value]
            place += value
