"""Stand-in for apex's CUDA kernels `amp_C`: the multi-tensor functions that scripts call by themselves.

`chunk_size` is how CUDA splits work; it is taken and ignored. `noop_flag` is an int tensor with one element that
is set to 1 where a value is not finite, as apex does. Others, those of the fused optimizers among them, are not here:
use the classes of apex.optimizers.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

Lists = Sequence[Sequence[Tensor]]


@torch.no_grad()  # type: ignore[untyped-decorator]
def multi_tensor_scale(chunk_size: int, noop_flag: Tensor, tensor_lists: Lists, scale: float) -> None:
    """`[inputs, outputs]`: outputs = inputs * scale, in the outputs' dtype."""
    inputs, outputs = tensor_lists
    scaled = torch._foreach_mul([value.float() for value in inputs], scale)
    torch._foreach_copy_(list(outputs), scaled)
    _note_overflow(noop_flag, scaled)


@torch.no_grad()  # type: ignore[untyped-decorator]
def multi_tensor_axpby(
    chunk_size: int, noop_flag: Tensor, tensor_lists: Lists, a: float, b: float, arg_to_check: int = -1
) -> None:
    """`[x, y, outputs]`: outputs = a * x + b * y. Checks x (0), y (1) or both (-1)."""
    x, y, outputs = tensor_lists
    sums = torch._foreach_mul([value.float() for value in x], a)
    torch._foreach_add_(sums, [value.float() for value in y], alpha=b)
    torch._foreach_copy_(list(outputs), sums)
    _note_overflow(noop_flag, {0: [*x], 1: [*y], -1: [*x, *y]}[arg_to_check])


@torch.no_grad()  # type: ignore[untyped-decorator]
def multi_tensor_l2norm(
    chunk_size: int, noop_flag: Tensor, tensor_lists: Lists, per_tensor: bool = False
) -> tuple[Tensor, Tensor]:
    """`[tensors]`: the 2-norm of all of them, shape (1,), and of each, empty without `per_tensor`; float32."""
    (tensors,) = tensor_lists
    norms = torch.stack(torch._foreach_norm([value.float() for value in tensors]))
    _note_overflow(noop_flag, [norms])
    return norms.norm().view(1), norms if per_tensor else norms.new_empty(0)


def _note_overflow(noop_flag: Tensor, values: Sequence[Tensor]) -> None:
    finite = torch.stack([value.isfinite().all() for value in values]).all()
    noop_flag.copy_(noop_flag.bool() | ~finite)
