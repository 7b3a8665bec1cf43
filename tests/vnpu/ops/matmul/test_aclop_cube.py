"""matmul/aclop_cube.cpp through torch_npu's functions: transposed, depthwise and quantised convolutions."""

from __future__ import annotations

import torch
import torch_npu
from oracle import check, compare, random
from torch import Tensor
from torch.nn import functional


def test_transposed_convolutions() -> None:
    for groups, stride, pad, more, dilation in ((1, 2, 1, 1, 1), (2, 3, 0, 2, 2)):
        numbers = [(p, p) for p in (pad, more, stride, dilation)]

        def actual(x: Tensor, w: Tensor, b: Tensor, n: object = numbers, g: int = groups) -> Tensor:
            return torch_npu.npu_convolution_transpose(x, w, b, *n, g)  # type: ignore[misc]

        def expected(x: Tensor, w: Tensor, b: Tensor, n: object = numbers, g: int = groups) -> Tensor:
            pad, more, stride, dilation = n  # type: ignore[misc]
            return functional.conv_transpose2d(x, w, b, stride, pad, more, g, dilation)

        operands = random(2, 4, 5, 6), random(4, 3, 3, 3, seed=1), random(3 * groups, seed=2)
        check(actual, *operands, reference=expected, dtypes=[torch.float32], ulps=16, scale=4)
    x, w, b = (t.float() for t in operands)
    y = torch_npu.npu_conv_transpose2d(x.npu(), w.npu(), b.npu(), *numbers, groups)
    compare(y, expected(x.double(), w.double(), b.double()), torch.float32, ulps=16, scale=4)
    x, w = random(1, 2, 3, 4, 3).float(), random(2, 3, 2, 2, 2, seed=1).float()
    y = torch_npu.npu_convolution_transpose(x.npu(), w.npu(), None, [0] * 3, [0] * 3, [2] * 3, [1] * 3, 1)
    compare(y, functional.conv_transpose3d(x.double(), w.double(), stride=2), torch.float32, ulps=8, scale=1)


def test_gradients_of_depthwise_convolutions() -> None:
    x, w = random(2, 3, 7, 8).float(), random(3, 1, 3, 2, seed=1).float()
    exact = [t.double().requires_grad_() for t in (x, w)]
    y = functional.conv2d(*exact, stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=3)
    seed = random(*y.shape, seed=2).float()
    y.backward(seed.double())
    sizes = ((3, 2), (2, 1), (1, 0), (1, 2))
    made = torch_npu._conv_depthwise2d_backward(seed.npu(), x.npu(), w.npu(), *sizes, [True, True])
    for actual, one in zip(made, exact, strict=True):
        assert one.grad is not None
        compare(actual, one.grad, torch.float32, ulps=8, scale=4)


def test_quantized_convolution() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(-128, 128, (2, 4, 6, 7), dtype=torch.int8, generator=generator)
    w = torch.randint(-128, 128, (3, 4, 3, 2), dtype=torch.int8, generator=generator)
    bias = torch.randint(-999, 999, (3,), dtype=torch.int32, generator=generator)
    scale = torch.tensor([1e-3, 2e-3, 5e-4])
    packed = torch_npu.npu_trans_quant_param(scale.npu())
    short = scale.view(torch.int32).bitwise_and(-8192).view(torch.float32)  # 19 bits of a float32
    actual = torch_npu.npu_quant_conv2d(
        x.npu(), w.npu(), packed, [2, 1], [1, 0], [1, 2], 1, 0, "rint", torch.float16, bias.npu()
    )
    sums = functional.conv2d(x.double(), w.double(), bias.double(), (2, 1), (1, 0), (1, 2))
    compare(actual, sums * short.double()[:, None, None], torch.float16)
