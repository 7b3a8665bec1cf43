"""Losses whose gradient torch_npu has as an operator."""

from __future__ import annotations

from typing import Any

MEAN = 1


def npu_binary_cross_entropy_with_logits_backward(
    torch: Any, grad: Any, given: Any, target: Any, weight: Any, positive: Any, reduction: int
) -> list[Any]:
    """Of -w (p t log s + (1 - t) log(1 - s)), where s is the sigmoid of what is given."""
    sigmoid = given.sigmoid()
    factor = 1 if positive is None else positive
    found = (factor * target + 1 - target) * sigmoid - factor * target
    found = found if weight is None else found * weight
    return [grad * found / (given.numel() if reduction == MEAN else 1)]
