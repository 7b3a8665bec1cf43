"""Optimizers of torch and torch_npu, whole steps of them, and the loss scale."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from aclnn import INVALID_ARGUMENT, NULL_ARGUMENT, first_phase, run
from oracle import FLOATS, compare, random

SHAPES = ((4, 3), (5,), (2, 2, 3))


def train(
    optimizer: Callable[..., Any], device: str, dtype: torch.dtype, steps: int = 4, strided: bool = True, **options: Any
) -> list[torch.Tensor]:
    """Parameters after some steps; the gradient of the first one is strided."""
    parameters = [torch.nn.Parameter(random(*shape, seed=i).to(dtype).to(device)) for i, shape in enumerate(SHAPES)]
    chosen = optimizer(parameters, **options)
    for step in range(steps):
        for i, parameter in enumerate(parameters):
            gradient = random(*parameter.shape, seed=100 * step + i).to(dtype)
            if strided and gradient.dim() == 2:
                gradient = gradient.t().contiguous().t()
            if parameter.grad is None:
                parameter.grad = gradient.to(device)
            else:  # as backward does: torch_npu's fused optimizers have moved it into one buffer
                parameter.grad.copy_(gradient)
        chosen.step()
    return [parameter.detach() for parameter in parameters]


def follows_float64(optimizer: Callable[..., Any], strided: bool = True, **options: Any) -> None:
    exact = train(optimizer, "cpu", torch.float64, **{**options, "fused": None} if "fused" in options else options)
    for actual, expected in zip(train(optimizer, "npu", torch.float32, strided=strided, **options), exact, strict=True):
        compare(actual, expected, torch.float32, ulps=32)


@pytest.mark.parametrize("foreach", [True, False])
@pytest.mark.parametrize(
    ("optimizer", "options"),
    [
        ("SGD", {"lr": 0.1}),
        ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 1e-2}),
        ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.1, "maximize": True}),
        ("Adam", {"lr": 1e-2}),
        ("Adam", {"lr": 1e-2, "amsgrad": True, "weight_decay": 1e-2}),
        ("AdamW", {"lr": 1e-2}),
        ("AdamW", {"lr": 1e-2, "maximize": True}),
        ("NAdam", {"lr": 1e-2}),
        ("RAdam", {"lr": 1e-2}),
        ("Adamax", {"lr": 1e-2}),
        ("Adagrad", {"lr": 1e-2}),
        ("Adadelta", {"lr": 1.0}),
        ("RMSprop", {"lr": 1e-2, "momentum": 0.5, "centered": True}),
        ("Rprop", {"lr": 1e-2}),
        ("ASGD", {"lr": 1e-2}),
    ],
)
def test_torch_optimizers(optimizer: str, options: dict[str, Any], foreach: bool) -> None:
    follows_float64(getattr(torch.optim, optimizer), foreach=foreach, **options)


@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("maximize", [False, True])
def test_fused_adamw(amsgrad: bool, maximize: bool) -> None:
    follows_float64(torch.optim.AdamW, lr=1e-2, fused=True, amsgrad=amsgrad, maximize=maximize)


@pytest.mark.parametrize(
    "options", [{}, {"nesterov": True}, {"weight_decay": 1e-2, "dampening": 0.5}, {"maximize": True}]
)
def test_fused_sgd(options: dict[str, Any]) -> None:
    if options.get("nesterov"):
        options = {**options, "dampening": 0}
    follows_float64(torch.optim.SGD, strided=False, lr=0.1, momentum=0.9, fused=True, **options)


def test_fused_sgd_unscales_its_gradients() -> None:
    parameter, grad, buffer = (torch.full((3, 2), v, device="npu")[:, 0] for v in (1.0, 8.0, 0.0))
    scale = torch.tensor([4.0], device="npu")
    run("aclnnFusedSgd", [parameter], [grad], [buffer], scale, 0.0, 0.5, 0.1, 0.0, False, False, True)
    assert grad.cpu().tolist() == [2.0] * 3 and buffer.cpu().tolist() == [2.0] * 3
    assert parameter.cpu().tolist() == pytest.approx([0.8] * 3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_fused_adamw_rounds_once(dtype: torch.dtype) -> None:
    actual = train(torch.optim.AdamW, "npu", dtype, steps=1, lr=1e-2, fused=True)
    exact = train(torch.optim.AdamW, "cpu", torch.float64, steps=1, lr=1e-2)
    for a, e in zip(actual, exact, strict=True):
        compare(a, e, dtype, ulps=3)


def test_fused_adamw_takes_narrow_gradients() -> None:
    parameter, mean, square = (torch.full((3,), v, device="npu") for v in (1.0, 0.0, 0.0))
    grad = torch.full((3,), 0.5, dtype=torch.float16, device="npu")
    step = torch.tensor([0], device="npu")
    run("aclnnApplyAdamWV2", parameter, mean, square, None, grad, step, 0.1, 0.9, 0.99, 0.0, 1e-8, False, False)
    assert parameter.tolist() == pytest.approx([0.9] * 3, rel=1e-6)
    assert mean.tolist() == pytest.approx([0.05] * 3) and square.tolist() == pytest.approx([0.0025] * 3)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("NpuFusedSGD", {"lr": 0.1, "momentum": 0.9}),
        ("NpuFusedAdam", {"lr": 1e-2}),
        ("NpuFusedAdamW", {"lr": 1e-2}),
        ("NpuFusedAdadelta", {"lr": 1.0}),
        ("NpuFusedRMSprop", {"lr": 1e-2}),
    ],
)
def test_fused_optimizers_of_torch_npu(name: str, options: dict[str, Any]) -> None:
    import torch_npu

    exact = train(getattr(torch.optim, name.removeprefix("NpuFused")), "cpu", torch.float64, **options)
    actual = train(getattr(torch_npu.optim, name), "npu", torch.float32, strided=False, **options)
    for a, e in zip(actual, exact, strict=True):
        compare(a, e, torch.float32, ulps=64)


@pytest.mark.parametrize("foreach", [True, False])
def test_clip_grad_norm(foreach: bool) -> None:
    results = {}
    for device, dtype in (("npu", torch.float32), ("cpu", torch.float64)):
        parameters = [torch.nn.Parameter(torch.zeros(*s, dtype=dtype, device=device)) for s in SHAPES]
        for i, parameter in enumerate(parameters):
            parameter.grad = random(*parameter.shape, seed=i).to(device, dtype)
        norm = torch.nn.utils.clip_grad_norm_(parameters, 1.5, foreach=foreach)
        results[device] = [norm, *(parameter.grad for parameter in parameters)]
    for actual, expected in zip(results["npu"], results["cpu"], strict=True):
        compare(actual, expected, torch.float32, ulps=8)


# --- loss scale ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("bad", [None, float("inf"), float("-inf"), float("nan")])
def test_unscale(dtype: torch.dtype, bad: float | None) -> None:
    first = random(3, 4).to(dtype)
    if bad is not None:
        first[1, 2] = bad
    grads = [first.to("npu"), random(5).to("npu", dtype)]
    found, inverse = torch.zeros(1, device="npu"), torch.full((1,), 0.25, device="npu")
    torch._amp_foreach_non_finite_check_and_unscale_(grads, found, inverse)
    assert found.item() == (0.0 if bad is None else 1.0)
    compare(grads[1], random(5).to(dtype).double() * 0.25, dtype, ulps=1)
    compare(grads[0], first.double() * 0.25, dtype, ulps=1)


def test_found_inf_is_never_cleared() -> None:
    found, inverse = torch.ones(1, device="npu"), torch.ones(1, device="npu")
    torch._amp_foreach_non_finite_check_and_unscale_([torch.ones(3, device="npu")], found, inverse)
    assert found.item() == 1.0


def test_scale_follows_torchs_rule() -> None:
    overflows = [0, 0, 1, 0, 0, 0, 1, 1, 0, 0]
    results = {}
    for device in ("npu", "cpu"):
        scale, tracker = (torch.full((1,), 2.0**126, device=device), torch.zeros(1, dtype=torch.int32, device=device))
        results[device] = []
        for overflow in overflows:
            found = torch.full((1,), float(overflow), device=device)
            torch._amp_update_scale_(scale, tracker, found, 4.0, 0.5, 2)
            results[device].append((scale.item(), tracker.item()))
    assert results["npu"] == results["cpu"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("overflow", "scale", "tracker"), [(0.0, 8.0, 2), (1.0, 4.0, 0)])
def test_scale_goes_into_tensors_of_its_own(overflow: float, scale: float, tracker: int, dtype: torch.dtype) -> None:
    """CANN's operator has outputs beside its inputs; torch_npu passes the same for both."""
    one = torch.ones(1, device="npu", dtype=dtype)
    before = (8 * one, torch.ones(1, dtype=torch.int32, device="npu"), overflow * one)
    after = (torch.zeros_like(before[0]), torch.zeros_like(before[1]))
    run("aclnnAmpUpdateScale", *before, 2.0, 0.5, 5, *after)
    assert (before[0].item(), before[1].item()) == (8.0, 1)
    assert (after[0].item(), after[1].item()) == (scale, tracker)


