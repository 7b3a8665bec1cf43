"""How far two recorded tensors are apart. Needs numpy; no torch."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy

from torchport.record.operators import layout
from torchport.record.operators.reading import Tensor

# Two machines that are given one seed draw weights so far apart: their instructions round differently.
ROUNDING = 1e-5
THOUSANDTH = 1e-3
BLOCK = 1 << 13  # elements: what is made of them fits in the cache of a core, and in memory that is used again
TINY = float(numpy.finfo(numpy.float32).tiny)


@dataclasses.dataclass(frozen=True, slots=True)
class Metrics:
    """Of `other` against `one`, in float64, over the elements that are finite in both. Relative errors are those of an
    element against its own magnitude, Euclidean against the norm of `one`; `ulp` is the largest distance in units in
    the last place of the dtype of `other`."""

    largest: float
    largest_relative: float
    mean_relative: float
    cosine: float
    euclidean: float
    within_1000: float
    within_200: float
    ulp: float
    not_finite: int


def compute_metrics(one: Any, other: Any, dtype: str) -> Metrics:
    """Of two arrays of one shape; `dtype` is that of `other` as torch names it. Looks at BLOCK elements at a time, so
    that what it needs beside the two arrays is small and stays in the processor's cache."""
    a, b = (_flat(array) for array in (one, other))
    whole = _Sums()
    for start in range(0, a.size, BLOCK):
        whole.add(a[start : start + BLOCK], b[start : start + BLOCK])
    return whole.to_metrics(dtype)


def _flat(array: Any) -> Any:
    array = numpy.asarray(array)
    if array.dtype.kind == "c":
        array = numpy.ascontiguousarray(array)
        return array.reshape(-1).view(array.real.dtype)
    return array.reshape(-1)


class _Sums:
    """What is known of the blocks so far."""

    def __init__(self) -> None:
        self.count = self.spoilt = self.thousandth = self.five = 0
        self.largest = self.relative = self.relative_sum = self.ulp = 0.0
        self.aa = self.bb = self.ab = self.dd = 0.0
        self.bits = 23

    def add(self, a: Any, b: Any) -> None:
        good = numpy.isfinite(a) & numpy.isfinite(b)
        if not good.all():
            self.spoilt += int(good.size - good.sum())
            a, b = a[good], b[good]
        if not a.size:
            return
        self.count += a.size
        x = a.astype(numpy.float64)
        if numpy.array_equal(a, b):
            square = float(x @ x)
            self.aa, self.bb, self.ab = self.aa + square, self.bb + square, self.ab + square
            self.thousandth, self.five = self.thousandth + a.size, self.five + a.size
            return
        y = b.astype(numpy.float64)
        self.aa, self.bb, self.ab = self.aa + float(x @ x), self.bb + float(y @ y), self.ab + float(x @ y)
        self.ulp = max(self.ulp, self._units(a, b))
        off = numpy.subtract(y, x, out=y)
        self.dd += float(off @ off)
        off = numpy.abs(off, out=off)
        self.largest = max(self.largest, float(off.max()))
        size = numpy.maximum(numpy.abs(x, out=x), TINY, out=x)
        off /= size
        self.relative = max(self.relative, float(off.max()))
        self.relative_sum += float(off.sum())
        self.thousandth += int(numpy.count_nonzero(off <= THOUSANDTH))
        self.five += int(numpy.count_nonzero(off <= 5 * THOUSANDTH))

    def _units(self, a: Any, b: Any) -> float:
        """The largest distance in units in the last place of float64 or float32: floats in the order of their bits."""
        wide = a.dtype == numpy.float64 or b.dtype == numpy.float64
        self.bits = 52 if wide else 23
        made = []
        for one in (a, b):
            signed = one.astype(numpy.float64 if wide else numpy.float32, copy=False)
            signed = numpy.ascontiguousarray(signed).view(numpy.int64 if wide else numpy.int32)
            low = numpy.iinfo(signed.dtype).max
            made.append((signed ^ ((signed >> (63 if wide else 31)) & low)).astype(numpy.int64, copy=False))
        # Further apart than int64 reaches, but not than uint64.
        return float((numpy.maximum(*made).view(numpy.uint64) - numpy.minimum(*made).view(numpy.uint64)).max())

    def to_metrics(self, dtype: str) -> Metrics:
        if not self.count:
            return Metrics(0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0, self.spoilt)
        bits = {"float64": 52, "float32": 23, "float16": 10, "bfloat16": 7}.get(dtype, self.bits)
        both = (self.aa * self.bb) ** 0.5
        euclidean = (self.dd / self.aa) ** 0.5 if self.aa else float(self.dd > 0)
        return Metrics(
            self.largest,
            self.relative,
            self.relative_sum / self.count,
            1.0 if not self.dd else self.ab / both if both else 0.0,
            euclidean,
            self.thousandth / self.count,
            self.five / self.count,
            self.ulp / 2.0 ** (self.bits - bits),
            self.spoilt,
        )


def measure_distance(one: Tensor, other: Tensor) -> float:
    """The Euclidean distance relative to `one`; 1 for other shapes, and for integers that differ. By statistics where
    the content was not kept: then no more than how far norms and means are apart."""
    if one.shape != other.shape:
        return 1.0
    first, second = one.statistics, other.statistics
    if first and second and first.checksum and first.checksum == second.checksum:
        return 0.0
    if one.has_content and other.has_content:
        a, b = one.values(), other.values()
        if layout.DTYPES[one.dtype].kind not in ("float", "complex"):
            return float(not numpy.array_equal(a, b))
        norm = float(numpy.linalg.norm(a.astype(numpy.complex128 if a.dtype.kind == "c" else numpy.float64)))
        off = float(numpy.linalg.norm((b - a).ravel()))
        return off / norm if norm else float(off > 0)
    if first is None or second is None:
        return 0.0
    size = max(abs(first.l2), abs(second.l2))
    return abs(first.l2 - second.l2) / size if size else 0.0
