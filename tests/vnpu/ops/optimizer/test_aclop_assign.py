"""optimizer/aclop_assign.cpp: variables that are written and steps of optimizers, against torch in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from aclop import check_refused, drawn, near, ran


def test_variables_are_written() -> None:
    one, value = drawn(3), drawn(3)
    for name, expected in (("Assign", value), ("AssignAdd", one + value), ("AssignSub", one - value)):
        (y,) = ran(name, [one.clone(), value], (3,))
        near(y, expected)
        near(ran.operands[0].double(), expected)  # type: ignore[attr-defined]
    (y,) = ran("AddN", [one, value, one], (3,))
    near(y, 2 * one.double() + value.double())
    (y,) = ran("TensorMove", [one], (3,))
    near(y, one)


@pytest.mark.parametrize("nesterov", [False, True])
def test_steps_of_optimizers_are_torchs(nesterov: bool) -> None:
    start, slope = drawn(5), drawn(5)

    def after(kind: Any, steps: int, **options: Any) -> torch.Tensor:
        parameter = torch.nn.Parameter(start.double())
        optimizer = kind([parameter], lr=0.1, **options)
        for _ in range(steps):
            parameter.grad = slope.double()
            optimizer.step()
        return parameter.detach()

    rate, share = torch.tensor([0.1]), torch.tensor([0.9])
    accumulated, stat, current = torch.zeros(5), torch.ones(5), start.clone()
    for _ in range(3):
        (y,) = ran(
            "SGD",
            [current, slope, rate, accumulated, share, stat],
            (5,),
            weight_decay=0.01,
            dampening=0.0,
            nesterov=nesterov,
        )
        current, accumulated, stat = (ran.operands[i] for i in (0, 3, 5))  # type: ignore[attr-defined]
    near(y, after(torch.optim.SGD, 3, momentum=0.9, weight_decay=0.01, nesterov=nesterov))
    accumulated, current = torch.zeros(5), start.clone()
    for _ in range(3):
        (y,) = ran("ApplyMomentum", [current, accumulated, rate, slope, share], (5,), use_nesterov=nesterov)
        current, accumulated = (ran.operands[i] for i in (0, 1))  # type: ignore[attr-defined]
    near(y, after(torch.optim.SGD, 3, momentum=0.9, nesterov=nesterov))


def test_adam_and_adagrad() -> None:
    start, slope = drawn(5), drawn(5)
    m, v, current = torch.zeros(5), torch.zeros(5), start.clone()
    wide_m, wide_v, expected = torch.zeros(5).double(), torch.zeros(5).double(), start.double()
    numbers = [torch.tensor([n]) for n in (0.1, 0.9, 0.999, 1e-8)]
    for step in range(1, 4):
        powers = [torch.tensor([0.9**step]), torch.tensor([0.999**step])]
        ran("ApplyAdam", [current, m, v, *powers, *numbers, slope], (5,), (5,), (5,))
        current, m, v = (ran.operands[i] for i in range(3))  # type: ignore[attr-defined]
        wide_m = 0.9 * wide_m + 0.1 * slope.double()
        wide_v = 0.999 * wide_v + 0.001 * slope.double() ** 2
        rate = 0.1 * (1 - 0.999**step) ** 0.5 / (1 - 0.9**step)
        expected = expected - rate * wide_m / (wide_v.sqrt() + 1e-8)
    near(current.double(), expected, 1e-5)
    ran("ApplyAdagrad", [start.clone(), torch.ones(5), numbers[0], slope], (5,), (5,))
    near(ran.operands[0].double(), start.double() - 0.1 * slope.double() / (1 + slope.double() ** 2).sqrt())  # type: ignore[attr-defined]


def test_a_step_of_adam_with_decay() -> None:
    start, slope = drawn(5), drawn(5)
    m, v = torch.zeros(5), torch.zeros(5)
    numbers = [torch.tensor([n]) for n in (0.1, 0.9, 0.1, 0.999, 0.001, 0.01, 1e-6)]
    ran("AdamApplyOneWithDecayAssign", [slope, v, m, start.clone(), *numbers], (5,), (5,), (5,))
    wide, g = start.double(), slope.double()
    expected = wide - 0.1 * (0.1 * g / ((0.001 * g * g).sqrt() + 1e-6) + 0.01 * wide)
    near(ran.operands[3].double(), expected, 1e-5)  # type: ignore[attr-defined]
    near(ran.operands[1].double(), 0.001 * g * g)  # type: ignore[attr-defined]


def test_rms_prop_is_torchs() -> None:
    start, slope = drawn(5), drawn(5)
    parameter = torch.nn.Parameter(start.double())
    optimizer = torch.optim.RMSprop([parameter], lr=0.1, alpha=0.9, momentum=0.5, eps=0)
    numbers = [torch.tensor([n]) for n in (0.1, 0.9, 0.5, 0.0)]
    current, squares, moved = start.clone(), torch.zeros(5), torch.zeros(5)
    for _ in range(3):
        parameter.grad = slope.double()
        optimizer.step()
        ran("ApplyRMSProp", [current, squares, moved, *numbers, slope], (5,), (5,), (5,))
        current, squares, moved = (ran.operands[i] for i in range(3))  # type: ignore[attr-defined]
    near(current.double(), parameter.detach(), 1e-5)


def ftrl(x: list[torch.Tensor]) -> list[torch.Tensor]:
    var, accum, linear, g, rate, l1, l2, power = x
    after = accum + g * g
    linear = linear + g - (after**-power - accum**-power) / rate * var
    shrunk = (linear.sign() * l1 - linear) / (after**-power / rate + 2 * l2)
    return [torch.where(linear.abs() > l1, shrunk, torch.zeros(())), after, linear]


def adadelta(x: list[torch.Tensor]) -> list[torch.Tensor]:
    var, accum, moved, rate, rho, epsilon, g = x
    parameter = torch.nn.Parameter(var.clone())
    step = torch.optim.Adadelta([parameter], float(rate), float(rho), float(epsilon))
    step.state[parameter] = {"step": torch.tensor(1.0), "square_avg": accum.clone(), "acc_delta": moved.clone()}
    parameter.grad = g
    step.step()
    return [parameter.detach(), step.state[parameter]["square_avg"], step.state[parameter]["acc_delta"]]


def proximal(x: list[torch.Tensor]) -> list[torch.Tensor]:
    var, accum, rate, l1, l2, g = x
    after = accum + g * g
    rate = rate / after.sqrt()
    return [F.softshrink((var - rate * g) / rate, float(l1)) * rate / (1 + rate * l2), after]


def adamax(x: list[torch.Tensor]) -> list[torch.Tensor]:
    var, m, v, power, rate, b1, b2, epsilon, g = x
    m, v = b1 * m + (1 - b1) * g, torch.maximum(b2 * v, g.abs())
    return [var - rate / (1 - power) * m / (v + epsilon), m, v]


# What a call brings after the variable, and what is left of its first operands.
STEPS: dict[str, tuple[list[Any], Callable[[list[torch.Tensor]], list[torch.Tensor]]]] = {
    "ApplyFtrl": (["moment", "moment", "gradient", 0.1, 0.3, 0.2, -0.5], ftrl),
    "ApplyAdadeltaD": (["moment", "moment", 0.5, 0.9, 1e-4, "gradient"], adadelta),
    "ApplyProximalAdagradD": (["moment", 0.5, 0.2, 0.3, "gradient"], proximal),
    "ApplyAdaMaxD": (["moment", "moment", 0.9, 0.1, 0.9, 0.99, 1e-6, "gradient"], adamax),
}


@pytest.mark.parametrize("name", STEPS)
def test_steps_of_optimizers(name: str) -> None:
    rest, expected = STEPS[name]
    made = {"moment": lambda: drawn(40).abs() + 0.1, "gradient": lambda: drawn(40)}
    operands = [drawn(40), *(made[each]() if isinstance(each, str) else torch.tensor(each) for each in rest)]
    wide = expected([each.double() for each in operands])
    ran(name, operands, *[(40,)] * len(wide))
    for found, value in zip(ran.operands, wide, strict=False):  # type: ignore[attr-defined]
        near(found.double(), value, 1e-5)


@pytest.mark.parametrize("decay", [True, False])
@pytest.mark.parametrize("numbers", [(), (5,), (3, 5)])
def test_a_step_of_adam_into_outputs(decay: bool, numbers: tuple[int, ...]) -> None:
    """The numbers may be tensors: the operator is what MindSpore makes of a network's products and sums."""
    g, v, m, var = (drawn(3, 5) for _ in range(4))
    rest = [drawn(*numbers).abs() for _ in range(7 if decay else 6)]
    name = "AdamApplyOneWithDecay" if decay else "AdamApplyOne"
    rate, b1, left1, b2, left2, *last = (each.double() for each in rest)
    wide_m = b1 * m.double() + left1 * g.double()
    wide_v = b2 * v.double().abs() + left2 * g.double() ** 2
    step = wide_m / (last[-1] + wide_v.sqrt()) + (last[0] * var.double() if decay else 0)
    found = ran(name, [g, v.abs(), m, var, *rest], *[(3, 5)] * 3)
    for each, expected in zip(found, (wide_v, wide_m, var.double() - rate * step), strict=True):
        near(each, expected, 1e-5)


