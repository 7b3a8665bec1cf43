"""GradScaler on the NPU skips the steps and moves the scale as torch's rules on the CPU say, step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

INF, NAN = float("inf"), float("nan")
# What is put into one gradient before each step; 0 leaves it alone. Growth comes after three clean steps in a row.
POISON = (0, 0, 0, INF, 0, 0, NAN, -INF, 0, 0, 0, 0, 0, 0, INF, 0)
OPTIONS = {"init_scale": 2.0**12, "growth_factor": 4.0, "backoff_factor": 0.5, "growth_interval": 3}
Make = Callable[..., Any]
SCALERS: dict[str, Make] = {
    "torch.amp": lambda **options: torch.amp.GradScaler("npu", **options),
    "torch.npu.amp": lambda **options: torch.npu.amp.GradScaler(**options),
}
OPTIMIZERS: dict[str, Make] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.1),
    "adam.for-loop": lambda p: torch.optim.Adam(p, lr=0.1, foreach=False),
}


def poisoned_training(scaler: Any, device: str, make: Make, unscale: bool) -> list[tuple[float, bool, Tensor]]:
    """After each step: the scale, whether the parameters have moved, and the parameters."""
    model = nn.Linear(6, 3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.linspace(-1, 1, parameter.numel()).view_as(parameter))
    model.to(device)
    x = torch.linspace(-2, 2, 24).view(4, 6).to(device)
    optimizer = make(model.parameters())
    history = []
    for poison in POISON:
        before = model.weight.detach().clone()
        optimizer.zero_grad()
        scaler.scale(model(x).square().mean()).backward()
        if poison:
            model.bias.grad[1] = poison
        if unscale:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
        moved = not torch.equal(before, model.weight)
        flat = torch.cat([parameter.detach().flatten().cpu() for parameter in model.parameters()])
        history.append((scaler.get_scale(), moved, flat))
    return history


@pytest.mark.parametrize("unscale", [False, True], ids=["plain", "clipped"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("scaler", SCALERS)
def test_skips_and_scales(scaler: str, optimizer: str, unscale: bool) -> None:
    make = OPTIMIZERS[optimizer]
    expected = poisoned_training(torch.amp.GradScaler("cpu", **OPTIONS), "cpu", make, unscale)
    actual = poisoned_training(SCALERS[scaler](**OPTIONS), "npu", make, unscale)
    assert [moved for _, moved, _ in expected] == [not poison for poison in POISON]
    assert [step[:2] for step in actual] == [step[:2] for step in expected]
    for (_, _, mine), (_, _, theirs) in zip(actual, expected, strict=True):
        assert mine.isfinite().all()
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("scaler", SCALERS)
def test_overflow_of_float16_in_backward_is_found(scaler: str) -> None:
    """No poison: the scale itself makes float16 gradients infinite until it has come down far enough."""
    model = nn.Linear(8, 8).to("npu")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    made = SCALERS[scaler](init_scale=2.0**22)
    x = torch.full((4, 8), 3.0, device="npu")
    scales, start = [], model.weight.detach().clone()
    for _ in range(16):
        optimizer.zero_grad()
        with torch.autocast("npu", torch.float16):
            loss = model(x).float().sum()
        made.scale(loss).backward()
        made.step(optimizer)
        made.update()
        scales.append(made.get_scale())
        assert model.weight.isfinite().all()
    assert not torch.equal(start, model.weight)
    assert scales[0] == 2.0**21  # 2^22 does not fit into float16
    # A weight's gradient is the scale times 4 rows of 3: 2^12 is the first scale with which that stays below 65504.
    assert scales[-1] == 2.0**12


@pytest.mark.parametrize("scaler", SCALERS)
def test_state_can_be_saved_and_loaded(scaler: str) -> None:
    one = SCALERS[scaler](**OPTIONS)
    poisoned_training(one, "npu", OPTIMIZERS["sgd"], False)
    other = SCALERS[scaler]()
    other.load_state_dict(one.state_dict())
    assert other.get_scale() == one.get_scale()
    assert other.state_dict() == one.state_dict()


def test_a_disabled_scaler_changes_nothing() -> None:
    made = torch.amp.GradScaler("npu", enabled=False)
    value = torch.ones(3, device="npu")
    assert made.scale(value) is value
    assert made.get_scale() == 1.0


def test_the_scale_is_applied_on_the_device_that_asks() -> None:
    made = torch.amp.GradScaler("npu", init_scale=8.0)
    first, second = made.scale([torch.ones(2, device="npu:0"), torch.full((2,), 3.0, device="npu:1")])
    assert first.device == torch.device("npu:0")
    assert second.device == torch.device("npu:1")
    assert first.tolist() == [8.0, 8.0]
    assert second.tolist() == [24.0, 24.0]
