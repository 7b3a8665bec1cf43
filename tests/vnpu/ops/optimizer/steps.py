"""Steps of optimizers: their operands, and the comparison with NumPy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from aclop import drawn, near, ran

Arrays = list[Any]


def shrunk(x: Any, by: Any) -> Any:
    return np.sign(x) * np.maximum(np.abs(x) - by, 0)


def made(what: Any, *sizes: int) -> torch.Tensor:
    if isinstance(what, str):
        return drawn(*sizes) if what == "g" else drawn(*sizes).abs() + 0.1
    return torch.tensor(what, dtype=torch.int32 if isinstance(what, int) else torch.float32)


def compared(name: str, operands: list[torch.Tensor], expected: Arrays, **attributes: Any) -> None:
    outputs = ran(name, operands, *[operands[0].shape] * len(expected), **attributes)
    for out, there, value in zip(outputs, ran.operands, expected, strict=False):  # type: ignore[attr-defined]
        near(out, torch.from_numpy(value), 1e-5)
        near(there.double(), torch.from_numpy(value), 1e-5)
