"""xformers.ops: attention."""

from torch import Tensor

from . import fmha
from .fmha import (
    AttentionBias,
    AttentionOpBase,
    LowerTriangularMask,
    MemoryEfficientAttentionCutlassFwdFlashBwOp,
    MemoryEfficientAttentionCutlassOp,
    MemoryEfficientAttentionFlashAttentionOp,
    memory_efficient_attention,
    memory_efficient_attention_forward,
    memory_efficient_attention_forward_requires_grad,
)

__all__ = [
    "AttentionBias",
    "AttentionOpBase",
    "LowerTriangularMask",
    "MemoryEfficientAttentionCutlassFwdFlashBwOp",
    "MemoryEfficientAttentionCutlassOp",
    "MemoryEfficientAttentionFlashAttentionOp",
    "fmha",
    "memory_efficient_attention",
    "memory_efficient_attention_forward",
    "memory_efficient_attention_forward_requires_grad",
    "unbind",
]


def unbind(x: Tensor, dim: int) -> tuple[Tensor, ...]:
    """`x.unbind(dim)`."""
    return tuple(x.unbind(dim))
