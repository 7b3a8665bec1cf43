"""xformers.ops.fmha, on the NPU's fused attention."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchport.standins.attention import Settings, attend, attend_packed

from . import attn_bias as attn_bias_classes
from .attn_bias import AttentionBias, BlockDiagonalMask, LowerTriangularMask, LowerTriangularMaskWithTensorBias, Shifted

attn_bias = attn_bias_classes

__all__ = [
    "AttentionBias",
    "AttentionOpBase",
    "BlockDiagonalMask",
    "LowerTriangularMask",
    "MemoryEfficientAttentionCutlassFwdFlashBwOp",
    "MemoryEfficientAttentionCutlassOp",
    "MemoryEfficientAttentionFlashAttentionOp",
    "attn_bias",
    "memory_efficient_attention",
    "memory_efficient_attention_forward",
    "memory_efficient_attention_forward_requires_grad",
]


class AttentionOpBase:
    """What `op=` chooses among in xformers. The NPU has one fused operator: any choice is that one."""

    NAME = "npu_fusion_attention"


MemoryEfficientAttentionCutlassOp = (AttentionOpBase, AttentionOpBase)
MemoryEfficientAttentionFlashAttentionOp = (AttentionOpBase, AttentionOpBase)
MemoryEfficientAttentionCutlassFwdFlashBwOp = (AttentionOpBase, AttentionOpBase)


def memory_efficient_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | AttentionBias | None = None,
    p: float = 0.0,
    scale: float | None = None,
    *,
    op: Any = None,
    output_dtype: torch.dtype | None = None,
) -> Tensor:
    """Attention of (batch, sequence, heads, width), also without heads, or with (groups, heads) in place of heads.

    `attn_bias` is None, a tensor that is added to the scaled scores (broadcast to batch, heads, queries, keys), or one
    of the masks of `attn_bias`; `p` is the probability of dropout. The result has the query's shape.
    Raises NotImplementedError for a mask of another class.
    """
    return _attention(query, key, value, attn_bias, p, scale, output_dtype)[0]


def memory_efficient_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | AttentionBias | None = None,
    p: float = 0.0,
    scale: float | None = None,
    *,
    op: Any = None,
    output_dtype: torch.dtype | None = None,
) -> Tensor:
    """As `memory_efficient_attention`, without gradients."""
    with torch.no_grad():
        return _attention(query, key, value, attn_bias, p, scale, output_dtype)[0]


def memory_efficient_attention_forward_requires_grad(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | AttentionBias | None = None,
    p: float = 0.0,
    scale: float | None = None,
    *,
    op: Any = None,
    output_dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """As `memory_efficient_attention_forward`, and the log of the sums of exp(score), (batch, heads, queries)."""
    with torch.no_grad():
        output, sums = _attention(query, key, value, attn_bias, p, scale, output_dtype)
        return output, sums()


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | AttentionBias | None,
    p: float,
    scale: float | None,
    output_dtype: torch.dtype | None,
) -> tuple[Tensor, Any]:
    shape = query.shape
    bias = attn_bias if isinstance(attn_bias, Tensor) else None
    if query.dim() == 3:
        query, key, value = (tensor.unsqueeze(2) for tensor in (query, key, value))
        bias = None if bias is None else bias.unsqueeze(1)
    elif query.dim() == 5:
        query, key, value = (tensor.flatten(2, 3) for tensor in (query, key, value))
        bias = None if bias is None else bias.flatten(1, 2)
    if isinstance(attn_bias, BlockDiagonalMask):
        query, key, value = (tensor.flatten(0, 1) for tensor in (query, key, value))
        query_ends, key_ends = attn_bias.q_seqinfo.seqstart_py[1:], attn_bias.k_seqinfo.seqstart_py[1:]
        output, sums = attend_packed(query, key, value, query_ends, key_ends, Settings(scale, attn_bias.band, p))
    else:
        band = None
        if isinstance(attn_bias, LowerTriangularMaskWithTensorBias):
            bias = attn_bias.bias
        if isinstance(attn_bias, Shifted):
            band = attn_bias.band
        elif isinstance(attn_bias, AttentionBias):
            raise NotImplementedError(
                f"memory_efficient_attention on an NPU has no {type(attn_bias).__name__}: pass "
                "attn_bias.materialize(shape), a tensor, in its place."
            )
        output, sums = attend(query, key, value, Settings(scale, band, p), bias)
    output = output.reshape(*shape[:-1], value.shape[-1])
    return output if output_dtype is None else output.to(output_dtype), sums
