"""apex.normalization: layer norm and RMS norm, as modules and as functions.

The result has the input's dtype, or the weight's for those with "Mixed" in their name. Sums are float32.
`memory_efficient` saves memory in apex's backward pass; it changes no result and nothing here.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

Shape = int | Sequence[int]


def _layer_norm(input: Tensor, shape: Shape, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    # Not torch.nn.functional.layer_norm, which amp's O1 makes give float32.
    return torch.layer_norm(input, _tuple(shape), weight, bias, eps)


def _rms_norm(input: Tensor, shape: Shape, weight: Tensor | None, eps: float) -> Tensor:
    shape = _tuple(shape)
    if input.device.type == "npu":
        import torch_npu

        rows = input.reshape(-1, math.prod(shape))
        gamma = torch.ones_like(rows[0]) if weight is None else weight.reshape(-1)
        return torch_npu.npu_rms_norm(rows, gamma, eps)[0].view_as(input)
    return torch.rms_norm(input, shape, weight, eps)


def _tuple(shape: Shape) -> tuple[int, ...]:
    return (int(shape),) if isinstance(shape, numbers.Integral) else tuple(shape)  # type: ignore[arg-type]


def _alike(input: Tensor, *parameters: Tensor | None) -> list[Tensor | None]:
    """The parameters in the input's dtype, or the input too in float32 where they differ."""
    if all(parameter is None or parameter.dtype == input.dtype for parameter in parameters):
        return [input, *parameters]
    return [None if value is None else value.float() for value in (input, *parameters)]


def fused_layer_norm_affine(
    input: Tensor,
    weight: Tensor,
    bias: Tensor,
    normalized_shape: Shape,
    eps: float = 1e-6,
    memory_efficient: bool = False,
) -> Tensor:
    """Layer norm over the last dimensions, `normalized_shape`; the input's dtype."""
    value, weight, bias = _alike(input, weight, bias)
    return _layer_norm(value, normalized_shape, weight, bias, eps).to(input.dtype)


def fused_layer_norm(
    input: Tensor, normalized_shape: Shape, eps: float = 1e-6, memory_efficient: bool = False
) -> Tensor:
    """Layer norm without weight and bias."""
    return _layer_norm(input, normalized_shape, None, None, eps)


def mixed_dtype_fused_layer_norm_affine(
    input: Tensor,
    weight: Tensor,
    bias: Tensor,
    normalized_shape: Shape,
    eps: float = 1e-6,
    memory_efficient: bool = False,
) -> Tensor:
    """Layer norm in the weight's dtype."""
    return fused_layer_norm_affine(input.to(weight.dtype), weight, bias, normalized_shape, eps)


def fused_rms_norm_affine(
    input: Tensor, weight: Tensor, normalized_shape: Shape, eps: float = 1e-6, memory_efficient: bool = False
) -> Tensor:
    """RMS norm over the last dimensions, `normalized_shape`; the input's dtype."""
    value, weight = _alike(input, weight)
    return _rms_norm(value, normalized_shape, weight, eps).to(input.dtype)


def fused_rms_norm(input: Tensor, normalized_shape: Shape, eps: float = 1e-6, memory_efficient: bool = False) -> Tensor:
    """RMS norm without weight."""
    return _rms_norm(input, normalized_shape, None, eps)


def mixed_dtype_fused_rms_norm_affine(
    input: Tensor, weight: Tensor, normalized_shape: Shape, eps: float = 1e-6, memory_efficient: bool = False
) -> Tensor:
    """RMS norm in the weight's dtype."""
    return fused_rms_norm_affine(input.to(weight.dtype), weight, normalized_shape, eps)


class FusedRMSNorm(nn.Module):  # type: ignore[misc]
    """RMS norm over the last dimensions, with a weight of that shape if `elementwise_affine`."""

    def __init__(
        self,
        normalized_shape: Shape,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        memory_efficient: bool = False,
    ) -> None:
        super().__init__()
        self.normalized_shape = torch.Size(_tuple(normalized_shape))
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self.memory_efficient = memory_efficient
        self._make_parameters()
        self.reset_parameters()

    def _make_parameters(self) -> None:
        weight = nn.Parameter(torch.empty(self.normalized_shape)) if self.elementwise_affine else None
        self.register_parameter("weight", weight)

    def reset_parameters(self) -> None:
        """Weight 1."""
        if self.elementwise_affine:
            nn.init.ones_(self.weight)

    def forward(self, input: Tensor) -> Tensor:
        """Any shape that ends in `normalized_shape`; shape and dtype stay."""
        if self.weight is None:
            return fused_rms_norm(input, self.normalized_shape, self.eps)
        return fused_rms_norm_affine(input, self.weight, self.normalized_shape, self.eps)

    def extra_repr(self) -> str:
        """The arguments, for print(model)."""
        shape = tuple(self.normalized_shape)
        return f"{shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class FusedLayerNorm(FusedRMSNorm):
    """Layer norm over the last dimensions, with weight and bias of that shape if `elementwise_affine`."""

    def _make_parameters(self) -> None:
        super()._make_parameters()
        bias = nn.Parameter(torch.empty(self.normalized_shape)) if self.elementwise_affine else None
        self.register_parameter("bias", bias)

    def reset_parameters(self) -> None:
        """Weight 1, bias 0."""
        super().reset_parameters()
        if self.elementwise_affine:
            nn.init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """Any shape that ends in `normalized_shape`; shape and dtype stay."""
        if self.weight is None:
            return fused_layer_norm(input, self.normalized_shape, self.eps)
        return fused_layer_norm_affine(input, self.weight, self.bias, self.normalized_shape, self.eps)


class MixedFusedLayerNorm(FusedLayerNorm):
    """Layer norm whose result has the weight's dtype."""

    def __init__(self, normalized_shape: Shape, eps: float = 1e-5, **options: Any) -> None:
        if not options.pop("elementwise_affine", True):
            raise RuntimeError("MixedFusedLayerNorm does not support `elementwise_affine = False`")
        super().__init__(normalized_shape, eps, **options)

    def forward(self, input: Tensor) -> Tensor:
        """As FusedLayerNorm, in the weight's dtype."""
        return super().forward(input.to(self.weight.dtype))


class MixedFusedRMSNorm(FusedRMSNorm):
    """RMS norm whose result has the weight's dtype."""

    def __init__(self, normalized_shape: Shape, eps: float = 1e-5, **options: Any) -> None:
        if not options.pop("elementwise_affine", True):
            raise RuntimeError("MixedFusedRMSNorm does not support `elementwise_affine = False`")
        super().__init__(normalized_shape, eps, **options)

    def forward(self, input: Tensor) -> Tensor:
        """As FusedRMSNorm, in the weight's dtype."""
        return super().forward(input.to(self.weight.dtype))
