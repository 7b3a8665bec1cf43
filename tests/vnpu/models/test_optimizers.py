"""Every optimizer of torch, in each form it has, and those of torch_npu: parameters against float64."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
import torch_npu
from torch import Tensor, nn
from torch.optim import Optimizer

from models.reference_optimizers import AdamP, BertAdam, Lamb, RMSpropTF

STEPS = 6
Make = Callable[[Iterable[Tensor]], Optimizer]

# torch's own, each with the options that lead to different arithmetic.
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "Adadelta": [{"lr": 0.5}, {"lr": 0.5, "weight_decay": 0.1, "maximize": True}],
    "Adafactor": [{"lr": 0.05}],
    "Adagrad": [{"lr": 0.05}, {"lr": 0.05, "lr_decay": 0.1, "weight_decay": 0.1}],
    "Adam": [{"lr": 0.05}, {"lr": 0.05, "weight_decay": 0.1}, {"lr": 0.05, "amsgrad": True}],
    "AdamW": [{"lr": 0.05}, {"lr": 0.05, "amsgrad": True, "maximize": True}],
    "Adamax": [{"lr": 0.05}, {"lr": 0.05, "weight_decay": 0.1}],
    "ASGD": [{"lr": 0.05}, {"lr": 0.05, "weight_decay": 0.1, "t0": 2}],
    "LBFGS": [{"lr": 0.5, "max_iter": 4}, {"max_iter": 4, "line_search_fn": "strong_wolfe"}],
    "Muon": [{"lr": 0.05}],
    "NAdam": [{"lr": 0.05}, {"lr": 0.05, "weight_decay": 0.1, "decoupled_weight_decay": True}],
    "RAdam": [{"lr": 0.05}, {"lr": 0.05, "weight_decay": 0.1}],
    "RMSprop": [{"lr": 0.05}, {"lr": 0.05, "centered": True, "momentum": 0.9, "weight_decay": 0.1}],
    "Rprop": [{"lr": 0.05}],
    "SGD": [
        {"lr": 0.05},
        {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.1},
        {"lr": 0.05, "momentum": 0.9, "nesterov": True},
    ],
}
WITHOUT_A_TEST = {"SparseAdam": "takes sparse gradients only, which torch_npu does not offer"}


def forms(cls: type[Optimizer]) -> list[dict[str, bool]]:
    accepted = inspect.signature(cls).parameters
    return (
        [{}]
        + [{form: True} for form in ("foreach", "fused") if form in accepted]
        + ([{"foreach": False}] if "foreach" in accepted else [])
    )


TORCH = [
    pytest.param(name, {**options, **form}, id="-".join([name, *map(str, (position, *form, *form.values()))]))
    for name, variants in OPTIONS.items()
    for position, options in enumerate(variants)
    for form in forms(getattr(torch.optim, name))
    if not (name == "SGD" and form.get("fused") and "momentum" not in options)  # see below
]

# torch_npu's fused optimizers, each with what it has to equal.
FUSED: dict[str, tuple[Make, dict[str, Any]]] = {
    "NpuFusedSGD": (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.1, "nesterov": True}),
    "NpuFusedAdam": (torch.optim.Adam, {"lr": 0.05, "weight_decay": 0.1, "amsgrad": True}),
    "NpuFusedAdamW": (torch.optim.AdamW, {"lr": 0.05, "weight_decay": 0.1}),
    "NpuFusedAdadelta": (torch.optim.Adadelta, {"lr": 0.5, "weight_decay": 0.1}),
    "NpuFusedRMSprop": (torch.optim.RMSprop, {"lr": 0.05, "momentum": 0.9, "centered": True}),
    "NpuFusedLamb": (Lamb, {"lr": 0.05, "weight_decay": 0.1}),
    "NpuFusedAdamP": (AdamP, {"lr": 0.05, "weight_decay": 0.1, "nesterov": True}),
    "NpuFusedBertAdam": (BertAdam, {"lr": 0.05, "weight_decay": 0.1, "max_grad_norm": 1.0}),
    "NpuFusedRMSpropTF": (RMSpropTF, {"lr": 0.05, "momentum": 0.9}),
}


def shapes(matrices_only: bool) -> list[tuple[int, ...]]:
    return [(6, 5), (4, 9)] if matrices_only else [(6, 5), (7,), (2, 3, 4), (1,)]


def train(make: Make, device: str, dtype: torch.dtype, matrices_only: bool) -> list[Tensor]:
    """What the parameters have moved after STEPS steps down a fixed, curved landscape."""
    generator = torch.Generator().manual_seed(5)
    parameters, targets = [], []
    for shape in shapes(matrices_only):
        parameters.append(nn.Parameter(torch.randn(shape, generator=generator).to(device, dtype)))
        targets.append(torch.randn(shape, generator=generator).to(device, dtype))
    start = [parameter.detach().clone() for parameter in parameters]
    optimizer = make(parameters)

    def closure() -> Tensor:
        optimizer.zero_grad()
        pairs = zip(parameters, targets, strict=True)
        loss = torch.stack([((p - t) ** 2 + 0.3 * (p - t) ** 4).sum() for p, t in pairs]).sum()
        loss.backward()
        return loss

    for _ in range(STEPS):
        if isinstance(optimizer, torch.optim.LBFGS):
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()
    return [(p.detach() - s).cpu().double() for p, s in zip(parameters, start, strict=True)]


def check(mine: Make, reference: Make, matrices_only: bool = False, tolerance: float = 2e-5) -> None:
    actual = train(mine, "npu", torch.float32, matrices_only)
    expected = train(reference, "cpu", torch.float64, matrices_only)
    for moved, true in zip(actual, expected, strict=True):
        assert true.abs().max() > 1e-3
        torch.testing.assert_close(moved, true, rtol=tolerance, atol=tolerance * true.abs().max().item())


def test_every_optimizer_of_torch_is_covered() -> None:
    every = {
        name
        for name, value in vars(torch.optim).items()
        if isinstance(value, type) and issubclass(value, Optimizer) and value is not Optimizer
    }
    assert every == OPTIONS.keys() | WITHOUT_A_TEST.keys()


def test_every_fused_optimizer_of_torch_npu_is_covered() -> None:
    every = {name for name in vars(torch_npu.optim) if name.startswith("NpuFused")}
    assert every - {"NpuFusedOptimizerBase"} == FUSED.keys()


@pytest.mark.parametrize(("name", "options"), TORCH)
def test_torch(name: str, options: dict[str, Any]) -> None:
    cls = getattr(torch.optim, name)
    plain = {key: value for key, value in options.items() if key not in ("foreach", "fused")}
    matrices_only = name == "Muon"
    # Muon's iteration computes in bfloat16 on every device.
    tolerance = 2e-2 if name == "Muon" else 2e-5
    check(lambda p: cls(p, **options), lambda p: cls(p, **plain), matrices_only, tolerance)


def test_fused_sgd_without_momentum_is_refused_by_torch_npu() -> None:
    with pytest.raises(RuntimeError, match="momentum must be positive"):
        train(lambda p: torch.optim.SGD(p, lr=0.05, fused=True), "npu", torch.float32, matrices_only=False)


@pytest.mark.parametrize("name", FUSED)
def test_torch_npu_fused(name: str) -> None:
    reference, options = FUSED[name]
    cls = getattr(torch_npu.optim, name)
    check(lambda p: cls(p, **options), lambda p: reference(p, **options))
