"""Orders in memory that torch_npu does not make (channels_last): a copy in one is a copy in the usual order.

An order changes no value. What is copied to the host keeps the order that is asked for.
"""

from __future__ import annotations

from typing import Any

from torchport.auto.log import Log
from torchport.patches import Patches

# Methods of a tensor that copy it, with the keyword `memory_format`; torch_npu 2.13.0 refuses it in each.
_COPIES = (
    "to",
    "contiguous",
    "cuda",
    "npu",
    "cpu",
    "half",
    "float",
    "double",
    "bfloat16",
    "int",
    "long",
    "bool",
    "type",
)


def patch_memory_formats(torch: Any, patches: Patches, log: Log) -> None:
    """Patch the methods, `torch.empty` and GELU, whose output torch_npu makes in the order of its input."""
    orders = (torch.channels_last, torch.channels_last_3d)
    compiling, contiguous = torch.compiler.is_compiling, torch.Tensor.contiguous

    def said(order: Any) -> None:
        if not compiling():
            log.count_redirected_call(f"memory_format={order}", "memory_format=torch.contiguous_format")

    def copying(original: Any) -> Any:
        def copy(this: Any, *args: Any, **kwargs: Any) -> Any:
            order = kwargs.get("memory_format")
            if order is None or order not in orders:
                return original(this, *args, **kwargs)
            rest = {name: value for name, value in kwargs.items() if name != "memory_format"}
            copied = original(this, *args, **rest)
            if copied.is_npu:
                said(order)
                return contiguous(copied)
            return contiguous(copied, memory_format=order)

        return copy

    def making(original: Any) -> Any:
        def make(*args: Any, **kwargs: Any) -> Any:
            order = kwargs.get("memory_format")
            if order is None or order not in orders:
                return original(*args, **kwargs)
            rest = {name: value for name, value in kwargs.items() if name != "memory_format"}
            made = original(*args, **rest)
            if made.is_npu:
                said(order)
                return made
            return original(*args, **kwargs)

        return make

    def in_the_usual_order(original: Any) -> Any:
        def gelu(input: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(input, torch.Tensor) and input.is_npu and input.dim() == 4 and not input.is_contiguous():
                input = input.contiguous()
            return original(input, *args, **kwargs)

        return gelu

    for name in _COPIES:
        patches.wrap(torch.Tensor, name, copying)
    patches.wrap(torch, "empty", making)
    patches.wrap(torch.nn.functional, "gelu", in_the_usual_order)
