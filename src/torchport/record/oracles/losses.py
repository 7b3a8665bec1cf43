"""Losses whose gradient torch_npu has as an operator, or which keep for it what the CPU does not."""

from __future__ import annotations

from typing import Any

MEAN = 1


def ctc_loss(torch: Any, log_probs: Any, targets: Any, lengths: Any, *more: Any) -> list[Any]:
    """The losses alone: the logarithms that are kept for the gradient are padded on an NPU (to a multiple of 8)."""
    form = torch.ops.aten._ctc_loss
    run = form.Tensor if isinstance(lengths, torch.Tensor) else form.default
    return [run(log_probs, targets, lengths, *more)[0], None]


def npu_binary_cross_entropy_with_logits_backward(
    torch: Any, grad: Any, given: Any, target: Any, weight: Any, positive: Any, reduction: int
) -> list[Any]:
    """Of -w (p t log s + (1 - t) log(1 - s)), where s is the sigmoid of what is given."""
    sigmoid = given.sigmoid()
    factor = 1 if positive is None else positive
    found = (factor * target + 1 - target) * sigmoid - factor * target
    found = found if weight is None else found * weight
    return [grad * found / (given.numel() if reduction == MEAN else 1)]
