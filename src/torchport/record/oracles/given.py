"""What arguments of torch_npu's operators stand for."""

from __future__ import annotations

from typing import Any

# torch's numbers of its dtypes, where an operator takes one as an int (c10/core/ScalarType.h).
NUMBERS = (
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "float32",
    "float64",
    "complex32",
    "complex64",
    "complex128",
    "bool",
    "qint8",
    "quint8",
    "qint32",
    "bfloat16",
)


def dtype_of(torch: Any, value: Any) -> Any:
    """A dtype that is given as such or as its number."""
    return getattr(torch, NUMBERS[value]) if isinstance(value, int) else value
