"""aclnn/format.cpp, movement/format_cast.cpp and the legacy operators: tensors in blocks. The oracle is the definition of
each format, element by element in NumPy."""

from __future__ import annotations

import copy
import ctypes
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch_npu
from aclnn import INVALID_ARGUMENT, direct, first_phase, run
from ascendcl import read
from oracle import DEVICE, compare, random

ND, NCHW, NC1HWC0, FRACTAL_Z, FRACTAL_NZ, NCDHW, NDC1HWC0, FRACTAL_Z_3D = 2, 0, 3, 4, 29, 30, 32, 33
HALVES = (torch.float16, torch.bfloat16)


@pytest.fixture(autouse=True)
def internal_formats() -> Iterator[None]:
    """Without it npu_format_cast only changes the name of the format."""
    torch.npu.config.allow_internal_format = True
    yield
    torch.npu.config.allow_internal_format = False


def ceil(size: int, block: int) -> int:
    return -(-size // block)


def stored(x: np.ndarray, form: int, c0: int) -> np.ndarray:
    """What lies in memory for `x`, with zeros at the edges."""
    if form == FRACTAL_NZ:
        *batch, m, n = x.shape
        out = np.zeros((*batch, ceil(n, c0), ceil(m, 16), 16, c0), x.dtype)
        for i, j in itertools.product(range(m), range(n)):
            out[..., j // c0, i // 16, i % 16, j % c0] = x[..., i, j]
        return out
    if x.ndim == 2:  # CH
        x = x[None, :, :, None]
    if form in (NC1HWC0, FRACTAL_Z):
        x = x[:, :, None]  # N, C, D = 1, H, W
    n, c, d, h, w = x.shape
    if form in (NC1HWC0, NDC1HWC0):
        out = np.zeros((n, d, ceil(c, c0), h, w, c0), x.dtype)
        for j in range(c):
            out[:, :, j // c0, :, :, j % c0] = x[:, j]
    else:
        out = np.zeros((d, ceil(c, c0), h, w, ceil(n, 16), 16, c0), x.dtype)
        for i, j in itertools.product(range(n), range(c)):
            out[:, j // c0, :, :, i // 16, i % 16, j % c0] = x[i, j]
    return out


def memory(tensor: torch.Tensor) -> np.ndarray:
    """The bytes of the tensor's storage, as they lie there."""
    torch.npu.synchronize()
    size = torch_npu.get_storage_size(tensor) * tensor.element_size()
    return np.frombuffer(read(tensor.data_ptr(), size), dtype=np.uint8)


def calls(name: str) -> int:
    torch.npu.synchronize()
    return Path(os.environ["VNPU_TRACE"]).read_text(encoding="utf-8").count(f" run {name} ")


def cast_size(tensor: torch.Tensor, form: int) -> tuple[list[int], int] | None:
    """The storage and the format that a cast would give, asked of CANN; None where it has none."""
    found: list[Any] = [ctypes.POINTER(ctypes.c_int64)(), ctypes.c_uint64(), ctypes.c_int()]
    status = direct("aclnnNpuFormatCastCalculateSizeAndFormat", tensor, form, -1, *map(ctypes.byref, found))
    if status != 0:
        return None
    return found[0][: found[1].value], found[2].value


CASTS = [
    ((20, 30), FRACTAL_NZ),
    ((16, 32), FRACTAL_NZ),
    ((1, 17), FRACTAL_NZ),
    ((3, 20, 30), FRACTAL_NZ),
    ((2, 3, 17, 5), FRACTAL_NZ),
    ((2, 20, 3, 5), NC1HWC0),
    ((20, 30), NC1HWC0),
    ((20, 18, 3, 5), FRACTAL_Z),
    ((2, 20, 3, 4, 5), NDC1HWC0),
    ((20, 18, 2, 3, 1), FRACTAL_Z_3D),
]
DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.int32, torch.int64, torch.bool]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype)[6:])
@pytest.mark.parametrize(("shape", "form"), CASTS)
def test_storage_and_round_trip(shape: tuple[int, ...], form: int, dtype: torch.dtype) -> None:
    x = (random(*shape) * 50).to(dtype)
    y = torch_npu.npu_format_cast(x.to(DEVICE), form)
    assert torch_npu.get_npu_format(y) == form and y.shape == x.shape
    words = np.dtype(f"i{x.element_size()}")
    found = memory(y).view(words)
    # 32 bytes make a block, but wide elements have blocks of 16 as float16 has; torch_npu sizes the storage itself
    # where CANN does not cast with aclnn, and blocks of one-byte channels are 16 there.
    bits = x.view({1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]).numpy()
    expected = [stored(bits, form, c0) for c0 in ((32, 16) if x.element_size() == 1 else (16,))]
    assert any(np.array_equal(found, one.ravel()) for one in expected)
    assert torch.equal(y.cpu(), x)
    base = {4: NCHW, 5: NCDHW}.get(len(shape), ND)
    again = torch_npu.npu_format_cast(y, base)
    assert torch_npu.get_npu_format(again) == base and torch.equal(again.cpu(), x)
    in_place = x.to(DEVICE)
    torch_npu.npu_format_cast_(in_place, form)
    assert torch_npu.get_npu_format(in_place) == form and torch.equal(in_place.cpu(), x)


SIZES = [
    ((20, 30), ND, FRACTAL_NZ, torch.float16, (2, 2, 16, 16)),
    ((20, 30), ND, FRACTAL_NZ, torch.int8, (1, 2, 16, 32)),
    ((3, 20, 30), ND, FRACTAL_NZ, torch.float16, (3, 2, 2, 16, 16)),
    ((2, 20, 3, 5), NCHW, NC1HWC0, torch.float16, (2, 2, 3, 5, 16)),
    ((20, 18, 3, 5), NCHW, FRACTAL_Z, torch.float16, (30, 2, 16, 16)),
    ((2, 20, 3, 4, 5), NCDHW, NDC1HWC0, torch.float16, (2, 3, 2, 4, 5, 16)),
    ((20, 18, 2, 3, 1), NCDHW, FRACTAL_Z_3D, torch.float16, (12, 2, 16, 16)),
]


@pytest.mark.parametrize(("shape", "base", "form", "dtype", "expected"), SIZES)
def test_aclnn_cast(
    shape: tuple[int, ...], base: int, form: int, dtype: torch.dtype, expected: tuple[int, ...]
) -> None:
    """What torch_npu calls from CANN 9.1 on; before, and for other formats and dtypes, it casts with Identity."""
    x = (random(*shape) * 50).to(dtype)
    source = torch_npu.npu_format_cast(x.to(DEVICE), base)
    assert cast_size(source, form) == (list(expected), form)
    blocked = torch_npu.npu_format_cast(torch.zeros_like(source), form)
    if memory(blocked).size == np.prod(expected) * x.element_size():
        run("aclnnNpuFormatCast", source, blocked)
        assert torch.equal(blocked.cpu(), x)
        back = torch.zeros_like(source)
        run("aclnnNpuFormatCast", blocked, back)
        assert torch.equal(back.cpu(), x)
    assert cast_size(blocked, ND if form == FRACTAL_NZ else base) == (list(shape), ND if form == FRACTAL_NZ else base)


def test_what_aclnn_does_not_cast() -> None:
    for tensor, form in ((random(3, 4).half(), NC1HWC0), (random(3, 4), FRACTAL_NZ), (random(0, 4).half(), FRACTAL_NZ)):
        assert cast_size(tensor.to(DEVICE), form) is None  # so that torch_npu takes Identity
    blocked = torch_npu.npu_format_cast(random(20, 30).half().to(DEVICE), NC1HWC0)
    assert cast_size(blocked, NCHW) is None  # and the same way back: two dimensions are no NCHW


def test_without_internal_formats_nothing_moves() -> None:
    torch.npu.config.allow_internal_format = False
    x = random(20, 30).half().to(DEVICE)
    y = torch_npu.npu_format_cast(x, FRACTAL_NZ)
    assert torch_npu.get_npu_format(y) == ND and torch.equal(y.cpu(), x.cpu())


@pytest.mark.parametrize("dtype", HALVES)
def test_matrix_products_with_blocked_weights(dtype: torch.dtype) -> None:
    x, w, bias = random(5, 40).to(dtype), random(24, 40, seed=1).to(dtype), random(24, seed=2).to(dtype)
    stack = random(3, 40, 24, seed=3).to(dtype)
    blocked = torch_npu.npu_format_cast(w.to(DEVICE), FRACTAL_NZ)
    straight = torch_npu.npu_format_cast(w.t().contiguous().to(DEVICE), FRACTAL_NZ)
    layers = torch_npu.npu_format_cast(stack.to(DEVICE), FRACTAL_NZ)
    eps = torch.finfo(dtype).eps
    xd, names = x.to(DEVICE), ("aclnnMatmulWeightNz", "aclnnAddmmWeightNz", "aclnnBatchMatMulWeightNz")
    before = [calls(name) for name in names]
    rows = x.expand(3, 5, 40)
    for found, expected in [
        (torch.mm(xd, blocked.t()), x.double() @ w.double().t()),
        (torch.mm(xd, straight), x.double() @ w.double().t()),
        (torch.addmm(bias.to(DEVICE), xd, straight), bias.double() + x.double() @ w.double().t()),
        (torch.nn.functional.linear(xd, blocked, bias.to(DEVICE)), bias + x.double() @ w.double().t()),
        (torch.bmm(rows.contiguous().to(DEVICE), layers), rows.double() @ stack.double()),
    ]:
        torch.testing.assert_close(found.cpu().double(), expected, rtol=eps, atol=eps)
    out = torch.empty(3, 5, 24, dtype=dtype, device=DEVICE)
    run("aclnnBatchMatMulWeightNz", rows.contiguous().to(DEVICE), layers, out, 0)  # torch_npu takes BatchMatMul
    torch.testing.assert_close(out.cpu().double(), rows.double() @ stack.double(), rtol=eps, atol=eps)
    assert all(calls(name) > one for name, one in zip(names, before, strict=True))


def test_quantised_and_grouped_products_with_blocked_weights() -> None:
    generator = torch.Generator().manual_seed(0)
    x, w = (torch.randint(-128, 128, size, generator=generator).to(torch.int8) for size in ((4, 40), (40, 24)))
    scale = random(24, low=0.001, high=0.01).bfloat16()
    blocked = torch_npu.npu_format_cast(w.to(DEVICE), FRACTAL_NZ)
    assert memory(blocked).size == ceil(24, 32) * ceil(40, 16) * 16 * 32
    before = calls("aclnnQuantMatmulWeightNz"), calls("aclnnGroupedMatmulWeightNz")
    found = torch_npu.npu_quant_matmul(x.to(DEVICE), blocked, scale.to(DEVICE), output_dtype=torch.bfloat16)
    compare(found, x.double() @ w.double() * scale.double(), torch.bfloat16)

    rows, experts, ends = random(7, 32).half(), random(3, 32, 20, seed=1).half(), [2, 2, 7]
    blocked = torch_npu.npu_format_cast(experts.to(DEVICE), FRACTAL_NZ)
    (found,) = torch_npu.npu_grouped_matmul(
        [rows.to(DEVICE)], [blocked], group_list=torch.tensor(ends).to(DEVICE), split_item=3, group_type=0
    )
    parts = [rows[a:b].double() @ experts[g].double() for g, (a, b) in enumerate(zip([0, *ends], ends, strict=False))]
    compare(found, torch.cat(parts), torch.float16)
    assert calls("aclnnQuantMatmulWeightNz") > before[0] and calls("aclnnGroupedMatmulWeightNz") > before[1]


def test_arithmetic_keeps_the_format() -> None:
    """Operators with a private operand take the old API, and give the format on."""
    x, y = random(20, 30, low=0.5).half(), random(20, 30, low=0.5, seed=1).half()
    a, b = (torch_npu.npu_format_cast(t.to(DEVICE), FRACTAL_NZ) for t in (x, y))
    pairs = {"Add": torch.add, "Sub": torch.sub, "Mul": torch.mul, "RealDiv": torch.div, "Maximum": torch.maximum}
    for name, function in pairs.items():
        before = calls(name)
        found = function(a, b)
        assert calls(name) == before + 1 and torch_npu.get_npu_format(found) == FRACTAL_NZ, name
        compare(found, function(x.double(), y.double()), torch.float16)
    for name in ("exp", "sqrt", "rsqrt", "tanh", "sigmoid", "relu", "neg", "abs", "reciprocal", "sin", "cos", "erf"):
        before = calls(name.capitalize())
        found = getattr(torch, name)(a)
        assert calls(name.capitalize()) == before + 1, name
        compare(found, getattr(torch, name)(x.double()), torch.float16)


@pytest.mark.parametrize("weight_blocked", [False, True])
def test_convolution_of_blocked_operands(weight_blocked: bool) -> None:
    x, w, bias = random(2, 18, 6, 5).float(), random(20, 18, 3, 3, seed=1).float(), random(20, seed=2).float()
    leaves = [t.double().requires_grad_() for t in (x, w)]
    expected = torch.nn.functional.conv2d(*leaves, bias.double(), stride=2, padding=1)
    expected.square().sum().backward()
    a = torch_npu.npu_format_cast(x.to(DEVICE), NC1HWC0).requires_grad_()
    b = w.to(DEVICE)
    b = (torch_npu.npu_format_cast(b, FRACTAL_Z) if weight_blocked else b).requires_grad_()
    found = torch.nn.functional.conv2d(a, b, bias.to(DEVICE), stride=2, padding=1)
    found.square().sum().backward()
    torch.testing.assert_close(found.detach().cpu().double(), expected.detach(), rtol=1e-5, atol=1e-5)
    for leaf, reference in ((a, leaves[0]), (b, leaves[1])):
        torch.testing.assert_close(leaf.grad.cpu().double(), reference.grad, rtol=1e-4, atol=1e-3)


def test_reductions_and_softmax() -> None:
    x = random(20, 30).half()
    a = torch_npu.npu_format_cast(x.to(DEVICE), FRACTAL_NZ)
    for name, function in {
        "ReduceSum": lambda t: t.sum(0),
        "ReduceMean": lambda t: t.mean(1, keepdim=True),
        "ReduceMax": lambda t: t.max(),
        "SoftmaxV2": lambda t: t.softmax(-1),
    }.items():
        before = calls(name)
        compare(function(a), function(x.double()), torch.float16)
        assert calls(name) == before + 1, name


def test_training_where_internal_formats_are_allowed() -> None:
    """Convolutions then take the old API, whatever the format of their operands."""
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 20, 3, padding=1),
        torch.nn.BatchNorm2d(20),
        torch.nn.ReLU(),
        torch.nn.Conv2d(20, 4, 3, stride=2, bias=False),
        torch.nn.Flatten(),
        torch.nn.Linear(36, 5),
    )
    reference = copy.deepcopy(model).double()
    model = model.to(DEVICE)
    x, target = random(4, 3, 8, 8), torch.tensor([0, 1, 2, 3])
    before = calls("Conv2DBackpropFilter")
    for _ in range(2):
        for module, image, label in ((model, x.float().to(DEVICE), target.to(DEVICE)), (reference, x, target)):
            module.zero_grad()
            torch.nn.functional.cross_entropy(module(image), label).backward()
            with torch.no_grad():
                for parameter in module.parameters():
                    parameter -= 0.1 * parameter.grad
    assert calls("Conv2DBackpropFilter") == before + 4
    for found, expected in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(found.detach().cpu().double(), expected.detach(), rtol=1e-4, atol=1e-5)


def test_refusals() -> None:
    x = random(32, 32).half().to(DEVICE)
    blocked = torch_npu.npu_format_cast(x, FRACTAL_NZ)
    status, message = first_phase("aclnnAbs", blocked, x)
    assert status == INVALID_ARGUMENT and "self has the private format FRACTAL_NZ" in message
    status, message = first_phase("aclnnMatmulWeightNz", x, blocked[:, :16], x[:, :16], 0)
    assert status == INVALID_ARGUMENT and "neither whole matrices nor their transpose" in message
    status, message = first_phase("aclnnNpuFormatCast", blocked, torch_npu.npu_format_cast(x, FRACTAL_Z))
    assert status == INVALID_ARGUMENT and "cannot be cast" in message
