"""The checksum of a tensor's bytes, as csrc/record/statistics.h defines it: 64 bits, not cryptographic.

The bytes, filled up with zeros to a multiple of 64, are stripes of eight 64-bit lanes. A key for each lane and stripe
is mixed in, so that the place of a value counts; the two halves of the mixed lane are multiplied and added up. The sums
of the lanes are folded into one number together with the length.
"""

from __future__ import annotations

from typing import Any

import numpy

LANES = 8
_MASK = (1 << 64) - 1
# Odd numbers of 64 bits without a pattern: the golden ratio's fraction, and what splitmix64 makes of 1, 2, 3 ...
STEP = 0x9E3779B97F4A7C15


def _mixed(value: int) -> int:
    """The finaliser of splitmix64 (Steele, Lea, Flood, 2014)."""
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & _MASK
    return value ^ (value >> 31)


KEYS = [_mixed(STEP * (lane + 1) & _MASK) for lane in range(LANES)]
STEPS = [_mixed(STEP * (lane + 101) & _MASK) | 1 for lane in range(LANES)]
_CHUNK = 1 << 16  # stripes at a time


def compute_checksum(data: Any) -> int:
    """Of a contiguous array's bytes, or of bytes."""
    flat = numpy.frombuffer(data, numpy.uint8) if not isinstance(data, numpy.ndarray) else data
    flat = flat.reshape(-1).view(numpy.uint8)
    size = flat.size
    whole = size // 64
    sums = numpy.zeros(LANES, numpy.uint64)
    lanes = flat[: whole * 64].view(numpy.uint64).reshape(whole, LANES) if whole else None
    with numpy.errstate(over="ignore"):
        for start in range(0, whole, _CHUNK):
            assert lanes is not None
            sums += _sums(lanes[start : start + _CHUNK], start)
        if size % 64:
            last = numpy.zeros(64, numpy.uint8)
            last[: size % 64] = flat[whole * 64 :]
            sums += _sums(last.view(numpy.uint64).reshape(1, LANES), whole)
    value = size * STEP & _MASK
    for one in sums.tolist():
        value = _mixed((value ^ one) & _MASK)
    return value


def _sums(lanes: Any, first: int) -> Any:
    keys = numpy.array(KEYS, numpy.uint64)
    steps = numpy.array(STEPS, numpy.uint64)
    places = numpy.arange(first, first + len(lanes), dtype=numpy.uint64)[:, None]
    mixed = lanes ^ (keys + places * steps)
    return ((mixed & numpy.uint64(0xFFFFFFFF)) * (mixed >> numpy.uint64(32)) + lanes).sum(0, dtype=numpy.uint64)