UNFIT: dict[str, tuple[list[Any], tuple[Any, ...], dict[str, Any], str]] = {
    "Assign": ([drawn(3), drawn(4)], ((3,),), {}, "the value"),
    "SGD": ([drawn(3), drawn(4), drawn(1), drawn(3), drawn(1), drawn(3)], ((3,),), {}, "the gradient"),
}


@pytest.mark.parametrize("name", UNFIT)
def test_what_does_not_fit_is_refused(name: str) -> None:
    inputs, sizes, attributes, words = UNFIT[name]
    check_refused(name, inputs, sizes, attributes, words)


# Operator: inputs, outputs, attributes and words of its refusal.
REFUSED: dict[str, tuple[list[Any], list[tuple[int, ...]], dict[str, Any], str]] = {
    "ApplyFtrl": ([drawn(3)] * 2 + [drawn(2), drawn(3)] + [drawn(1)] * 4, [(3,)], {}, "a moment is"),
    "AdamApplyOne": ([drawn(3, 5)] * 4 + [drawn(2)] * 6, [(3, 5)] * 3, {}, "does not become"),
    "AdamApplyOneWithDecay": ([drawn(3)] * 3 + [drawn(2)] + [drawn(1)] * 7, [(3,)] * 3, {}, "a moment or the variable"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    inputs, sizes, attributes, words = REFUSED[name]
    check_refused(name, inputs, sizes, attributes, words)
