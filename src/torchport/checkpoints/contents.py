"""What a checkpoint holds: its parts, their tensors, and where the bytes of each are."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torchport.checkpoints.tensors import DTYPES, Tensor, Unreadable

# Bytes of an element, also of those dtypes that are kept and not computed with.
FLOAT8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")
SIZES = {name: size for name, (size, _) in DTYPES.items()} | dict.fromkeys(FLOAT8, 1)
MOST_WITHOUT_NUMPY = 1 << 22  # elements of a tensor that is not stored in order: some seconds


@dataclasses.dataclass(frozen=True, slots=True)
class Piece:
    """A block of a tensor: `sizes` elements from `starts` on, at `offset` with `stride` (in elements) of the `length`
    bytes of `file` from `start` on. `crc` is theirs, where the format has one."""

    file: str
    start: int
    length: int
    offset: int
    stride: tuple[int, ...]
    starts: tuple[int, ...]
    sizes: tuple[int, ...]
    crc: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Stored:
    """A tensor in a checkpoint; `device` is where it was when it was saved, empty where the format does not say."""

    dtype: str
    shape: tuple[int, ...]
    pieces: tuple[Piece, ...]
    device: str = ""

    @property
    def count(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return self.count * SIZES.get(self.dtype, 0)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"

    def to_tensor(self) -> Tensor:
        """The tensor for those who compare."""
        return Tensor(self.dtype, self.shape, lambda: read_tensor_bytes(self))


@dataclasses.dataclass(frozen=True, slots=True)
class Contents:
    """`parts` are mappings of names to tensors by the way to them ("", "state_dict", "optimizer.state.0"), `values`
    numbers and texts beside them, `objects` classes of which the file has pickled objects, by the way to them."""

    path: Path
    format: str
    parts: Mapping[str, Mapping[str, Stored]]
    values: Mapping[str, object] = dataclasses.field(default_factory=dict)
    objects: Mapping[str, str] = dataclasses.field(default_factory=dict)


FIELDS = tuple(field.name for field in dataclasses.fields(Piece))  # astuple copies, which takes five times as long


def to_json(contents: Contents) -> dict[str, Any]:
    """As the process that reads a file hands it over."""
    parts = {way: {name: _row(stored) for name, stored in part.items()} for way, part in contents.parts.items()}
    return {
        "format": contents.format,
        "parts": parts,
        "values": dict(contents.values),
        "objects": dict(contents.objects),
    }


def from_json(path: Path, value: Any) -> Contents:
    """The inverse of `to_json`."""
    parts = {way: {name: _stored(*row) for name, row in part.items()} for way, part in value["parts"].items()}
    return Contents(path, value["format"], parts, value["values"], value["objects"])


def _row(stored: Stored) -> list[Any]:
    pieces = [[getattr(piece, field) for field in FIELDS] for piece in stored.pieces]
    return [stored.dtype, stored.shape, stored.device, pieces]


def _stored(dtype: str, shape: Sequence[int], device: str, pieces: Sequence[Sequence[Any]]) -> Stored:
    made = (
        Piece(file, start, length, offset, tuple(stride), tuple(starts), tuple(sizes), crc)
        for file, start, length, offset, stride, starts, sizes, crc in pieces
    )
    return Stored(dtype, tuple(shape), tuple(made), device)


def read_storage(piece: Piece) -> bytes:
    """The bytes that the piece lies in. Raises Unreadable where they are not those that were saved."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if piece.length > memory // 2:
        raise Unreadable(f"it has {piece.length >> 20:,} MiB, and this machine {memory >> 20:,} MiB of memory")
    with open(piece.file, "rb") as stream:
        stream.seek(piece.start)
        data = stream.read(piece.length)
    if len(data) != piece.length:
        raise Unreadable(f"{piece.file} ends inside a tensor")
    if piece.crc is not None and zlib.crc32(data) != piece.crc:
        raise Unreadable(f"{piece.file} is damaged: the checksum of a tensor does not fit")
    return data


def read_tensor_bytes(stored: Stored) -> bytes:
    """The elements of a tensor in the order of rows. Raises Unreadable and OSError."""
    size = SIZES[stored.dtype]
    if len(stored.pieces) == 1 and stored.pieces[0].sizes == stored.shape:
        return _gather(stored.pieces[0], size)
    import numpy

    whole = numpy.zeros((*stored.shape, size), "u1")
    for piece in stored.pieces:
        place = tuple(slice(start, start + n) for start, n in zip(piece.starts, piece.sizes, strict=True))
        whole[place] = numpy.frombuffer(_gather(piece, size), "u1").reshape(*piece.sizes, size)
    return whole.tobytes()


def _gather(piece: Piece, size: int) -> bytes:
    data, count = read_storage(piece), math.prod(piece.sizes)
    if count == 0:
        return b""
    if in_order(piece.sizes, piece.stride):
        return data[piece.offset * size : (piece.offset + count) * size]
    try:
        import numpy
    except ImportError:
        if count > MOST_WITHOUT_NUMPY:
            raise Unreadable("a large tensor that is not stored in order needs numpy to be read") from None
        ways = [
            range(0, n * step, step) if step else [0] * n for n, step in zip(piece.sizes, piece.stride, strict=True)
        ]
        places = (piece.offset + sum(way) for way in itertools.product(*ways))
        return b"".join(data[place * size : (place + 1) * size] for place in places)
    flat = numpy.frombuffer(data, "u1")[: len(data) // size * size].reshape(-1, size)[piece.offset :]
    strides = (*(step * size for step in piece.stride), 1)
    return numpy.lib.stride_tricks.as_strided(flat, (*piece.sizes, size), strides).tobytes()


def in_order(sizes: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether elements so laid out are those of consecutive rows."""
    expected = 1
    for n, step in zip(reversed(sizes), reversed(stride), strict=True):
        if n != 1 and step != expected:
            return False
        expected *= n
    return True


def validate_piece(name: str, dtype: str, piece: Piece, repeated: int = 0) -> Piece:
    """The piece, where its elements are inside its bytes. Raises Unreadable, also for more elements than are stored
    if they take more than `repeated` bytes."""
    size, count = SIZES.get(dtype), math.prod(piece.sizes)
    if size is None:
        raise Unreadable(f"tensor {name} has the dtype {dtype[:40]}, which is not read")
    if len(piece.sizes) != len(piece.stride) or min((*piece.sizes, *piece.stride, piece.offset, 0)) < 0:
        raise Unreadable(f"tensor {name} has a negative size or stride")
    reach = piece.offset + sum((n - 1) * step for n, step in zip(piece.sizes, piece.stride, strict=True))
    if count and (reach + 1) * size > piece.length:
        raise Unreadable(f"tensor {name} reaches beyond its {piece.length} stored bytes")
    if count * size > max(piece.length, repeated):
        raise Unreadable(f"tensor {name} claims {count} elements where {piece.length} bytes are stored")
    return piece
