"""linalg/aclop_least_squares.cpp against NumPy and torch in float64, and refused calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from aclop import called, check_refused, drawn
from solutions import near

I64 = torch.int64


def laid_out(a: torch.Tensor, b: torch.Tensor, driver: int) -> list[torch.Tensor]:
    m, n, batch = a.shape[-2], a.shape[-1], a.shape[:-2]
    rest = (*batch, b.shape[-1]) if driver != 1 and m > n else (0,)
    singular = (*batch, min(m, n)) if driver > 1 else (0,)
    rank = (0, I64) if driver == 0 else (*batch, I64)
    return called("CustLstsqV2", [a, b, torch.tensor(driver)], (*batch, n, b.shape[-1]), rest, rank, singular)


@pytest.mark.parametrize("driver", [0, 1, 2, 3])
@pytest.mark.parametrize("rows", [5, 3])
def test_least_squares(rows: int, driver: int) -> None:
    a, b = drawn(2, rows, 4), drawn(2, rows, 3)
    x, rest, rank, singular = laid_out(a, b, driver)
    expected = np.stack(
        [np.linalg.lstsq(p, q, rcond=None)[0] for p, q in zip(a.double().numpy(), b.double().numpy(), strict=True)]
    )
    near(x, torch.from_numpy(expected), 2e-5)
    if driver != 1 and rows > 4:
        near(rest, (a.double() @ torch.from_numpy(expected) - b).square().sum(-2), 2e-5)
    if driver > 1:
        near(singular, torch.linalg.svdvals(a.double()), 2e-5)
    if driver > 0:
        assert rank.tolist() == [min(rows, 4)] * 2


def test_columns_that_say_the_same_have_one_rank() -> None:
    a = drawn(5, 3)
    a[:, 2] = 2 * a[:, 1]
    b = drawn(5, 1)
    x, _, rank, _ = laid_out(a, b, 1)
    assert rank.item() == 2
    near(x, torch.from_numpy(np.linalg.lstsq(a.double().numpy(), b.double().numpy(), rcond=1e-6)[0]), 2e-5)


@pytest.mark.parametrize(("rows", "columns"), [(5, 3), (3, 5), (4, 4)])
def test_gradients_of_least_squares(rows: int, columns: int) -> None:
    a, b, slope = drawn(2, rows, columns), drawn(2, rows, 2), drawn(2, columns, 2)
    if rows == columns:
        a = a + 3 * torch.eye(rows)
    wide, side = a.double().requires_grad_(), b.double().requires_grad_()
    (torch.linalg.pinv(wide) @ side).backward(slope.double())
    of_a, of_b = called("CustLstsqV2Grad", [slope, a, b], a.shape, b.shape)
    assert wide.grad is not None and side.grad is not None
    near(of_a, wide.grad, 2e-5)
    near(of_b, side.grad, 2e-5)


# Operator: inputs, outputs, attributes and words of its refusal.
REFUSED: dict[str, tuple[list[torch.Tensor], list[tuple[Any, ...]], dict[str, Any], str]] = {
    "CustLstsqV2": ([drawn(5, 3), drawn(4, 2), torch.tensor(0)], [(3, 2), (2,), (0, I64), (0,)], {}, "b float32[4, 2]"),
    "CustLstsqV2Grad": ([drawn(3, 2), drawn(5, 3), drawn(4, 2)], [(5, 3), (4, 2)], {}, "b float32[4, 2]"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    inputs, sizes, attributes, words = REFUSED[name]
    check_refused(name, inputs, sizes, attributes, words)
