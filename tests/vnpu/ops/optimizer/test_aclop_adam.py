"""optimizer/aclop_adam.cpp: steps of Adam and its kin, and of LARS, in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch_npu
from aclop import INVALID_ARGUMENT, drawn, launch, near, ran
from oracle import FLOATS, compare, random


@pytest.mark.parametrize("clip", [False, True])
def test_a_step_of_lars(clip: bool) -> None:
    w, g = drawn(3, 4), drawn(3, 4)
    squares = [each.square().sum() for each in (w, g)]
    decay, rate = torch.tensor(0.1), torch.tensor(0.02)
    (slope,) = ran("LarsV2Update", [w, g, *squares, decay, rate], w.shape, hyperpara=0.01, epsilon=1e-3, use_clip=clip)
    norm_w, norm_g = (each.double().norm() for each in (w, g))
    share = 0.01 * norm_w / (norm_g + 0.1 * norm_w + 1e-3)
    near(slope, (g.double() + 0.1 * w.double()) * (min(share / 0.02, torch.tensor(1.0)) if clip else share))


HALVES = (torch.float32, torch.float16)


def states(count: int, dtype: torch.dtype, seed: int) -> tuple[torch.Tensor, ...]:
    return tuple(random(count, low=low, high=2, seed=seed + i).to(dtype) for i, low in enumerate((-2, -2, 0.1, -2)))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("nesterov", [True, False])
def test_adam(dtype: torch.dtype, nesterov: bool) -> None:
    var, m, v, grad = states(33, dtype, 3)
    b1, b2, rate, eps = 0.875, 0.96875, 0.125, 0.25  # numbers of every dtype
    p1, p2 = b1**2, b2**2
    out = tuple(t.npu() for t in (var, m, v))
    torch.npu.set_compile_mode(jit_compile=True)
    try:
        torch_npu.npu_apply_adam(p1, p2, rate, b1, b2, eps, grad.npu(), None, nesterov, out=out)
    finally:
        torch.npu.set_compile_mode(jit_compile=False)
    x, a, b, g = (t.double() for t in (var, m, v, grad))
    p1, p2 = (float(torch.tensor(p, dtype=dtype)) for p in (p1, p2))
    a, b = a * b1 + (1 - b1) * g, b * b2 + (1 - b2) * g * g
    ahead = a * b1 + (1 - b1) * g if nesterov else a
    x = x - rate * np.sqrt(1 - p2) / (1 - p1) * ahead / (eps + b.sqrt())
    for actual, expected in zip(out, (x, a, b), strict=True):
        compare(actual, expected, dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("maximize", [True, False])
def test_adamw(dtype: torch.dtype, maximize: bool) -> None:
    var, m, v, grad = states(33, dtype, 5)
    b1, b2, rate, eps, decay, power = 0.875, 0.96875, 0.125, 0.25, 0.5, 0.75
    out = tuple(t.npu() for t in (var, m, v))
    torch.npu.set_compile_mode(jit_compile=True)
    try:
        torch_npu.npu_apply_adam_w(power, power, rate, decay, b1, b2, eps, grad.npu(), None, False, maximize, out=out)
    finally:
        torch.npu.set_compile_mode(jit_compile=False)
    x, a, b, g = (t.double() for t in (var, m, v, grad))
    g = -g if maximize else g
    a, b = a * b1 + (1 - b1) * g, b * b2 + (1 - b2) * g * g
    x = x * (1 - rate * decay) - rate / (1 - power * b1) * a / ((b / (1 - power * b2)).sqrt() + eps)
    for actual, expected in zip(out, (x, a, b), strict=True):
        compare(actual, expected, dtype)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("norms", [(-1.0, 3.0), (1.0, 4.0), (1.0, 0.5)])
@pytest.mark.parametrize("mode", [0, 1])
def test_adam_of_bert(dtype: torch.dtype, norms: tuple[float, float], mode: int) -> None:
    """Moments are not corrected; the gradient is divided by a norm above 1 where there is a limit, in mode 0."""
    var, m, v, grad = states(33, dtype, 7)
    b1, b2, rate, eps, decay, size = 0.875, 0.96875, 0.125, 0.25, 0.5, 0.75
    out = tuple(t.npu() for t in (var, m, v))
    torch_npu.npu_bert_apply_adam(rate, b1, b2, eps, grad.npu(), *norms, decay, size, mode, out=out)
    x, a, b, g = (t.double() for t in (var, m, v, grad))
    if mode == 0 and norms[0] > 0 and norms[1] > 1:
        g = g / norms[1]
    a, b = a * b1 + (1 - b1) * g, b * b2 + (1 - b2) * g * g
    update = a / (b.sqrt() + eps)
    x = x - (rate * (update + decay * x) if mode == 0 else size * update + rate * decay * x)
    for actual, expected in zip(out, (x, a, b), strict=True):
        compare(actual, expected, dtype)


# Operator: inputs, the output's sizes, attributes; words of the message.
REFUSED = {"LarsV2Update": ([drawn(3), drawn(3), drawn(2), drawn(1), drawn(1), drawn(1)], (3,), {}, "a number is")}


@pytest.mark.parametrize("name", REFUSED)
def test_a_call_that_does_not_fit_is_refused(name: str) -> None:
    inputs, size, attributes, words = REFUSED[name]
    operands = [each.npu() if isinstance(each, torch.Tensor) else each for each in inputs]
    outputs = [torch.zeros(size).npu() for _ in range(8)]
    status, message = launch(name, operands, outputs, **attributes)
    assert status == INVALID_ARGUMENT and words in message and name in message, (status, message)
