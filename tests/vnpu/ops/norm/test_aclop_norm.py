"""norm/aclop_norm.cpp through torch_npu's functions, and refused calls."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch_npu
from aclop import INVALID_ARGUMENT, check_refused, drawn, launch
from oracle import check, compare, random
from torch.nn import functional

HALVES = (torch.float32, torch.float16)


@pytest.mark.parametrize("dtype", HALVES)
def test_layer_norm_gradient_takes_the_variance(dtype: torch.dtype) -> None:
    x, gamma = random(6, 16).to(dtype), random(16, seed=1).to(dtype)
    seed = random(6, 16, seed=2).to(dtype)
    mean, variance = x.double().mean(-1).to(dtype), x.double().var(-1, correction=0).to(dtype)
    operands = [t.npu() for t in (mean, variance, gamma)]
    actual = torch_npu.npu_layernorm_grad(seed.npu(), x.npu(), [16], *operands, torch.zeros_like(gamma).npu())
    exact = [t.double().requires_grad_() for t in (x, gamma)]
    expected = functional.layer_norm(exact[0], [16], exact[1], eps=1e-12 if dtype == torch.float32 else 1e-5)
    expected.backward(seed.double())
    ulps = 4 if dtype == torch.float32 else 8
    for one, leaf in zip(actual, exact, strict=False):
        assert leaf.grad is not None
        compare(one, leaf.grad, dtype, ulps=ulps, scale=4)
    compare(actual[2], seed.double().sum(0), dtype, ulps=4)


def test_layer_norm_of_evaluation() -> None:
    def expected(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return functional.layer_norm(x, weight.shape, weight, bias)

    def actual(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch_npu.npu_layer_norm_eval(x, list(weight.shape), weight, bias)

    for shape in ((5,), (4, 5)):
        weight, bias = random(*shape), random(*shape, seed=1)
        check(actual, random(3, 4, 5), weight, bias, reference=expected, grad=False, ulps=4)
    x = random(6, 4).float()
    compare(torch_npu.npu_layer_norm_eval(x.npu(), [4]), functional.layer_norm(x.double(), [4]), x.dtype)


def test_normalize_batch() -> None:
    x, lengths = random(4, 3, 6).float(), torch.tensor([2, 6, 3, 5], dtype=torch.int32)
    for kind in (0, 1):
        expected = x.double().clone()
        for i, length in enumerate(lengths.tolist()):
            part = x[i, :, :length].double()
            mean, deviation = (
                (part.mean(1, True), part.std(1, keepdim=True)) if kind == 0 else (part.mean(), part.std())
            )
            expected[i] = (x[i].double() - mean) / (deviation + 1e-5)
        actual = torch_npu.npu_normalize_batch(x.npu(), lengths.npu(), kind)
        compare(actual, expected, torch.float32, ulps=8)


IMAGE = drawn(2, 3, 5, 7)
# Operator: inputs, the output's sizes, attributes; words of the message.
UNFIT_CALLS = {
    "L2NormalizeGrad": ([drawn(3), drawn(3), drawn(4)], (3,), {"dim": [0]}, "expected shape"),
    "LRNGrad": ([drawn(2, 3, 4)] * 3, (2, 3, 4), {}, "expected [any, any, any, any]"),
}


@pytest.mark.parametrize("name", UNFIT_CALLS)
def test_a_call_that_does_not_fit_is_refused(name: str) -> None:
    inputs, size, attributes, words = UNFIT_CALLS[name]
    operands = [each.npu() if isinstance(each, torch.Tensor) else each for each in inputs]
    outputs = [torch.zeros(size).npu() for _ in range(8)]
    status, message = launch(name, operands, outputs, **attributes)
    assert status == INVALID_ARGUMENT and words in message and name in message, (status, message)


UNFIT: dict[str, tuple[list[Any], tuple[Any, ...], dict[str, Any], str]] = {
    "L2Normalize": ([drawn(3)], ((3,),), {"axis": [1]}, "axis is 1")
}


@pytest.mark.parametrize("name", UNFIT)
def test_what_does_not_fit_is_refused(name: str) -> None:
    inputs, sizes, attributes, words = UNFIT[name]
    check_refused(name, inputs, sizes, attributes, words)


# Operator: inputs, outputs, attributes and words of its refusal.
REFUSED: dict[str, tuple[list[Any], list[tuple[int, ...]], dict[str, Any], str]] = {
    "InstanceNorm": ([IMAGE, drawn(4), drawn(3)], [(2, 3, 5, 7), (6,), (6,)], {}, "gamma or beta is")
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    inputs, sizes, attributes, words = REFUSED[name]
    check_refused(name, inputs, sizes, attributes, words)
