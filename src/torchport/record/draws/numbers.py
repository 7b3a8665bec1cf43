"""Random numbers of a key: the same on every machine, in any number of threads.

Philox 4x64-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) as numpy has it. The key is the
draw's, the counter counts its elements: an element's number depends on nothing else.
"""

from __future__ import annotations

import threading
from typing import Any

# Bits that a uniform number of a dtype has, as torch draws them: 1.0 is then never the result of rounding.
UNIFORM_BITS = {"float16": 11, "bfloat16": 8}


class Numbers:
    """Draws arrays of numpy; each method takes the key first, an integer of 64 bits, and the count next."""

    def __init__(self) -> None:
        import numpy  # torch_npu needs it too

        self._numpy = numpy
        self._zeros = numpy.zeros(4, numpy.uint64)
        self._local = threading.local()

    def _generator(self, key: int) -> Any:
        numpy, local = self._numpy, self._local
        if not hasattr(local, "generator"):
            local.bits = numpy.random.Philox(key=0)
            local.generator = numpy.random.Generator(local.bits)
        # Ten times cheaper than a new generator for each draw.
        local.bits.state = {
            "bit_generator": "Philox",
            "state": {"counter": self._zeros, "key": numpy.array([key, 0], numpy.uint64)},
            "buffer": self._zeros,
            "buffer_pos": 4,
            "has_uint32": 0,
            "uinteger": 0,
        }
        return local.generator

    def draw_uniform(self, key: int, count: int, dtype: str) -> Any:
        """Numbers in [0, 1): float64 for "float64", else float32 with as many bits as `dtype` can hold."""
        generator = self._generator(key)
        if dtype in UNIFORM_BITS:
            bits = UNIFORM_BITS[dtype]
            words = self._numpy.frombuffer(generator.bytes(2 * count), self._numpy.uint16) >> (16 - bits)
            return words.astype(self._numpy.float32) * self._numpy.float32(2.0**-bits)
        return generator.random(count, self._numpy.float64 if dtype == "float64" else self._numpy.float32)

    def draw_normal(self, key: int, count: int, dtype: str) -> Any:
        """Standard normal numbers, float64 for "float64", else float32."""
        kind = self._numpy.float64 if dtype == "float64" else self._numpy.float32
        return self._generator(key).standard_normal(count, kind)

    def draw_integers(self, key: int, count: int, lowest: int, highest: int) -> Any:
        """int64 numbers from `lowest` to `highest`, both included."""
        return self._generator(key).integers(lowest, highest, count, self._numpy.int64, endpoint=True)

    def draw_bernoulli(self, key: int, count: int, probability: float) -> Any:
        """A bool for each element, true with `probability`, exact to 2**-61.

        One random byte decides all but one element in 256; for that one a float64 does.
        """
        numpy, generator = self._numpy, self._generator(key)
        whole, rest = divmod(probability * 256.0, 1.0)
        drawn = numpy.frombuffer(generator.bytes(count), numpy.uint8)
        if whole >= 256:
            return numpy.ones(count, numpy.bool_)
        kept = drawn < numpy.uint8(whole)
        if rest:
            even = numpy.flatnonzero(drawn == numpy.uint8(whole))
            kept[even] = generator.random(even.size) < rest
        return kept
