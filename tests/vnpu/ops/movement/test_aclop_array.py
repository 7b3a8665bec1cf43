"""movement/aclop_array.cpp: what torch_npu still sends through aclopCompileAndExecute, and parts of tensors and of numbers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch_npu
from aclop import check_refused, drawn, launch, near, ran, transformed
from oracle import DEVICE, check, layouts, place, random

I64 = torch.int64
X = random(3, 4, 5)


def legacy_calls() -> int:
    torch.npu.synchronize()
    return Path(os.environ["VNPU_TRACE"]).read_text(encoding="utf-8").count("call aclopCompileAndExecute")


def test_a_number_before_a_tensor() -> None:
    """CANN has no aclnn call for `number >= tensor`; see unexported.toml."""
    before = legacy_calls()
    x = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    check(lambda t: torch.tensor(2.0).to(t.dtype) >= t, x, dtypes=[torch.float32, torch.float16], grad=False)
    assert legacy_calls() > before


def test_transpose_slice_and_broadcast() -> None:
    for view in layouts(X.float()):
        x = place(view)
        assert torch.equal(torch_npu.npu_transpose(x, (2, 0, 1)).cpu(), view.permute(2, 0, 1))
        assert torch.equal(torch_npu.npu_slice(x, (1, 0, 2), (2, 4, 3)).cpu(), view[1:, :, 2:])
        assert torch.equal(torch_npu.npu_broadcast(x[:1], (3, 4, 5)).cpu(), view[:1].expand(3, 4, 5))


def test_strided_slice() -> None:
    for view in layouts(X.float()):
        x = place(view)
        assert torch.equal(torch_npu.npu_indexing(x, [0, 1, 0], [3, 4, 5], [2, 1, 3]).cpu(), view[::2, 1:, ::3])


def test_format_cast_of_base_formats_copies() -> None:
    x = random(2, 3, 4, 5).float()
    assert torch.equal(torch_npu.npu_format_cast(x.to(DEVICE), 0).cpu(), x)
    assert torch.equal(torch_npu.npu_format_cast(x.to(DEVICE), 2).cpu(), x)


@pytest.mark.parametrize("order", [0.5, float("inf"), -float("inf"), 4])
def test_norms_of_unusual_order(order: float) -> None:
    x = X + 0.01
    check(lambda t: torch.linalg.vector_norm(t, order, dim=(0, 2)), x, dtypes=[torch.float32], grad=False, ulps=16)


def test_sizes_and_parts_of_complex_numbers() -> None:
    assert ran("Shape", [drawn(3, 0, 5)], (3, I64))[0].tolist() == [3, 0, 5]
    z = torch.complex(drawn(2, 3), drawn(2, 3))
    near(ran("CustReal", [z], (2, 3))[0], z.real)
    for name in ("CustImag", "Imag"):
        near(ran(name, [z], (2, 3))[0], z.imag)
    near(ran("Angle", [z], (2, 3))[0], torch.atan2(z.imag.double(), z.real.double()))
    out = torch.zeros(2, 3, dtype=torch.complex64).npu()
    assert launch("Complex", [z.real.contiguous().npu(), z.imag.contiguous().npu()], [out]) == (0, "")
    assert torch.equal(out.cpu(), z)
    # Descriptors have sizes of 1 that the program's tensors do not have.
    one = torch.zeros((), dtype=torch.complex64).npu()
    assert launch("Complex", [torch.tensor(2.0).npu(), torch.tensor([3.0]).npu()], [one]) == (0, "")
    assert one.item() == 2 + 3j


def test_powers_of_a_base() -> None:
    one, four = torch.tensor(1.0), torch.tensor(4.0)
    near(ran("CustLogSpace", [one, four], (7,), steps=7, base=2)[0], 2 ** torch.linspace(1, 4, 7).double())


VOLUME = drawn(3, 6, 5)
Z = torch.complex(drawn(3, 6, 5), drawn(3, 6, 5))


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 6.5, float("inf"), -float("inf")])
@pytest.mark.parametrize("axes", [[], [1], [0, -1]])
def test_norms(p: float, axes: list[int]) -> None:
    expected = torch.linalg.vector_norm(VOLUME.double(), p, axes or None, True)
    (found,) = ran("LpNormV2", [VOLUME], tuple(expected.shape), p=p, axes=axes, keepdim=True, epsilon=1e-12)
    near(found, expected, 2e-5)


def test_what_is_no_number_and_conjugates() -> None:
    x = torch.tensor([1.0, float("nan"), -float("inf"), 0.0])
    assert ran("IsNan", [x], (4, torch.bool))[0].tolist() == [0, 1, 0, 0]
    transformed("Conj", [Z], np.conj(Z.numpy()), torch.complex64)
    slopes = torch.tensor([-1.5, 0.25, 1.0, 8.0])
    near(ran("Digamma", [slopes], (4,))[0], torch.digamma(slopes.double()))


def test_the_gradient_of_a_slice_lies_where_the_slice_was() -> None:
    x = drawn(3, 4).double().requires_grad_()
    gradient = drawn(2)
    (x[::2, 1] * gradient.double()).sum().backward()
    inputs = [[3, 4], [0, 1], [3, 2], [2, 1], gradient]
    (y,) = ran("StridedSliceGrad", inputs, (3, 4), shrink_axis_mask=2, begin_mask=0, end_mask=0)
    near(y, x.grad)


WHOLE = drawn(2, 6, 4)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_the_number_of_elements(dtype: torch.dtype) -> None:
    assert [ran("Size", [x], (1, dtype))[0].item() for x in (WHOLE, drawn(3, 0), drawn(1)[0])] == [48, 0, 1]


# Operator: inputs, the output's sizes, attributes; words of the message.
REFUSED_CALLS: dict[str, tuple[list[Any], tuple[Any, ...], dict[str, Any], str]] = {
    "CustLogSpace": ([drawn(1), drawn(1)], (3,), {"steps": 4}, "expected 4 elements"),
    "CustSliceGrad": ([drawn(2, 3), drawn(3, 5), [2, 2], [2, 3]], (3, 5), {}, "lies outside dim 0"),
    "Complex": ([drawn(3), drawn(3)], (3,), {}, "no dtype"),
    "CustReal": ([drawn(3)], (3,), {}, "no dtype"),
    "Imag": ([drawn(3)], (3,), {}, "no dtype"),
    "Shape": ([drawn(3)], (2, I64), {}, "expected 1 elements"),
}


@pytest.mark.parametrize("name", REFUSED_CALLS)
def test_refused(name: str) -> None:
    inputs, size, attributes, words = REFUSED_CALLS[name]
    check_refused(name, inputs, [size], attributes, words)


REFUSED: dict[str, tuple[list[Any], list[tuple[Any, ...]], dict[str, Any], str]] = {
    "IsNan": ([VOLUME], [(6, 5)], {}, "the output is"),
    "Digamma": ([VOLUME], [(6, 5)], {}, "the output is"),
    "Conj": ([Z], [(6, 5, torch.complex64)], {}, "the output is"),
    "Size": ([WHOLE], [(2,)], {}, "expected one int32 or int64"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    inputs, sizes, attributes, words = REFUSED[name]
    check_refused(name, inputs, sizes, attributes, words)
