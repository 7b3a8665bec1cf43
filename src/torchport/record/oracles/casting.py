"""torch_npu's own casts. A cast is judged by its numbers; the layout on the device changes none."""

from __future__ import annotations

from typing import Any

from torchport.record.oracles.given import dtype_of


def npu_dtype_cast(torch: Any, given: Any, dtype: Any, *_: Any) -> list[Any]:
    """`given` in another dtype, of which a wide reference keeps its own."""
    target = dtype_of(torch, dtype)
    return [given if given.dtype == torch.float64 and target.is_floating_point else given.to(target)]


def npu_dtype_cast_backward(torch: Any, grad: Any, dtype: Any, *_: Any) -> list[Any]:
    """The gradient in the dtype of what was cast."""
    return npu_dtype_cast(torch, grad, dtype)


def npu_format_cast(torch: Any, given: Any, *_: Any) -> list[Any]:
    """The same numbers."""
    return [given]
