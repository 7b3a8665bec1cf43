"""Maximum pooling on an NPU: its indices are a mask of bits for its own backward operator, in a layout of its own. The
values are judged as on the CPU; the gradient by where the maximum lies in what was pooled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def max_pool2d_with_indices(torch: Any, given: Any, *options: Any) -> list[Any]:
    """The values; indices of the NPU's layout are not judged."""
    return [torch.ops.aten.max_pool2d_with_indices(given, *options)[0], None]


def max_pool2d_with_indices_backward(
    torch: Any,
    grad: Any,
    given: Any,
    size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil: bool,
    indices: Any,
) -> list[Any]:
    """The gradient goes to the first maximum of each window, as in torch."""
    options = (size, stride, padding, dilation, ceil)
    found = torch.ops.aten.max_pool2d_with_indices(given, *options)[1]
    return [torch.ops.aten.max_pool2d_with_indices_backward(grad, given, *options, found)]
