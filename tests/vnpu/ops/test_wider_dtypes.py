"""Dtypes that a 910B takes where its pages list fewer (checks.json): what the kernels compute in them, against float64 on
the CPU. With the switch that lets every such dtype through, so that this asks the kernels and not the tables."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest
from forked import python

START = """
import json, torch
F = torch.nn.functional
numbers = torch.tensor([-7, -3, -2, -1, 0, 1, 2, 3, 6], dtype=torch.float64)
matrix = torch.tensor([[4.0, 1, 0], [2, 5, 1], [0, 1, 3]], dtype=torch.float64)
complexes = torch.complex(matrix, matrix.mT - 2)
INTS = [torch.int8, torch.int16, torch.int32, torch.int64]
def back(f, x):
    x = x.detach().requires_grad_()
    f(x).backward(torch.ones_like(f(x)) * 0.75)
    return x.grad
"""
# A function of the operand, its operand, the dtypes on the NPU, how far off the result may be.
WIDER: dict[str, tuple[str, str, str, float]] = {
    "isfinite": ("torch.isfinite", "numbers", "[*INTS, torch.bool]", 0),
    "isposinf": ("torch.isposinf", "numbers", "[*INTS, torch.bool]", 0),
    "isneginf": ("torch.isneginf", "numbers", "[*INTS, torch.bool]", 0),
    "sigmoid": ("torch.sigmoid", "numbers", "[torch.float64, torch.float32]", 1e-6),
    "sigmoid of integers": ("torch.sigmoid", "numbers", "[*INTS, torch.bool]", 1e-6),
    "sigmoid of complex numbers": ("torch.sigmoid", "complexes", "[torch.complex64, torch.complex128]", 1e-6),
    "sigmoid_": ("lambda x: x.clone().sigmoid_()", "numbers", "[torch.float64]", 1e-15),
    "hardsigmoid": (
        "lambda x: F.hardsigmoid(x.double()).to(x.dtype) if x.device.type == 'cpu' else F.hardsigmoid(x)",
        "numbers",
        "[torch.int32]",
        0,
    ),
    "leaky_relu": ("F.leaky_relu", "numbers", "[torch.float64]", 1e-15),
    "elu": ("F.elu", "numbers", "[torch.float64]", 1e-15),
    "sin_": ("lambda x: x.clone().sin_()", "numbers", "[torch.float64]", 1e-15),
    "inverse": ("torch.inverse", "matrix", "[torch.float64, torch.float32]", 1e-6),
    "inverse of complex numbers": ("torch.inverse", "complexes", "[torch.complex64, torch.complex128]", 1e-6),
    "vector_norm": ("lambda x: torch.linalg.vector_norm(x, 3)", "numbers", "[torch.float64]", 1e-14),
    "constant pad": (
        "lambda x: F.pad(x, (2, 1), value=5)",
        "numbers.abs()",
        "[torch.uint16, torch.uint32, torch.uint64]",
        0,
    ),
    "linspace": (
        "lambda x: torch.linspace(-3, 9, 5, dtype=torch.int64, device=x.device)",
        "numbers",
        "[torch.int64]",
        0,
    ),
    "relu": ("torch.relu", "numbers.abs()", "[torch.uint8]", 0),
    "eq_": ("lambda x: x.clone().eq_(x.mT)", "complexes", "[torch.complex64]", 0),
    "log10": ("lambda x: torch.log10(x, out=x.new_empty(x.shape))", "numbers.abs() + 1", "[torch.float64]", 1e-15),
    "adaptive_avg_pool3d backward": (
        "lambda x: back(lambda y: F.adaptive_avg_pool3d(y, 2), x)",
        "torch.arange(64.0).double().view(1, 1, 4, 4, 4).sin()",
        "[torch.float32]",
        1e-6,
    ),
    "split": ("lambda x: torch.split_with_sizes_copy(x, [1, 2])[1]", "matrix", "[torch.float64]", 0),
}
# By the C names: what torch has no way to.
CALLS = """
from aclnn import first_phase, run
def same(found, expected):
    torch.testing.assert_close(found.cpu(), expected, rtol=0, atol=0)
x = torch.tensor([[1, 2], [3, 4], [5, 6]], dtype=torch.int16).npu()
run("aclnnScatterNdUpdate", x, torch.tensor([[2], [0]]).npu(), torch.tensor([[7, 8], [9, 9]], dtype=torch.int16).npu())
same(x, torch.tensor([[9, 9], [3, 4], [7, 8]], dtype=torch.int16))
image, grad = torch.zeros(1, 1, 4, 4, 4).double().npu(), torch.arange(8.0).double().view(1, 1, 2, 2, 2)
run("aclnnAdaptiveAvgPool3dBackward", grad.npu(), image, image)
same(image, (grad / 8).repeat_interleave(2, 2).repeat_interleave(2, 3).repeat_interleave(2, 4))
y = torch.tensor([-6, -3, -1, 0, 2, 3], dtype=torch.int32).npu()
run("aclnnInplaceHardsigmoid", y)
same(y, torch.tensor([0, 0, 0, 0, 0, 1], dtype=torch.int32))
print("done")
"""


@functools.cache
def found() -> dict[str, Any]:
    program = START + f"\nfound = {{}}\nfor name, f, operand, dtypes, off in {list(_rows())!r}:"
    program += """
    found[name] = "compared"
    for dtype in eval(dtypes):
        try:
            x = eval(operand).to(dtype)
            expected = eval(f)(x if dtype in (torch.uint16, torch.uint32, torch.uint64) or not off else x.to(
                torch.complex128 if dtype.is_complex else torch.float64))
            result = eval(f)(x.npu()).cpu()
            if not off:
                assert torch.equal(result, expected), (dtype, result, expected)
            torch.testing.assert_close(result.to(expected.dtype), expected, rtol=off, atol=off)
        except Exception as error:
            found[name] = f"{dtype}: {error}"
print(json.dumps(found))
"""
    ended = python(program, VNPU_CHECKS="any")
    assert ended.returncode == 0, ended
    answers: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return answers


def _rows() -> list[tuple[str, str, str, str, float]]:
    return [(name, *row) for name, row in WIDER.items()]


@pytest.mark.parametrize("name", WIDER)
def test_the_kernel(name: str) -> None:
    assert found()[name] == "compared"


def test_what_torch_has_no_way_to() -> None:
    folder = str(Path(__file__).parent)
    ended = python(f"import sys\nsys.path.insert(0, {folder!r})" + START + CALLS, VNPU_CHECKS="any")
    assert ended.stdout == "done\n", ended
