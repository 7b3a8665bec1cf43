"""What an operator has to give, for those that the CPU does not have, or has with other inputs or results.

A reference is a function of torch and the operator's arguments (one for each of its schema, tensors on the CPU). It
gives what the operator gives, flat; None for a result that it does not judge. It computes in the dtype of what it
is given: with float64 it is the reference, with the operator's own dtype what rounding does to it. So it is written
plainly and from the operator's documentation, never from a kernel.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

Reference = Callable[..., Sequence[Any]]

# The operators of each file.
FILES = {
    "matmul": (
        "aten::matmul_backward",
        "aten::linear_backward",
        "npu::npu_linear",
        "npu::npu_linear_backward",
        "npu::npu_bmmV2",
    ),
    "attention": (
        "npu::npu_fusion_attention",
        "npu::npu_fusion_attention_v3",
        "npu::npu_fusion_attention_v2",
        "npu::npu_fusion_attention_grad",
        "npu::npu_fusion_attention_grad_v3",
        "npu::npu_fusion_attention_grad_v2",
    ),
    "pooling": ("aten::max_pool2d_with_indices", "aten::max_pool2d_with_indices_backward"),
    "dropout": (
        "aten::native_dropout",
        "aten::native_dropout_backward",
        "npu::_npu_dropout",
        "npu::npu_dropout_backward",
    ),
    "recurrent": (
        "npu::_lstm_npu",
        "npu::_lstm_npu_backward",
        "npu::_gru_npu",
        "npu::_gru_npu_backward",
        "npu::npu_lstm",
        "npu::npu_lstm_backward",
    ),
    "losses": ("aten::_ctc_loss", "npu::npu_binary_cross_entropy_with_logits_backward"),
    "scaling": ("aten::_amp_foreach_non_finite_check_and_unscale_", "aten::_amp_update_scale_"),
    "packing": ("aten::_pack_padded_sequence", "aten::_pad_packed_sequence", "aten::lstm"),
    "gelu": ("aten::gelu", "aten::gelu_", "aten::gelu_backward"),
    "casting": (
        "npu::npu_dtype_cast",
        "npu::_npu_dtype_cast",
        "npu::npu_dtype_cast_backward",
        "npu::_npu_dtype_cast_backward",
        "npu::npu_format_cast",
    ),
}
_FILE = {name: file for file, names in FILES.items() for name in names}


# Operators of torch with numbers that CANN's functions take as a `float` of C: aclnnApplyAdamWV2's betas, of which
# 1 - 0.99 is 1e-6 off then, on every chip.
SINGLE_NUMBERS = frozenset(
    f"aten::{name}"
    for name in (
        "_cdist_backward",
        "_cdist_forward",
        "_fused_adamw_",
        "_fused_sgd_",
        "_pdist_forward",
        "cdist",
        "nan_to_num",
        "nan_to_num_",
        "smooth_l1_loss",
        "smooth_l1_loss_backward",
        "upsample_nearest1d",
        "upsample_nearest2d",
    )
)


# What they say is so on every device; others are of an NPU alone.
EVERYWHERE = ("dropout", "scaling")
TANH = "gelu"


@cache
def find_reference(operator: str, *, on_npu: bool, tanh: bool) -> Reference | None:
    """The reference of an operator ("npu::npu_fusion_attention"); None where torch's own operator on the CPU is one, or
    nothing is. `tanh`: the CPU computed GELU as an NPU does."""
    file = _FILE.get(operator)
    if file is None or not (on_npu or file in EVERYWHERE or (tanh and file == TANH)):
        return None
    module = importlib.import_module(f"{__name__}.{file}")
    name = operator.partition("::")[2]
    found: Reference = getattr(module, name, None) or getattr(module, name.lstrip("_"))
    return found
