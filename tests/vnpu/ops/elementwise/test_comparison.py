"""elementwise/comparison.cpp: comparisons, logic, bits."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from aclnn import INVALID_ARGUMENT, first_phase, run
from oracle import DEVICE, check, layouts, random

COMPARISONS = ["eq", "ne", "lt", "le", "gt", "ge"]
A = torch.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]], dtype=torch.float64)
B = torch.tensor([2.0, 2.0, 2.0], dtype=torch.float64)


@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons(name: str) -> None:
    function = getattr(torch, name)
    for view in layouts(A):
        check(function, view, B, grad=False)
        check(function, view, 2.0, grad=False)
        check(function, view, 2, grad=False)
    check(function, A.int(), B.int(), grad=False)
    check(function, A.int(), 2.5, grad=False)
    check(function, A, A > 1, grad=False)
    check(function, random(), random(), grad=False)
    check(function, random(0, 3), random(3), grad=False)
    not_a_number = torch.tensor([float("nan"), 1.0], dtype=torch.float64)
    check(function, not_a_number, not_a_number, grad=False)


@pytest.mark.parametrize("name", COMPARISONS)
def test_in_place_keeps_the_dtype(name: str) -> None:
    for view in layouts(A):
        if 0 in view.stride():
            continue
        check(lambda x, y: getattr(x, name + "_")(y), view, B, grad=False)
        check(lambda x: getattr(x, name + "_")(2), view, grad=False)
    check(lambda x: getattr(x, name + "_")(2), A.long(), grad=False)


def test_a_number_on_the_left() -> None:
    check(lambda x: x <= 2.0, A, grad=False)
    check(lambda x: torch.tensor(2.0).to(x.dtype) >= x, A, grad=False)
    check(lambda x: torch.tensor(2.0).to(x.dtype) < x, A, grad=False)


@pytest.mark.parametrize("name", ["logical_and", "logical_or", "logical_xor"])
def test_logic(name: str) -> None:
    zeros = A * torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)
    function = getattr(torch, name)
    for view in layouts(zeros):
        check(function, view, B, grad=False)
        check(function, view > 1, A[0] > 1, grad=False)
    check(function, zeros.int(), B.int(), grad=False)
    if name != "logical_xor":
        check(lambda x, y: getattr(x, name + "_")(y), zeros > 1, A > 1, grad=False)
    check(torch.logical_not, zeros, grad=False)
    check(torch.logical_not, zeros > 1, grad=False)
    check(lambda x: x.logical_not_(), zeros, grad=False)


@pytest.mark.parametrize("function", [operator.and_, operator.or_, operator.xor])
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32, torch.int64])
def test_bits(function: Callable[..., Any], dtype: torch.dtype) -> None:
    a, b = torch.tensor([[0, 1, 6], [12, 3, 0]]).to(dtype), torch.tensor([1, 3, 5]).to(dtype)
    number = True if dtype is torch.bool else 5
    check(function, a, b, grad=False)
    check(function, a, number, grad=False)
    check(torch.bitwise_not, a, grad=False)
    in_place = {operator.and_: operator.iand, operator.or_: operator.ior, operator.xor: operator.ixor}[function]
    check(in_place, a, b, grad=False)
    check(in_place, a, number, grad=False)


def test_bits_promote() -> None:
    a, b = torch.tensor([1, 2, 3], dtype=torch.int32), torch.tensor([1, 1, 1])
    check(operator.and_, a, b, grad=False)


def test_equal_and_close() -> None:
    x = A.float().to(DEVICE)
    assert torch.equal(x, x.clone())
    assert not torch.equal(x, x + 1)
    assert torch.equal(x[:, ::2], A.float()[:, ::2].to(DEVICE))
    near = torch.tensor([1.0, 1.001, float("nan"), float("inf")], dtype=torch.float64)
    far = torch.tensor([1.0, 1.0, float("nan"), float("inf")], dtype=torch.float64)
    check(lambda a, b: torch.isclose(a, b, rtol=0.1, atol=0.0), near, far, grad=False)
    check(
        lambda a, b: torch.isclose(a, b, rtol=0.0, atol=1e-5, equal_nan=True),
        near,
        far,
        dtypes=[torch.float32],
        grad=False,
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("aclnnInplaceBitwiseAndScalar", [4, 1, 5]),
        ("aclnnInplaceBitwiseXorScalar", [1, 6, 2]),
        ("aclnnInplaceEqScalar", [0, 0, 0]),
        ("aclnnInplaceNeScalar", [1, 1, 1]),
    ],
)
def test_by_c_name(name: str, expected: list[int]) -> None:
    x = torch.tensor([4, 3, 7], dtype=torch.int32, device=DEVICE)
    run(name, x, 5)
    assert x.tolist() == expected


def test_refused() -> None:
    x, out = torch.ones(2, 3, device=DEVICE), torch.empty(2, 3, dtype=torch.bool, device=DEVICE)
    status, message = first_phase("aclnnGtTensor", x, x, torch.empty(3, 2, dtype=torch.bool, device=DEVICE))
    assert status == INVALID_ARGUMENT
    assert "out has shape [3, 2], expected [2, 3]" in message
    status, message = first_phase("aclnnBitwiseAndTensor", x, x, out)
    assert status == INVALID_ARGUMENT
    assert "self has dtype float32, allowed are" in message
    z = torch.ones(2, 3, dtype=torch.complex64).to(DEVICE)
    assert first_phase("aclnnLtTensor", z, z, out)[0] == INVALID_ARGUMENT
    assert (
        first_phase("aclnnEqual", x, x.int(), torch.empty((), dtype=torch.bool, device=DEVICE))[0] == INVALID_ARGUMENT
    )
