"""How near a result of linear algebra is to the one that is asked for, in float64."""

from __future__ import annotations

import aclop
import torch


def near(found: torch.Tensor, expected: torch.Tensor, tolerance: float = 5e-6) -> None:
    aclop.near(found, expected, tolerance)
