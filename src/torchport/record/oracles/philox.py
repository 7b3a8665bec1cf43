"""The virtual NPU's mask of a dropout, from the seed and offset that a recorded call names.

Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11): key = seed, counter = (block,
offset); the four numbers of a block decide over four elements, which stay where the number is below 1 - p of its range.
An NPU may draw others: who uses it has to see that the results are of this mask.
"""

from __future__ import annotations

from typing import Any

import numpy

_HALF, _LOW = numpy.uint64(32), numpy.uint64(0xFFFFFFFF)
_FACTORS = numpy.uint64(0xD2511F53), numpy.uint64(0xCD9E8D57)
_KEYS = 0x9E3779B9, 0xBB67AE85
ROUNDS = 10


def draw_keep_mask(count: int, keep: float, seed: int, offset: int) -> Any:
    """Which of `count` elements stay, as truth values."""
    blocks = numpy.arange((count + 3) // 4, dtype=numpy.uint64)
    fixed = [numpy.full_like(blocks, part) for part in (offset & 0xFFFFFFFF, offset >> 32 & 0xFFFFFFFF)]
    counter = [blocks & _LOW, blocks >> _HALF, *fixed]
    keys = [seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF]
    for _ in range(ROUNDS):
        first, second = _FACTORS[0] * counter[0], _FACTORS[1] * counter[2]
        left, right = (numpy.uint64(key) for key in keys)
        counter = [
            second >> _HALF ^ counter[1] ^ left,
            second & _LOW,
            first >> _HALF ^ counter[3] ^ right,
            first & _LOW,
        ]
        keys = [(key + step) & 0xFFFFFFFF for key, step in zip(keys, _KEYS, strict=True)]
    numbers = numpy.stack(counter, 1).reshape(-1)[:count]
    return numbers < numpy.uint64(int(keep * 2**32))
