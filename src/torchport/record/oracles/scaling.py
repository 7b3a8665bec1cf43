"""The gradient scaler's operators, which torch takes in float32 alone.

From torch's documentation of them (aten/src/ATen/native/native_functions.yaml, cuda/AmpKernels.cu): each gradient is
multiplied by the inverse of the scale, and `found_inf` becomes 1 if one of them is not finite.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def _amp_foreach_non_finite_check_and_unscale_(
    torch: Any, gradients: Sequence[Any], found_inf: Any, inverse: Any
) -> list[Any]:
    """The gradients after the call, and `found_inf`."""
    finite = all(bool(torch.isfinite(one).all()) for one in gradients)
    return [
        *((one.to(inverse.dtype) * inverse).to(one.dtype) for one in gradients),
        found_inf if finite else torch.ones_like(found_inf),
    ]


def _amp_update_scale_(
    torch: Any, scale: Any, tracker: Any, found_inf: Any, growth: float, backoff: float, interval: int
) -> list[Any]:
    """The scale after the call, and how many steps without an overflow it counts: the CPU takes float32 alone."""
    if bool(found_inf.any()):
        return [scale * backoff, torch.zeros_like(tracker)]
    if int(tracker) + 1 != interval:
        return [scale, tracker + 1]
    grown = scale * growth
    # An infinite scale would never come down again.
    return [grown if bool(torch.isfinite(grown).all()) else scale, torch.zeros_like(tracker)]
