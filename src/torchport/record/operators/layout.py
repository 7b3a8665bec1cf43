"""What a step's file holds: tables that csrc/record/tables.h lays out in the same way. `docs/recordings.md` explains
each field to whoever reads such a file without us."""

from __future__ import annotations

from dataclasses import dataclass

import numpy

LAYOUT = 2  # of one file; the version of the whole recording is `recording.VERSION`
FOLDER = "operators"
UNFINISHED = ".unfinished"
REST = "rest"  # what was called after the last step

STATISTICS, TENSOR, MODULE = "statistics", "tensor", "module"
LEVELS = (STATISTICS, TENSOR, MODULE)
# Index is the number in the table.
PHASES = ("forward", "backward", "optimizer", "recompute")

CALL = numpy.dtype(
    [
        ("sequence", "<i8"),  # autograd's number; -1: none
        ("inputs", "<i4"),  # first of its inputs in `links`
        ("input_count", "<i4"),
        ("outputs", "<i4"),
        ("output_count", "<i4"),
        ("operator", "<i4"),  # from here on: lines of `strings`; -1: none
        ("overload", "<i4"),
        ("module", "<i4"),
        ("function", "<i4"),
        ("source", "<i4"),
        ("arguments", "<i4"),
        ("results", "<i4"),
        ("node", "<i4"),
        ("thread", "<i2"),  # numbered in the order in which threads first call an operator
        ("phase", "<i2"),  # index of PHASES
        ("written_count", "<i4"),  # behind its outputs in `links`: what it wrote and no result shows
    ]
)
MEASURED, ROW_MAJOR, REQUIRES_GRAD = 1, 2, 4
TENSOR_ROW = numpy.dtype(
    [
        ("storage", "<i8"),  # the same number: the same storage, within one process
        ("version", "<i8"),  # how often it was written before, as far as anybody counts
        ("offset", "<i8"),  # in elements
        ("elements", "<i8"),
        ("minimum", "<f8"),
        ("maximum", "<f8"),
        ("mean", "<f8"),
        ("l2", "<f8"),
        ("nans", "<i8"),
        ("infinities", "<i8"),
        ("zeros", "<i8"),
        ("checksum", "<u8"),
        ("dims", "<i4"),  # first of its sizes in `dims`; its strides follow them
        ("dtype", "<i4"),  # from here on, but for `content`: lines of `strings`; -1: none
        ("device", "<i4"),
        ("format", "<i4"),
        ("name", "<i4"),
        ("content", "<i4"),  # row of `contents`; -1: not kept
        ("reason", "<i4"),
        ("rank", "<u2"),  # how many sizes
        ("flags", "<u2"),  # MEASURED | ROW_MAJOR | REQUIRES_GRAD
    ]
)
CONTENT = numpy.dtype([("checksum", "<u8"), ("offset", "<i8"), ("size", "<i8"), ("block", "<i4"), ("unused", "<i4")])
CHANGE = numpy.dtype(
    [
        ("call", "<i4"),  # behind it the memory was another than it was when it was read last
        ("tensor", "<i4"),  # with the bytes of before
        ("after", "<i4"),  # the last call behind which they were the same; -1: none, they were read before the first
        ("by", "<i4"),  # a tensor that was made since in the same memory; -1: none that was recorded
        ("content", "<i4"),  # row of `contents`: the bytes now
        ("unused", "<i4"),
    ]
)
# The datasets of a file beside the scalar texts `about` and `strings` and the blocks of bytes.
TABLES = {
    "calls": CALL,
    "tensors": TENSOR_ROW,
    "contents": CONTENT,
    "links": numpy.dtype("<i4"),
    "dims": numpy.dtype("<i8"),
    "changes": CHANGE,
}
OPTIONAL = ("changes",)  # earlier files have none
ABOUT, STRINGS = "about", "strings"


def block_name(number: int) -> str:
    """The dataset of the block that contents lie in."""
    return f"bytes_{number}"


@dataclass(frozen=True, slots=True)
class Dtype:
    """A tensor's type: bytes of an element, and what numpy reads its bits as."""

    size: int
    bits: str
    kind: str  # float, complex, integer, bool, other


DTYPES = {
    "float32": Dtype(4, "<f4", "float"),
    "float64": Dtype(8, "<f8", "float"),
    "float16": Dtype(2, "<f2", "float"),
    "bfloat16": Dtype(2, "<u2", "float"),
    "float8_e4m3fn": Dtype(1, "|u1", "float"),
    "float8_e5m2": Dtype(1, "|u1", "float"),
    "float8_e4m3fnuz": Dtype(1, "|u1", "float"),
    "float8_e5m2fnuz": Dtype(1, "|u1", "float"),
    "float8_e8m0fnu": Dtype(1, "|u1", "float"),
    "complex32": Dtype(4, "<u4", "complex"),
    "complex64": Dtype(8, "<c8", "complex"),
    "complex128": Dtype(16, "<c16", "complex"),
    "bool": Dtype(1, "|b1", "bool"),
    "uint8": Dtype(1, "|u1", "integer"),
    "int8": Dtype(1, "|i1", "integer"),
    "int16": Dtype(2, "<i2", "integer"),
    "uint16": Dtype(2, "<u2", "integer"),
    "int32": Dtype(4, "<i4", "integer"),
    "uint32": Dtype(4, "<u4", "integer"),
    "int64": Dtype(8, "<i8", "integer"),
    "uint64": Dtype(8, "<u8", "integer"),
}
