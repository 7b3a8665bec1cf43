"""The fields of a protocol buffer, read without its definition (protobuf.dev/programming-guides/encoding)."""

from __future__ import annotations

from collections.abc import Iterator

from torchport.checkpoints.tensors import Unreadable

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # wire types

Field = tuple[int, int, bytes | int]  # number, wire type, value


def read_fields(data: bytes) -> Iterator[Field]:
    """The fields in order. Raises Unreadable for data that are no protocol buffer."""
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        number, wire = key >> 3, key & 7
        if wire == VARINT:
            value, place = _varint(data, place)
            yield number, wire, value
            continue
        size = {FIXED64: 8, FIXED32: 4}.get(wire)
        if wire == BYTES:
            size, place = _varint(data, place)
        if size is None or place + size > len(data):
            raise Unreadable("no protocol buffer")
        yield number, wire, data[place : place + size]
        place += size


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value, shift = 0, 0
    while place < len(data) and shift < 64:
        byte = data[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
        shift += 7
    raise Unreadable("no protocol buffer")
