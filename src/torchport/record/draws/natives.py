"""Operators of torch_npu that draw inside and that nothing here replaces: they are noticed and named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchport.record.draws.draws import Draws
    from torchport.record.draws.kernels import Kernels
    from torchport.record.draws.own import OwnDraws

# Those of torch_npu 2.13 with a generator, seed or dropout among their arguments, from its registered schemas.
OPERATORS = (
    "npu::_dropout_with_byte_mask",
    "npu::_npu_dropout",
    "npu::_npu_dropout_gen_mask.Tensor",
    "npu::dropout_with_byte_mask",
    "npu::npu_dropout_with_add_softmax",
    "npu::npu_fusion_attention",
    "npu::npu_fusion_attention_v2",
    "npu::npu_fusion_attention_v3",
    "npu::npu_multi_head_attention",
    "npu::npu_random_choice_with_mask",
    "npu::npu_sim_exponential_",
    "npu::npu_top_k_top_p_sample",
)


def watch_native_operators(draws: Draws, kernels: Kernels | OwnDraws) -> None:
    """Report each call of these operators that moves the device's generator."""
    key = draws.accelerator
    for operator in OPERATORS:
        if key is not None and kernels.has_kernel(operator, key):
            kernels.replace_kernel(operator, key, _watched(draws, operator))


def _watched(draws: Draws, operator: str) -> Any:
    def kernel(original: Any, *args: Any, **kwargs: Any) -> Any:
        if draws.is_capturing():
            return original(*args, **kwargs)
        before = draws.generators.read_device_states()
        result = original(*args, **kwargs)
        if draws.generators.read_device_states() != before:
            draws.leave_to_torch(operator)
        return result

    return kernel
