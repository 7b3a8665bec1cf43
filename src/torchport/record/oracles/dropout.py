"""Dropout: what is drawn is not judged here (`drawn` does), what is done with it is: an element is either zero or the
input times 1 / (1 - p), in agreement with the mask."""

from __future__ import annotations

from typing import Any


def native_dropout(torch: Any, given: Any, probability: float, train: bool | None, made: Any) -> list[Any]:
    """`made` are the recorded results: values and mask."""
    if train is False or probability == 0:
        return [given, None]
    mask = _bits(torch, made[1], given)
    return [None if mask is None else given * mask * _scale(probability), None]


def native_dropout_backward(torch: Any, grad: Any, mask: Any, scale: float) -> list[Any]:
    """The gradient where the mask is, times the scale."""
    bits = _bits(torch, mask, grad)
    return [None if bits is None else grad * bits * scale]


def _npu_dropout(torch: Any, given: Any, probability: float, made: Any) -> list[Any]:
    """As native_dropout."""
    return native_dropout(torch, given, probability, True, made)


def npu_dropout_backward(torch: Any, grad: Any, mask: Any, probability: float) -> list[Any]:
    """The gradient where the bits of the mask are, times 1 / (1 - p)."""
    bits = _bits(torch, mask, grad)
    return [None if bits is None else grad * bits * _scale(probability)]


def _scale(probability: float) -> float:
    return 0.0 if probability == 1 else 1 / (1 - probability)


def _bits(torch: Any, mask: Any, like: Any) -> Any:
    """The mask in the shape and dtype of `like`. An NPU's has a bit for each element, the lowest first."""
    if mask is not None and mask.dtype == torch.bool:
        return mask.to(like.dtype)
    if mask is None or mask.dtype != torch.uint8:
        return None
    bits = (mask.reshape(-1, 1) >> torch.arange(8, dtype=torch.uint8)) & 1
    flat = bits.reshape(-1)[: like.numel()]
    return flat.reshape(like.shape).to(like.dtype) if flat.numel() == like.numel() else None
