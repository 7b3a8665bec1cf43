"""Steps of rarer optimizers that MindSpore asks for by their type, dense and of some rows, against NumPy in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from aclop import INVALID_ARGUMENT, drawn, launch, near, ran

Arrays = list[Any]


def shrunk(x: Any, by: Any) -> Any:
    return np.sign(x) * np.maximum(np.abs(x) - by, 0)


def amsgrad(
    var: Any, m: Any, v: Any, top: Any, p1: Any, p2: Any, lr: Any, b1: Any, b2: Any, eps: Any, g: Any
) -> Arrays:
    m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
    top = np.maximum(top, v)
    return [var - lr * np.sqrt(1 - p2) / (1 - p1) * m / (np.sqrt(top) + eps), m, v, top]


def add_sign(var: Any, m: Any, lr: Any, alpha: Any, decay: Any, beta: Any, g: Any) -> Arrays:
    m = beta * m + (1 - beta) * g
    return [var - lr * (alpha + decay * np.sign(g) * np.sign(m)) * g, m]


def power_sign(var: Any, m: Any, lr: Any, base: Any, decay: Any, beta: Any, g: Any) -> Arrays:
    m = beta * m + (1 - beta) * g
    return [var - lr * np.exp(base * decay * np.sign(g) * np.sign(m)) * g, m]


def centered(var: Any, mg: Any, ms: Any, mom: Any, lr: Any, rho: Any, share: Any, eps: Any, g: Any) -> Arrays:
    mg, ms = rho * mg + (1 - rho) * g, rho * ms + (1 - rho) * g * g
    mom = share * mom + lr * g / np.sqrt(ms - mg * mg + eps)
    return [var - mom, mg, ms, mom]


def keras(var: Any, accum: Any, lr: Any, g: Any, share: Any) -> Arrays:
    accum = accum * share - lr * g
    return [var + accum * share - lr * g, accum]


def averaged(var: Any, total: Any, squares: Any, g: Any, lr: Any, l1: Any, l2: Any, count: Any) -> Arrays:
    total, squares = total + g, squares + g * g
    return [-lr * shrunk(total, l1 * count) / (l2 * count * lr + np.sqrt(squares)), total, squares]


def adagrad(var: Any, accum: Any, lr: Any, g: Any) -> Arrays:
    accum = accum + g * g
    return [var - lr * g / (np.sqrt(accum) + 0.125), accum]


# What a call brings after the variable, its attributes, and what is left of its first operands.
DENSE: dict[str, tuple[list[Any], dict[str, Any], Callable[..., Arrays]]] = {
    "ApplyAdamWithAmsgradV2": (["m"] * 3 + [0.9, 0.99, 0.1, 0.9, 0.99, 1e-3, "g"], {}, amsgrad),
    "ApplyAdamWithAmsgradD": (
        ["m"] * 3 + [0.9, 0.99, 0.1, "g"], {"beta1": 0.5, "beta2": 0.75, "epsilon": 0.125},
        lambda *x: amsgrad(*[*x[:7], 0.5, 0.75, 0.125, x[7]]),
    ),
    "ApplyAddSignD": (["m", 0.1, 1.0, 0.5, 0.9, "g"], {}, add_sign),
    "ApplyPowerSignD": (["m", 0.1, 1.5, 0.5, 0.9, "g"], {}, power_sign),
    "ApplyGradientDescent": ([0.1, "g"], {}, lambda var, lr, g: [var - lr * g]),
    "ApplyProximalGradientDescent": (
        [0.5, 0.2, 0.3, "g"], {}, lambda var, lr, l1, l2, g: [shrunk(var - lr * g, lr * l1) / (1 + lr * l2)],
    ),
    "ApplyCenteredRMSProp": (["g", "m", "m", 0.1, 0.9, 0.5, 20.0, "g"], {}, centered),  # more than a mean squared
    "ApplyKerasMomentumD": (["m", 0.1, "g", 0.9], {"use_nesterov": True}, keras),
    "ApplyAdagradDA": (["g", "m", "g", 0.1, 0.2, 0.3, 4], {}, averaged),
    "ApplyAdagradV2D": (["m", 0.5, "g"], {"epsilon": 0.125}, adagrad),
}  # fmt: skip


def made(what: Any, *sizes: int) -> torch.Tensor:
    if isinstance(what, str):
        return drawn(*sizes) if what == "g" else drawn(*sizes).abs() + 0.1
    return torch.tensor(what, dtype=torch.int32 if isinstance(what, int) else torch.float32)


def compared(name: str, operands: list[torch.Tensor], expected: Arrays, **attributes: Any) -> None:
    outputs = ran(name, operands, *[operands[0].shape] * len(expected), **attributes)
    for out, there, value in zip(outputs, ran.operands, expected, strict=False):  # type: ignore[attr-defined]
        near(out, torch.from_numpy(value), 1e-5)
        near(there.double(), torch.from_numpy(value), 1e-5)


@pytest.mark.parametrize("name", DENSE)
def test_dense_steps(name: str) -> None:
    rest, attributes, step = DENSE[name]
    operands = [drawn(5, 4), *(made(each, 5, 4) for each in rest)]
    compared(name, operands, step(*[each.double().numpy() for each in operands]), **attributes)


def test_sums_of_a_dual_average_that_stay_small_are_zero() -> None:
    operands = [drawn(3), torch.zeros(3), torch.ones(3), torch.tensor([0.1, -0.1, 5.0]),
                *(torch.tensor(each) for each in (0.1, 0.2, 0.3)), torch.tensor(4, dtype=torch.int32)]  # fmt: skip
    ran("ApplyAdagradDA", operands, (3,))
    assert (ran.operands[0] != 0).tolist() == [False, False, True]  # type: ignore[attr-defined]


def test_lamb() -> None:
    g, m, var, v = drawn(6), drawn(6), drawn(6), drawn(6).abs() + 0.1
    numbers = [torch.tensor(each) for each in (0.9, 0.1, 0.99, 0.01, 1e-3, 3.0, 1.0, 0.25)]
    update, second, first = ran("LambApplyOptimizerAssign", [g, v, m, var, *numbers], (6,), (6,), (6,))
    g, m, var, v = (each.double() for each in (g, m, var, v))
    v, m = v * 0.99 + g * g * 0.01, m * 0.9 + g * 0.1
    near(second, v)
    near(first, m)
    expected = m / (1 - 0.9**3) / ((v / (1 - 0.99**3)).sqrt() + 1e-3) + 0.25 * var
    near(update, expected, 1e-5)
    for w, u, ratio in ((2.0, 4.0, 0.5), (0.0, 4.0, 1.0), (2.0, 0.0, 1.0)):
        operands = [*(torch.tensor(each) for each in (w, u, 0.5)), expected.float(), var.float()]
        near(ran("LambApplyWeightAssign", operands, (6,))[0], var - ratio * 0.5 * expected, 1e-5)


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


ROWS = torch.tensor([0, 1], dtype=torch.int32)
ONE = drawn(1).abs()
# Operator: inputs, attributes and words of its refusal.
REFUSED: dict[str, tuple[list[torch.Tensor], dict[str, Any], str]] = {
    "ApplyAdamWithAmsgradV2": ([drawn(3).half()] * 4 + [ONE.half()] * 6 + [drawn(3).half()], {}, "the variable is"),
    "ApplyAdamWithAmsgradD": ([drawn(3)] * 4 + [ONE] * 3 + [drawn(3)], {"beta1": 0.9, "beta2": 0.9}, "epsilon is missing"),
    "ApplyAddSignD": ([drawn(3), drawn(2), *[ONE] * 4, drawn(3)], {}, "a moment is"),
    "ApplyPowerSignD": ([drawn(3), drawn(3), drawn(2), *[ONE] * 3, drawn(3)], {}, "a number is"),
    "ApplyGradientDescent": ([drawn(3), ONE, drawn(2)], {}, "the gradient is"),
    "ApplyProximalGradientDescent": ([drawn(3), ONE, drawn(2), ONE, drawn(3)], {}, "a number is"),
    "ApplyCenteredRMSProp": ([drawn(3)] * 3 + [drawn(2)] + [ONE] * 4 + [drawn(3)], {}, "a moment is"),
    "ApplyKerasMomentumD": ([ROWS, ROWS, ONE, ROWS, ONE], {}, "the variable is"),
    "ApplyAdagradDA": ([drawn(3)] * 4 + [ONE] * 4, {}, "the number of the step is"),
    "ApplyAdagradV2D": ([drawn(3), drawn(3), ONE, drawn(3)], {}, "epsilon is missing"),
    "LambApplyOptimizerAssign": ([drawn(3)] * 4 + [ONE] * 7 + [drawn(2)], {}, "a number is"),
    "LambApplyWeightAssign": ([ONE] * 3 + [drawn(3), drawn(2)], {}, "the variable is"),
    "SparseApplyAdagradD": ([drawn(4, 3), drawn(4, 3), drawn(2, 3), ROWS], {}, "lr is missing"),
    "SparseApplyFtrlD": ([drawn(4, 3)] * 3 + [drawn(2, 3), ROWS], LINEAR | {"lr": 0.0}, "lr is 0"),
    "SparseApplyFtrlV2D": ([drawn(4, 3)] * 3 + [drawn(2, 3), ROWS], LINEAR | {"lr_power": 0.5}, "lr_power is 0.5"),
    "SparseApplyAdagradV2D": ([drawn(4, 3).half()] * 2 + [drawn(2, 3).half(), ROWS], {"lr": 0.1}, "the variable is"),
    "SparseApplyProximalAdagradD": ([drawn(4, 3)] * 2 + [ONE] * 3 + [drawn(3, 3), ROWS], {}, "the gradient is"),
    "SparseApplyRMSPropD": ([drawn(4, 3)] * 3 + [ONE, drawn(2, 3), ROWS], {"rho": 0.9}, "momentum is missing"),
    "CustFusedSparseProximalAdagrad": ([drawn(4, 3)] * 2 + [ONE] * 3 + [drawn(2, 3), ROWS.long()], {}, "the indices is"),
    "CustFusedSparseFtrl": ([drawn(4, 3)] * 3 + [drawn(2, 3), ROWS], LINEAR | {"l1": -0.5}, "l1 is -0.5"),
    "CustFusedSparseLazyAdam": ([drawn(4, 3)] * 3 + [ONE] * 6 + [drawn(2, 2), ROWS], {}, "the gradient is"),
    "CustFusedSparseAdam": ([drawn(4, 3), drawn(4, 2), drawn(4, 3)] + [ONE] * 6 + [drawn(2, 3), ROWS], {}, "a moment is"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    inputs, attributes, words = REFUSED[name]
    outputs = [torch.zeros_like(inputs[0]).npu() for _ in range(4)]
    status, message = launch(name, [each.npu() for each in inputs], outputs, **attributes)
    assert status == INVALID_ARGUMENT and words in message and name in message, (status, message)
