"""Gradients in half precision over 65,536 rows, those of parameters summed over all: in float32 and rounded once.

Judged against float64 by the units in the last place of the gradient's largest value, not by what the CPU makes of the
same sum: its kernels add some of them in the operand's dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
import torch_npu
from oracle import random
from torch.nn import functional

ROWS, WIDTH = 65_536, 16
HALF = (torch.bfloat16, torch.float16)
Function = Callable[..., torch.Tensor]


def images(x: torch.Tensor) -> torch.Tensor:
    """The rows as images of 256 points, a channel for each column."""
    return x.view(256, 16, 16, WIDTH).permute(0, 3, 1, 2)


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    if x.device.type == "npu":
        return torch_npu.npu_rms_norm(x, weight, 1e-6)[0]
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight


def softmax_by_columns(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The gradient of each element holds a sum over all rows."""
    return functional.softmax(x * weight, dim=0) * 4096


PLACES = torch.randint(0, 8, (ROWS,), generator=torch.Generator().manual_seed(2))

# What is computed of the rows and the parameters, and the parameters' shapes.
CASES: dict[str, tuple[Function, Sequence[tuple[int, ...]]]] = {
    "layer norm": (lambda x, w, b: functional.layer_norm(x, (WIDTH,), w, b), [(WIDTH,)] * 2),
    "group norm": (lambda x, w, b: functional.group_norm(images(x), 4, w, b), [(WIDTH,)] * 2),
    "group norm of four": (lambda x, w, b: functional.group_norm(x, 4, w, b), [(WIDTH,)] * 2),
    "batch norm": (lambda x, w, b: functional.batch_norm(images(x), None, None, w, b, training=True), [(WIDTH,)] * 2),
    "batch norm of rows": (lambda x, w, b: functional.batch_norm(x, None, None, w, b, training=True), [(WIDTH,)] * 2),
    "rms norm": (rms_norm, [(WIDTH,)]),
    "linear": (functional.linear, [(8, WIDTH), (8,)]),
    "bias": (lambda x, b: x + b, [(WIDTH,)]),
    "scale": (lambda x, w: x * w, [(WIDTH,)]),
    "convolution": (lambda x, w, b: functional.conv2d(images(x), w, b, padding=1), [(4, WIDTH, 3, 3), (4,)]),
    "embedding": (lambda x, w: functional.embedding(PLACES.to(x.device), w) * x, [(8, WIDTH)]),
    "softmax": (softmax_by_columns, [(WIDTH,)]),
    "prelu": (functional.prelu, [(WIDTH,)]),
}


def gradients(function: Function, x: torch.Tensor, parameters: list[torch.Tensor]) -> list[torch.Tensor]:
    leaves = [one.requires_grad_() for one in (x, *parameters)]
    y = function(*leaves)
    y.backward(random(*y.shape, seed=1).to(torch.bfloat16).to(y))  # which both half formats hold
    return [leaf.grad for leaf in leaves]  # type: ignore[misc]


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("name", CASES)
def test_the_gradient_is_rounded_once(name: str, dtype: torch.dtype) -> None:
    function, shapes = CASES[name]
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS, WIDTH, generator=generator).to(dtype)
    parameters = [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]
    ours = gradients(function, x.npu(), [one.npu() for one in parameters])
    exact = gradients(function, x.double(), [one.double() for one in parameters])
    for i, (found, wanted) in enumerate(zip(ours, exact, strict=True)):
        assert found.dtype == dtype
        ulp = torch.finfo(dtype).eps * float(wanted.abs().max())
        assert float((found.cpu().double() - wanted).abs().max()) <= 2 * ulp, i
