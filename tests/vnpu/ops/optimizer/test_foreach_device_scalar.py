"""The older foreach operators, whose scalar is a tensor of the device. torch_npu chooses the newer ones."""

from collections.abc import Callable

import pytest
import torch
from aclnn import INVALID_ARGUMENT, first_phase, run
from oracle import FLOATS, compare, random

SIZES = [(3, 4), (5,), ()]


def scalar_dtype(dtype: torch.dtype) -> torch.dtype:
    """bfloat16 lists take a float32 number (foreach_add_scalar_def.cpp and its neighbours)."""
    return torch.float32 if dtype == torch.bfloat16 else dtype


def lists(count: int, dtype: torch.dtype, low: float = 0.5) -> list[list[torch.Tensor]]:
    return [[random(*s, low=low, seed=i).to(dtype) for s in SIZES] for i in range(count)]


def npu(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return [t.npu() for t in tensors]


def expect(name: str, expected: list[torch.Tensor], dtype: torch.dtype, *arguments: object) -> None:
    out = [torch.empty_like(t, dtype=dtype, device="npu") for t in expected]
    run(name, *arguments, out)
    for actual, wanted in zip(out, expected, strict=True):
        compare(actual, wanted, dtype, ulps=4)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("Add", lambda x, s: x + s),
        ("Sub", lambda x, s: x - s),
        ("Mul", lambda x, s: x * s),
        ("Div", lambda x, s: x / s),
        ("Maximum", lambda x, s: x.clamp_min(s)),
        ("Minimum", lambda x, s: x.clamp_max(s)),
        ("Pow", lambda x, s: x**s),
    ],
)
def test_number(name: str, reference: Callable[[torch.Tensor, float], torch.Tensor], dtype: torch.dtype) -> None:
    (x,) = lists(1, dtype)
    scalar = torch.tensor([1.25], dtype=scalar_dtype(dtype))
    expect(f"aclnnForeach{name}Scalar", [reference(t.double(), 1.25) for t in x], dtype, npu(x), scalar.npu())


@pytest.mark.parametrize("dtype", FLOATS)
def test_scaled_lists(dtype: torch.dtype) -> None:
    x, y = lists(2, dtype)
    alpha = torch.tensor([-0.75], dtype=scalar_dtype(dtype)).npu()
    expect(
        "aclnnForeachAddList",
        [a.double() - 0.75 * b.double() for a, b in zip(x, y, strict=True)],
        dtype,
        npu(x),
        npu(y),
        alpha,
    )
    expect(
        "aclnnForeachSubList",
        [a.double() + 0.75 * b.double() for a, b in zip(x, y, strict=True)],
        dtype,
        npu(x),
        npu(y),
        alpha,
    )


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("kind", ["mul", "div"])
def test_three_lists(kind: str, dtype: torch.dtype) -> None:
    x, y, z = lists(3, dtype)
    scalars = torch.tensor([0.5, -2.0, 3.0], dtype=scalar_dtype(dtype))

    def reference(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, s: float) -> torch.Tensor:
        b, c = b.double(), c.double()
        return a.double() + s * (b * c if kind == "mul" else b / c)

    one = [reference(a, b, c, 0.5) for a, b, c in zip(x, y, z, strict=True)]
    each = [reference(a, b, c, s.item()) for a, b, c, s in zip(x, y, z, scalars, strict=True)]
    expect(f"aclnnForeachAddc{kind}Scalar", one, dtype, npu(x), npu(y), npu(z), scalars[:1].npu())
    expect(f"aclnnForeachAddc{kind}ScalarList", each, dtype, npu(x), npu(y), npu(z), scalars.npu())


@pytest.mark.parametrize(
    ("mode", "function"), [(2, torch.floor), (3, torch.ceil), (5, torch.trunc), (7, torch.frac), (1, torch.round)]
)
def test_rounding(mode: int, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    (x,) = lists(1, torch.float32, low=-2)
    expect(
        "aclnnForeachRoundOffNumber",
        [function(t).double() for t in x],
        torch.float32,
        npu(x),
        torch.tensor([mode], dtype=torch.int8).npu(),
    )


def test_refusals() -> None:
    x = [torch.ones(2, device="npu")]
    two = torch.ones(2, device="npu")
    for name, arguments, words in (
        ("aclnnForeachAddScalar", (x, two, x), "parameter scalar"),
        ("aclnnForeachAddScalar", (x, two[:1], [torch.ones(3, device="npu")]), "shape [2], expected [3]"),
        ("aclnnForeachAddcmulScalarList", (x, x, x, two, x), "parameter scalars has 2 values, expected 1"),
    ):
        status, message = first_phase(name, *arguments)
        assert status == INVALID_ARGUMENT and words in message, message
