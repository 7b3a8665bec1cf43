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


def metrics(one: Any, other: Any, dtype: str) -> Metrics:
    """Of two arrays of one shape; `dtype` is that of `other` as torch names it."""
    a, b = (numpy.asarray(array, numpy.float64).reshape(-1) for array in (one, other))
    good = numpy.isfinite(a) & numpy.isfinite(b)
    spoilt = int(a.size - good.sum())
    a, b = a[good], b[good]
    if not a.size:
        return Metrics(0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0, spoilt)
    off = numpy.abs(b - a)
    tiny = numpy.finfo(numpy.float32).tiny
    relative = off / numpy.maximum(numpy.abs(a), tiny)
    norms = float(numpy.linalg.norm(a)), float(numpy.linalg.norm(b))
    bits = {"float64": 52, "float32": 23, "float16": 10, "bfloat16": 7}.get(dtype, 23)
    units = numpy.exp2(numpy.floor(numpy.log2(numpy.maximum(numpy.abs(a), tiny))) - bits)
    same = not off.any()
    return Metrics(
        float(off.max()), float(relative.max()), float(relative.mean()),
        1.0 if same else float(a @ b / (norms[0] * norms[1])) if all(norms) else 0.0,
        float(numpy.linalg.norm(off) / norms[0]) if norms[0] else float(not same),
        float((relative <= THOUSANDTH).mean()), float((relative <= 5 * THOUSANDTH).mean()),
        float((off / units).max()), spoilt,
    )  # fmt: skip


def distance(one: Tensor, other: Tensor) -> float:
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
