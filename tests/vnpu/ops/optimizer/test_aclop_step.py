"""optimizer/aclop_step.cpp: steps of rarer optimizers that MindSpore asks for by their type, against NumPy in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from aclop import INVALID_ARGUMENT, drawn, launch, near, ran
from steps import Arrays, compared, made, shrunk


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
        ["m"] * 3 + [0.9, 0.99, 0.1, "g"],
        {"beta1": 0.5, "beta2": 0.75, "epsilon": 0.125},
        lambda *x: amsgrad(*[*x[:7], 0.5, 0.75, 0.125, x[7]]),
    ),
    "ApplyAddSignD": (["m", 0.1, 1.0, 0.5, 0.9, "g"], {}, add_sign),
    "ApplyPowerSignD": (["m", 0.1, 1.5, 0.5, 0.9, "g"], {}, power_sign),
    "ApplyGradientDescent": ([0.1, "g"], {}, lambda var, lr, g: [var - lr * g]),
    "ApplyProximalGradientDescent": (
        [0.5, 0.2, 0.3, "g"],
        {},
        lambda var, lr, l1, l2, g: [shrunk(var - lr * g, lr * l1) / (1 + lr * l2)],
    ),
    "ApplyCenteredRMSProp": (["g", "m", "m", 0.1, 0.9, 0.5, 20.0, "g"], {}, centered),  # more than a mean squared
    "ApplyKerasMomentumD": (["m", 0.1, "g", 0.9], {"use_nesterov": True}, keras),
    "ApplyAdagradDA": (["g", "m", "g", 0.1, 0.2, 0.3, 4], {}, averaged),
    "ApplyAdagradV2D": (["m", 0.5, "g"], {"epsilon": 0.125}, adagrad),
}


@pytest.mark.parametrize("name", DENSE)
def test_dense_steps(name: str) -> None:
    rest, attributes, step = DENSE[name]
    operands = [drawn(5, 4), *(made(each, 5, 4) for each in rest)]
    compared(name, operands, step(*[each.double().numpy() for each in operands]), **attributes)


def test_sums_of_a_dual_average_that_stay_small_are_zero() -> None:
    operands = [
        drawn(3),
        torch.zeros(3),
        torch.ones(3),
        torch.tensor([0.1, -0.1, 5.0]),
        *(torch.tensor(each) for each in (0.1, 0.2, 0.3)),
        torch.tensor(4, dtype=torch.int32),
    ]
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


ONE = drawn(1).abs()
ROWS = torch.tensor([0, 1], dtype=torch.int32)
# Operator: inputs, attributes and words of its refusal.
REFUSED: dict[str, tuple[list[torch.Tensor], dict[str, Any], str]] = {
    "ApplyAdamWithAmsgradV2": ([drawn(3).half()] * 4 + [ONE.half()] * 6 + [drawn(3).half()], {}, "the variable is"),
    "ApplyAdamWithAmsgradD": (
        [drawn(3)] * 4 + [ONE] * 3 + [drawn(3)],
        {"beta1": 0.9, "beta2": 0.9},
        "epsilon is missing",
    ),
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
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    inputs, attributes, words = REFUSED[name]
    outputs = [torch.zeros_like(inputs[0]).npu() for _ in range(4)]
    status, message = launch(name, [each.npu() for each in inputs], outputs, **attributes)
    assert status == INVALID_ARGUMENT and words in message and name in message, (status, message)
