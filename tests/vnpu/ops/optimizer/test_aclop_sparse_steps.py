"""optimizer/aclop_sparse.cpp: steps of some rows, against NumPy in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from aclop import INVALID_ARGUMENT, drawn, launch
from steps import Arrays, compared, made, shrunk

LINEAR = {"lr": 0.5, "l1": 0.25, "l2": 0.125, "lr_power": -0.5}


def ftrl(x: Arrays, g: Any, shrinkage: float = 0) -> Arrays:
    var, accum, linear = x
    after = accum + g * g
    linear = linear + g + 2 * shrinkage * var - (np.sqrt(after) - np.sqrt(accum)) / 0.5 * var
    moved = (np.sign(linear) * 0.25 - linear) / (np.sqrt(after) / 0.5 + 2 * 0.125)
    return [np.where(np.abs(linear) > 0.25, moved, 0), after, linear]


def proximal(x: Arrays, g: Any) -> Arrays:
    after = x[1] + g * g
    rate = 0.5 / np.sqrt(after)
    return [shrunk(x[0] - rate * g, rate * 0.25) / (1 + rate * 0.125), after]


def adam(x: Arrays, g: Any) -> Arrays:
    var, m, v = x
    m, v = 0.9 * m + (1 - 0.9) * g, 0.99 * v + (1 - 0.99) * g * g
    return [var - 0.1 * np.sqrt(1 - 0.95) / (1 - 0.8) * m / (np.sqrt(v) + 1e-3), m, v]


def rms(x: Arrays, g: Any) -> Arrays:
    squares = 0.75 * x[1] + 0.25 * g * g
    moved = 0.5 * x[2] + 0.1 * g / np.sqrt(squares + 0.125)
    return [x[0] - moved, squares, moved]


def rows_of_adagrad(epsilon: float) -> Callable[[Arrays, Any], Arrays]:
    return lambda x, g: [x[0] - 0.5 * g / (np.sqrt(x[1] + g * g) + epsilon), x[1] + g * g]


# Moments, numbers, attributes, the step of one row, and which rows: "each" in turn, sums "once", or "all".
SPARSE: dict[str, tuple[int, list[float], dict[str, Any], Callable[..., Arrays], str]] = {
    "SparseApplyAdagradD": (1, [], {"lr": 0.5}, rows_of_adagrad(0), "each"),
    "SparseApplyAdagradV2D": (1, [], {"lr": 0.5, "epsilon": 0.125}, rows_of_adagrad(0.125), "each"),
    "SparseApplyFtrlD": (2, [], LINEAR, ftrl, "each"),
    "SparseApplyFtrlV2D": (2, [], LINEAR | {"l2_shrinkage": 0.75}, lambda x, g: ftrl(x, g, 0.75), "each"),
    "SparseApplyProximalAdagradD": (1, [0.5, 0.25, 0.125], {}, proximal, "each"),
    "SparseApplyRMSPropD": (2, [0.1], {"rho": 0.75, "momentum": 0.5, "epsilon": 0.125}, rms, "each"),
    "CustFusedSparseProximalAdagrad": (1, [0.5, 0.25, 0.125], {}, proximal, "once"),
    "CustFusedSparseFtrl": (2, [], LINEAR, ftrl, "once"),
    "CustFusedSparseLazyAdam": (2, [0.8, 0.95, 0.1, 0.9, 0.99, 1e-3], {}, adam, "once"),
    "CustFusedSparseAdam": (2, [0.8, 0.95, 0.1, 0.9, 0.99, 1e-3], {}, adam, "all"),
}


@pytest.mark.parametrize("places", [[3, 0], [3, 0, 3, 3]])
@pytest.mark.parametrize("name", SPARSE)
def test_sparse_steps(name: str, places: list[int]) -> None:
    moments, numbers, attributes, step, how = SPARSE[name]
    states = [drawn(5, 2, 3), *(made("m", 5, 2, 3) for _ in range(moments))]
    grad = drawn(len(places), 2, 3)
    wide, slopes = [each.double().numpy().copy() for each in states], grad.double().numpy()
    work: list[tuple[int, Any]] = list(zip(places, slopes, strict=True))
    if how != "each":
        named = sorted(set(places)) if how == "once" else range(5)
        work = [(row, sum((g for i, g in work if i == row), np.zeros((2, 3)))) for row in named]
    for row, g in work:
        for state, value in zip(wide, step([state[row] for state in wide], g), strict=True):
            state[row] = value
    operands = [*states, *map(torch.tensor, numbers), grad, torch.tensor(places, dtype=torch.int32)]
    compared(name, operands, wide, **attributes)


ONE = drawn(1).abs()
ROWS = torch.tensor([0, 1], dtype=torch.int32)
# Operator: inputs, attributes and words of its refusal.
REFUSED: dict[str, tuple[list[torch.Tensor], dict[str, Any], str]] = {
    "SparseApplyAdagradD": ([drawn(4, 3), drawn(4, 3), drawn(2, 3), ROWS], {}, "lr is missing"),
    "SparseApplyFtrlD": ([drawn(4, 3)] * 3 + [drawn(2, 3), ROWS], LINEAR | {"lr": 0.0}, "lr is 0"),
    "SparseApplyFtrlV2D": ([drawn(4, 3)] * 3 + [drawn(2, 3), ROWS], LINEAR | {"lr_power": 0.5}, "lr_power is 0.5"),
    "SparseApplyAdagradV2D": ([drawn(4, 3).half()] * 2 + [drawn(2, 3).half(), ROWS], {"lr": 0.1}, "the variable is"),
    "SparseApplyProximalAdagradD": ([drawn(4, 3)] * 2 + [ONE] * 3 + [drawn(3, 3), ROWS], {}, "the gradient is"),
    "SparseApplyRMSPropD": ([drawn(4, 3)] * 3 + [ONE, drawn(2, 3), ROWS], {"rho": 0.9}, "momentum is missing"),
    "CustFusedSparseProximalAdagrad": (
        [drawn(4, 3)] * 2 + [ONE] * 3 + [drawn(2, 3), ROWS.long()],
        {},
        "the indices is",
    ),
    "CustFusedSparseFtrl": ([drawn(4, 3)] * 3 + [drawn(2, 3), ROWS], LINEAR | {"l1": -0.5}, "l1 is -0.5"),
    "CustFusedSparseLazyAdam": ([drawn(4, 3)] * 3 + [ONE] * 6 + [drawn(2, 2), ROWS], {}, "the gradient is"),
    "CustFusedSparseAdam": (
        [drawn(4, 3), drawn(4, 2), drawn(4, 3)] + [ONE] * 6 + [drawn(2, 3), ROWS],
        {},
        "a moment is",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    inputs, attributes, words = REFUSED[name]
    outputs = [torch.zeros_like(inputs[0]).npu() for _ in range(4)]
    status, message = launch(name, [each.npu() for each in inputs], outputs, **attributes)
    assert status == INVALID_ARGUMENT and words in message and name in message, (status, message)