@pytest.mark.parametrize("which", ["torch.amp", "torch.npu.amp"])
def test_grad_scaler_skips_and_scales(which: str) -> None:
    results = {}
    for device in ("npu", "cpu"):
        if device == "cpu" or which == "torch.amp":
            scaler = torch.amp.GradScaler(device, init_scale=64.0, growth_interval=2)
        else:
            scaler = torch.npu.amp.GradScaler(init_scale=64.0, growth_interval=2)
        parameter = torch.nn.Parameter(torch.ones(3, device=device))
        optimizer = torch.optim.SGD([parameter], lr=0.1)
        results[device] = []
        for step in range(8):
            optimizer.zero_grad()
            factor = float("inf") if step in (2, 5, 6) else 0.5
            scaler.scale((parameter * factor).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            results[device].append((scaler.get_scale(), parameter.tolist()))
    for (scale, values), (expected_scale, expected) in zip(results["npu"], results["cpu"], strict=True):
        assert scale == expected_scale and values == pytest.approx(expected)


def test_float_status_is_never_raised() -> None:
    """The device keeps infinities (INF_NAN mode); the status register belongs to the saturation mode."""
    import torch_npu

    overflow = torch.full((3,), 60000.0, dtype=torch.float16, device="npu") * 2
    status = torch_npu.npu_alloc_float_status(overflow)
    assert overflow.isinf().all() and status.tolist() == [0.0] * 8
    assert torch_npu.npu_get_float_status(status).tolist() == [0] * 8
    torch_npu.npu_clear_float_status(status)
    torch.npu.synchronize()


def test_refusals() -> None:
    x, one = torch.ones(3, device="npu"), torch.ones(1, device="npu")
    tail = (0.1, 0.9, 0.99, 0.0, 1e-8)
    status, message = first_phase("aclnnApplyAdamWV2", x, x, x, None, x, one, *tail, True, False)
    assert status == NULL_ARGUMENT and "amsgrad=true" in message
    status, message = first_phase("aclnnApplyAdamWV2", x, one, x, None, x, one, *tail, False, False)
    assert status == INVALID_ARGUMENT and "parameter mRef has shape [1], expected [3]" in message
    status, message = first_phase("aclnnApplyAdamWV2", x, x, x, None, x, x, *tail, False, False)
    assert status == INVALID_ARGUMENT and "parameter step" in message and "one element" in message
    status, message = first_phase("aclnnForeachNonFiniteCheckAndUnscale", [x, x.half()], one, one)
    assert status == INVALID_ARGUMENT and "parameter scaledGrads has dtype float16" in message
    status, message = first_phase("aclnnAmpUpdateScale", one, one, one, 2.0, 0.5, 2, one, one)
    assert status == INVALID_ARGUMENT and "parameter growthTracker has dtype float32, allowed are int32" in message
    status, message = first_phase("aclnnFusedSgd", [x], [one], [], None, 0.0, 0.9, 0.1, 0.0, False, False, True)
    assert status == INVALID_ARGUMENT and "parameter gradsRef" in message


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("nesterov", [False, True])
def test_adam_with_hyperparameters_in_device_memory(dtype: torch.dtype, nesterov: bool) -> None:
    var, m, grad = (random(3, 4, seed=i).to(dtype) for i in range(3))
    v = random(3, 4, low=0.1, seed=3).to(dtype)
    powers, lr, beta1, beta2, eps = (0.9**3, 0.99**3), 0.01, 0.9, 0.99, 1e-6
    numbers = [torch.tensor([n]).npu() for n in (*powers, lr, beta1, beta2, eps)]
    device = [t.npu() for t in (var, m, v)]
    run("aclnnApplyAdam", *device, *numbers, grad.npu(), False, nesterov)
    g = grad.double()
    mean, square = m.double() * beta1 + g * (1 - beta1), v.double() * beta2 + g**2 * (1 - beta2)
    step = mean * beta1 + g * (1 - beta1) if nesterov else mean
    rate = lr * (1 - powers[1]) ** 0.5 / (1 - powers[0])
    for actual, expected in zip(
        device, (var.double() - rate * step / (square.sqrt() + eps), mean, square), strict=True
    ):
        compare(actual, expected, dtype, ulps=8)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("maximize", [False, True])
def test_adamw_with_hyperparameters_in_device_memory(dtype: torch.dtype, amsgrad: bool, maximize: bool) -> None:
    var, m, grad = (random(3, 4, seed=i).to(dtype) for i in range(3))
    v, top = random(3, 4, low=0.1, seed=3).to(dtype), random(3, 4, low=0.1, seed=4).to(dtype)
    powers, lr, decay, beta1, beta2, eps = (0.9**3, 0.99**3), 0.01, 0.1, 0.9, 0.99, 1e-6
    numbers = [torch.tensor([n], dtype=dtype).npu() for n in (*powers, lr, decay, beta1, beta2, eps)]
    *powers, lr, decay, beta1, beta2, eps = (number.double().item() for number in numbers)  # as the dtype has them
    device = [t.npu() for t in (var, m, v)]
    run("aclnnApplyAdamW", *device, *numbers, grad.npu(), top.npu() if amsgrad else None, amsgrad, maximize)
    g = -grad.double() if maximize else grad.double()
    mean, square = m.double() * beta1 + g * (1 - beta1), v.double() * beta2 + g**2 * (1 - beta2)
    used = torch.maximum(square, top.double()) if amsgrad else square
    step = mean / (1 - powers[0] * beta1) / ((used / (1 - powers[1] * beta2)).sqrt() + eps)
    expected = var.double() - lr * step - lr * decay * var.double()
    for actual, wanted in zip(device, (expected, mean, square), strict=True):
        compare(actual, wanted, dtype, ulps=8)
