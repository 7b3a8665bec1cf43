"""Copies of an operator's tensors on the host, by position among its flattened arguments or results."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_flatten


def copy_to_host(values: Any) -> dict[int, torch.Tensor]:
    """The dense tensors in `values` as they are now; waits for the device."""
    flat, _ = tree_flatten(values)
    return {
        index: value.detach().to("cpu", copy=True)
        for index, value in enumerate(flat)
        if isinstance(value, torch.Tensor) and value.layout == torch.strided
    }


def to_numpy(tensor: torch.Tensor) -> Any:
    """A numpy array of a host tensor; bfloat16, which numpy lacks, as float32."""
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
