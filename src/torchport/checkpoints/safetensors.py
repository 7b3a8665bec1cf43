"""The header of a `.safetensors` file: its tensors, where their bytes are, and its metadata."""

from __future__ import annotations

import itertools
import json
import operator
from pathlib import Path

from torchport.checkpoints.contents import Piece, Stored, validate_piece
from torchport.checkpoints.tensors import Unreadable

MOST_HEADER = 1 << 28  # bytes
DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
    "C64": "complex64",
    "BOOL": "bool",
    **{f"{sign}{bits}": f"{name}{bits}" for sign, name in (("I", "int"), ("U", "uint")) for bits in (8, 16, 32, 64)},
}


def read_header(path: Path) -> tuple[dict[str, Stored], dict[str, object]]:
    """The tensors of a file by name, and its metadata. Raises Unreadable and OSError."""
    size = path.stat().st_size
    with open(path, "rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if length > min(size - 8, MOST_HEADER):
            raise Unreadable("a .safetensors file that ends inside its header")
        text = stream.read(length)
    try:
        header = json.loads(text)
        metadata = dict(header.pop("__metadata__", {}))
        found: dict[str, Stored] = {}
        for name, row in header.items():
            begin, end = map(int, row["data_offsets"])
            dtype, shape = DTYPES.get(row["dtype"], str(row["dtype"])), tuple(map(int, row["shape"]))
            if not 0 <= begin <= end <= size - 8 - length:
                raise Unreadable(f"tensor {name[:80]} lies outside the file")
            stride = tuple(itertools.accumulate(shape[:0:-1], operator.mul, initial=1))[::-1][: len(shape)]
            piece = Piece(str(path), 8 + length + begin, end - begin, 0, stride, (0,) * len(shape), shape)
            found[name] = Stored(dtype, shape, (validate_piece(name[:80], dtype, piece),))
            if found[name].nbytes != end - begin:
                raise Unreadable(f"tensor {name[:80]} has other bytes than its shape says")
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise Unreadable(f"a damaged .safetensors file: {str(error)[:200]}") from error
    return found, metadata
