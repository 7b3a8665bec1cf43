"""Matrix products that torch_npu does not take apart: torch's matmul has no backward operator of its own on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def matmul_backward(torch: Any, grad: Any, left: Any, right: Any, mask: Sequence[bool]) -> list[Any]:
    """Gradients of `left @ right`, as torch differentiates it, for those that `mask` asks for."""
    if grad is None:
        return [None, None]
    return _differentiated(torch, torch.matmul, [left, right], grad, mask)


def linear_backward(torch: Any, given: Any, grad: Any, weight: Any, mask: Sequence[bool]) -> list[Any]:
    """Gradients of `linear(given, weight, bias)` by the three."""
    flat = grad.reshape(-1, grad.shape[-1])
    return [
        (grad @ weight).reshape(given.shape) if mask[0] else None,
        flat.t() @ given.reshape(-1, given.shape[-1]) if mask[1] else None,
        flat.sum(0) if mask[2] else None,
    ]


def npu_linear(torch: Any, given: Any, weight: Any, bias: Any = None) -> list[Any]:
    """`given @ weight.T + bias`."""
    return [torch.nn.functional.linear(given, weight, bias)]


def npu_linear_backward(torch: Any, grad: Any, given: Any, weight: Any) -> list[Any]:
    """Gradients of `npu_linear` by what it is given and by its weight."""
    return linear_backward(torch, given, grad, weight, [True, True, False])[:2]


def npu_bmmV2(torch: Any, left: Any, right: Any, sizes: Sequence[int]) -> list[Any]:  # noqa: N802 - its name
    """A batched product of a shape that may be given."""
    product = left @ right
    return [product.reshape(list(sizes)) if sizes else product]


def _differentiated(torch: Any, function: Any, given: Sequence[Any], grad: Any, mask: Sequence[bool]) -> list[Any]:
    with torch.enable_grad():
        leaves = [one.detach().requires_grad_(bool(wanted)) for one, wanted in zip(given, mask, strict=True)]
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        found = iter(torch.autograd.grad(function(*leaves), wanted, grad))
    return [next(found) if leaf.requires_grad else None for leaf in leaves]
