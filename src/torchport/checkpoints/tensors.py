"""Tensors in files, without torch: what `.npy` and `.npz` hold, and how far two tensors differ."""

from __future__ import annotations

import ast
import dataclasses
import math
import struct
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

# Bytes of an element, and its code in `struct`; those without a code are compared bit by bit.
DTYPES: dict[str, tuple[int, str]] = {
    "float64": (8, "d"),
    "float32": (4, "f"),
    "float16": (2, "e"),
    "bfloat16": (2, "H"),
    "int64": (8, "q"),
    "int32": (4, "i"),
    "int16": (2, "h"),
    "int8": (1, "b"),
    "bool": (1, "?"),
    "uint64": (8, "Q"),
    "uint32": (4, "I"),
    "uint16": (2, "H"),
    "uint8": (1, "B"),
    "complex128": (16, "dd"),
    "complex64": (8, "ff"),
}
NUMPY = {
    "f8": "float64",
    "f4": "float32",
    "f2": "float16",
    "b1": "bool",
    "c16": "complex128",
    "c8": "complex64",
    **{f"i{size}": f"int{8 * size}" for size in (1, 2, 4, 8)},
    **{f"u{size}": f"uint{8 * size}" for size in (1, 2, 4, 8)},
}
CHUNK = 1 << 20  # elements that are looked at together
MOST_WITHOUT_NUMPY = 1 << 22  # elements: about two seconds
LEAST = 1e-8  # root mean square of a tensor from which on a difference is told relative to it


class Unreadable(Exception):  # noqa: N818  it is not an error of the file's owner
    """A file is not what its name says, or something that is not read; the text says what."""


@dataclasses.dataclass(frozen=True, slots=True)
class Tensor:
    """`read` gives the elements in order of rows, little-endian; it may raise Unreadable."""

    dtype: str
    shape: tuple[int, ...]
    read: Callable[[], bytes]

    @property
    def count(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


def relative_difference(reference: Tensor, port: Tensor) -> float | None:
    """Norm of the difference over the norm of the reference, of tensors of the same dtype and shape.

    Infinite where only one has a NaN or infinity in a place. None where values are not equal bit by bit and
    cannot be compared: a dtype that is not known here, or a large tensor where numpy is not installed.
    """
    one, other = reference.read(), port.read()
    if one == other:
        return 0.0
    size, _ = DTYPES.get(reference.dtype, (0, ""))
    if not size or (_numpy() is None and reference.count > MOST_WITHOUT_NUMPY):
        return None
    if len(one) != size * reference.count or len(other) != len(one):
        raise Unreadable("a tensor has other bytes than its shape says")
    apart = norm = 0.0
    for start in range(0, len(one), CHUNK * size):
        piece = _squares(reference.dtype, one[start : start + CHUNK * size], other[start : start + CHUNK * size])
        apart, norm = apart + piece[0], norm + piece[1]
    return math.sqrt(apart) / max(math.sqrt(norm), LEAST * math.sqrt(reference.count))


def _squares(dtype: str, one: bytes, other: bytes) -> tuple[float, float]:
    """Sums of the squares of the differences and of the reference; places where both are the same NaN or
    infinity count as equal."""
    numpy = _numpy()
    if numpy is not None:
        with numpy.errstate(all="ignore"):
            x, y = (_array(numpy, dtype, data) for data in (one, other))
            same = (x == y) | (numpy.isnan(x) & numpy.isnan(y))
            difference = numpy.where(same, 0.0, x - y)
            apart = float(difference @ difference)
            finite = numpy.where(numpy.isfinite(x), x, 0.0)
            return (apart if math.isfinite(apart) else math.inf), float(finite @ finite)
    apart = norm = 0.0
    for a, b in zip(_values(dtype, one), _values(dtype, other), strict=True):
        if a != b and not (math.isnan(a) and math.isnan(b)):
            square = (a - b) * (a - b)
            apart += square if math.isfinite(square) else math.inf
        norm += a * a if math.isfinite(a) else 0.0
    return apart, norm


def _numpy() -> Any:
    try:
        import numpy
    except ImportError:
        return None
    return numpy


def _array(numpy: Any, dtype: str, data: bytes) -> Any:
    if dtype == "bfloat16":  # the upper half of a float32
        return (numpy.frombuffer(data, "<u2").astype("<u4") << 16).astype("<u4").view("<f4").astype(numpy.float64)
    if dtype.startswith("complex"):
        return numpy.frombuffer(data, "<f8" if dtype == "complex128" else "<f4").astype(numpy.float64)
    return numpy.frombuffer(data, numpy.dtype(dtype).newbyteorder("<")).astype(numpy.float64)


def _values(dtype: str, data: bytes) -> Sequence[float]:
    code = DTYPES[dtype][1]
    plain = struct.unpack(f"<{len(data) // struct.calcsize('<' + code[0])}{code[0]}", data)
    if dtype == "bfloat16":
        return struct.unpack(f"<{len(plain)}f", struct.pack(f"<{len(plain)}I", *(v << 16 for v in plain)))
    return [float(value) for value in plain]


def read_npy(data: bytes) -> Tensor:
    """The array in the bytes of an `.npy` file. Raises Unreadable, for arrays of Python objects too."""
    if data[:6] != b"\x93NUMPY" or len(data) < 12:
        raise Unreadable("no .npy file")
    length, start = (
        (struct.unpack("<H", data[8:10])[0], 10) if data[6] == 1 else (struct.unpack("<I", data[8:12])[0], 12)
    )
    try:
        header = ast.literal_eval(data[start : start + length].decode("latin1").strip())
        kind, shape, fortran = header["descr"], header["shape"], header["fortran_order"]
        dtype = NUMPY[kind[1:]]
    except (ValueError, SyntaxError, KeyError, TypeError) as error:
        raise Unreadable("an array of a kind that is not compared") from error
    if kind[0] == ">":
        raise Unreadable("big-endian numbers")
    body = start + length
    if fortran and len(shape) > 1:
        return Tensor(dtype, tuple(shape), lambda: _by_rows(data[body:], int(kind[2:]), tuple(shape)))
    return Tensor(dtype, tuple(shape), lambda: data[body:])


def _by_rows(data: bytes, size: int, shape: tuple[int, ...]) -> bytes:
    """Elements of `size` bytes in order of columns (numpy writes a transposed array so), put in order of rows."""
    numpy = _numpy()
    if numpy is None:
        raise Unreadable("an array in order of columns, and numpy is not installed")
    try:
        ordered: bytes = numpy.frombuffer(data, f"V{size}").reshape(shape, order="F").tobytes()
    except ValueError as error:
        raise Unreadable("a tensor has other bytes than its shape says") from error
    return ordered


def read_npz(path: Path) -> dict[str, object]:
    """The arrays of an `.npz` file by name. Raises Unreadable and OSError."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {name.removesuffix(".npy"): read_npy(archive.read(name)) for name in archive.namelist()}
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise Unreadable(f"no .npz file: {error}") from error
