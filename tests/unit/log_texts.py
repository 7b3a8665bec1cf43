"""Logs of a few MiB, for tests and benchmarks of the rows of knowledge/errors."""

from __future__ import annotations

import random

from torchport.knowledge.errors import load_error_rows


def texts() -> dict[str, bytes]:
    """A few MiB each of what logs are made of."""
    draw = random.Random(1)
    words = " ".join(row.cause for row in load_error_rows().values()).split()
    return {
        "training": b"".join(
            b"2025-06-25 10:45:%02d,586 | INFO | step %d | lm loss %.4f | %.1f samples/s\n"
            % (at % 60, at, draw.random() * 9, draw.random() * 400)
            for at in range(40_000)
        ),
        "frames": b"".join(
            b"frame #%d: <unknown function> + 0x%x (0x%x in /env/lib/libtorch_cpu.so)\n"
            % (at % 40, draw.getrandbits(24), draw.getrandbits(40))
            for at in range(40_000)
        ),
        "errors": b"".join(
            b"RuntimeError: error code is %d, device not found, timed out\n" % draw.randrange(10**6)
            for _ in range(40_000)
        ),
        "words of the rows": b"".join(" ".join(draw.choices(words, k=14)).encode() + b"\n" for _ in range(20_000)),
    }
