"""Statistics of a tensor without our library: of the host's by numpy, of a device's by few reductions there, which are
read back together at the end of a step."""

from __future__ import annotations

import math
from typing import Any

import numpy

from torchport.record.operators import layout
from torchport.record.operators.checksum import compute_checksum
from torchport.record.operators.tables import Measured


def flat_bytes(torch: Any, tensor: Any) -> tuple[Any, bool]:
    """The elements of a tensor of the host as a flat array of bytes, without dimensions that repeat (stride 0); whether
    they are row-major. Where they lie without gaps they are as they lie, else copied row-major."""
    tensor = narrow_expanded_dims(tensor)
    row_major = bool(tensor.is_contiguous())
    if tensor.numel() == 0:
        return numpy.empty(0, numpy.uint8), True
    if not row_major and not torch.ops.aten.is_non_overlapping_and_dense(tensor):
        tensor, row_major = tensor.contiguous(), True
    tensor = tensor.as_strided((tensor.numel(),), (1,))
    return tensor.view(torch.uint8).numpy(), row_major


def narrow_expanded_dims(tensor: Any) -> Any:
    """The tensor with one element of each dimension that repeats it (stride 0). Asked before a copy, which has none."""
    for place, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if stride == 0 and size > 1:
            tensor = tensor.narrow(place, 0, 1)
    return tensor


def count_repeats(tensor: Any) -> int:
    """How often each element that `flat_bytes` gives is in the tensor."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return math.prod(size for size, stride in pairs if stride == 0 and size > 1)


def of_bytes(dtype: str, data: Any, times: int) -> Measured | None:
    """Statistics of the elements in `data`, each counted `times`; None for a dtype that numpy cannot read."""
    kind = layout.DTYPES.get(dtype)
    if kind is None:
        return None
    if dtype == "bfloat16":
        values = (data.view(numpy.uint16).astype(numpy.uint32) << 16).view(numpy.float32)
    elif kind.kind == "other" or (kind.kind in ("float", "complex") and kind.bits[1] == "u"):
        return None
    else:
        values = data.view(kind.bits)
    with numpy.errstate(all="ignore"):
        return _of_values(values, times, compute_checksum(data))


def _of_values(values: Any, times: int, value: int) -> Measured:
    zeros = int(values.size - numpy.count_nonzero(values)) * times
    if values.dtype.kind == "c":
        values = numpy.abs(values.astype(numpy.complex128))
    wide = values.astype(numpy.float64)
    nans = infinities = 0
    numbers = finite = wide
    if values.dtype.kind == "f":
        is_nan = numpy.isnan(wide)
        nans = int(is_nan.sum())
        numbers = wide[~is_nan] if nans else wide
        infinities = int(numpy.isinf(numbers).sum())
        finite = numbers[numpy.isfinite(numbers)] if infinities else numbers
    low, high = (float(numbers.min()), float(numbers.max())) if numbers.size else (math.nan, math.nan)
    mean = float(finite.sum() / finite.size) if finite.size else math.nan
    l2 = math.sqrt(float(numpy.dot(finite, finite)) * times)
    return Measured(low, high, mean, l2, nans * times, infinities * times, zeros, value)


class Reductions:
    """Of a device: the numbers of a tensor as eight numbers there, and all of a step's read by one copy.

    There is no checksum, and sums are float32 where the device has no float64.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._waiting: dict[Any, list[tuple[int, Any, int]]] = {}

    def measure_tensor(self, index: int, tensor: Any) -> bool:
        """Measure a tensor for row `index`; False for one of a kind that has no such numbers."""
        torch = self._torch
        if tensor.numel() == 0 or not (tensor.is_floating_point() or tensor.is_complex() or _counts(torch, tensor)):
            return False
        values = tensor.detach().abs() if tensor.is_complex() else tensor.detach()
        wide = values.float() if values.dtype != torch.float64 else values
        nan, inf = torch.isnan(wide), torch.isinf(wide)
        finite = torch.where(nan | inf, torch.zeros_like(wide), wide)
        low = torch.where(nan, torch.full_like(wide, math.inf), wide).amin()
        high = torch.where(nan, torch.full_like(wide, -math.inf), wide).amax()
        row = torch.stack(
            [
                low,
                high,
                finite.sum(),
                torch.linalg.vector_norm(finite),
                *(part.sum().to(wide.dtype) for part in (nan, inf, wide == 0)),
            ]
        )
        self._waiting.setdefault((tensor.device, row.dtype), []).append((index, row, tensor.numel()))
        return True

    def read_measured(self) -> list[tuple[int, Measured]]:
        """All that were put, by row."""
        found = []
        for rows in self._waiting.values():
            values = self._torch.stack([row for _, row, _ in rows]).cpu().tolist()
            for (index, _, elements), one in zip(rows, values, strict=True):
                low, high, total, l2, nans, infinities, zeros = one
                count = elements - int(nans) - int(infinities)
                if nans == elements:
                    low = high = math.nan
                mean = total / count if count else math.nan
                found.append((index, Measured(low, high, mean, l2, int(nans), int(infinities), int(zeros), 0)))
        self._waiting.clear()
        return found


def _counts(torch: Any, tensor: Any) -> bool:
    return tensor.dtype in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
