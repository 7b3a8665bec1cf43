"""The scalars of a TensorBoard event file, read without TensorBoard.

A file is a sequence of records (length, its checksum, data, its checksum), each the protocol buffer `Event`:
tensorflow/core/lib/io/record_writer.h, tensorboard/compat/proto/event.proto and summary.proto.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from torchport.checkpoints.tensors import Unreadable
from torchport.port.protobuf import FIXED32, VARINT, read_fields

LARGEST = 256 << 20  # bytes of a file that is looked into
STEP, SUMMARY = 2, 5  # fields of Event
VALUE = 1  # of Summary
TAG, SIMPLE, TENSOR = 1, 2, 8  # of Summary.Value
DTYPE, CONTENT, FLOATS = 1, 4, 5  # of TensorProto; DT_FLOAT is 1
_HEAD, _FOOT = 12, 4


def read_events(path: Path) -> dict[str, object]:
    """The scalars of an event file by tag and step, and how often each was written. Raises Unreadable and OSError.

    Times are left out, and so is a record that was cut short."""
    if path.stat().st_size > LARGEST:
        raise Unreadable("an event file too large to look into")
    found: dict[str, object] = {}
    records = list(_records(path.read_bytes()))
    if not records:
        raise Unreadable("no event file")
    for record in records:
        step, values = 0, []
        for number, wire, value in read_fields(record):
            if number == STEP and wire == VARINT:
                step = int(value)
            elif number == SUMMARY and isinstance(value, bytes):
                values = [part for one, _, part in read_fields(value) if one == VALUE and isinstance(part, bytes)]
        for tag, scalar in map(_scalar, values):
            if scalar is not None:
                name = f"{tag}, step {step}"
                again = sum(other == name or other.startswith(f"{name} (") for other in found) if name in found else 0
                found[f"{name} ({again + 1})" if again else name] = scalar
    return found


def _records(data: bytes) -> Iterator[bytes]:
    place = 0
    while place + _HEAD <= len(data):
        (size,) = struct.unpack_from("<Q", data, place)
        start, end = place + _HEAD, place + _HEAD + size
        if end + _FOOT > len(data):
            return
        yield data[start:end]
        place = end + _FOOT


def _scalar(value: bytes) -> tuple[str, float | None]:
    tag, scalar = "", None
    for number, wire, part in read_fields(value):
        if number == TAG and isinstance(part, bytes):
            tag = part.decode("utf-8", "replace")
        elif number == SIMPLE and wire == FIXED32 and isinstance(part, bytes):
            (scalar,) = struct.unpack("<f", part)
        elif number == TENSOR and isinstance(part, bytes):
            scalar = _element(part)
    return tag, scalar


def _element(tensor: bytes) -> float | None:
    """The number of a float32 tensor of one element."""
    parts = {number: part for number, _, part in read_fields(tensor)}
    content = parts.get(CONTENT) or parts.get(FLOATS)
    if parts.get(DTYPE) != 1 or not isinstance(content, bytes) or len(content) != 4:
        return None
    (found,) = struct.unpack("<f", content)
    return float(found)
