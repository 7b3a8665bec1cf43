"""The stand-in for apex against float64: optimizers, normalization, multi-tensor functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from torchport import standins

DEVICES = ("cpu", "npu")
STEPS = 4


@pytest.fixture(autouse=True)
def _installed() -> Iterator[None]:
    standins.install()
    yield
    standins.uninstall()


# --- optimizers: each rule once more, per tensor, in float64 and without torch

Rule = Callable[[int, np.ndarray, np.ndarray, dict[str, Any]], np.ndarray]


def adam(decoupled: bool, lr: float = 0.1, decay: float = 0.02, eps: float = 1e-8, correct: bool = True) -> Rule:
    def rule(step: int, p: np.ndarray, g: np.ndarray, state: dict[str, Any]) -> np.ndarray:
        g = g if decoupled else g + decay * p
        state["m"] = 0.9 * state.get("m", 0) + 0.1 * g
        state["v"] = 0.999 * state.get("v", 0) + 0.001 * g * g
        m = state["m"] / (1 - 0.9**step) if correct else state["m"]
        v = state["v"] / (1 - 0.999**step) if correct else state["v"]
        return p - lr * (m / (np.sqrt(v) + eps) + (decay * p if decoupled else 0))

    return rule


def sgd(nesterov: bool = False, dampening: float = 0.0, late: bool = False, decay: float = 0.02) -> Rule:
    def rule(step: int, p: np.ndarray, g: np.ndarray, state: dict[str, Any]) -> np.ndarray:
        g = g if late else g + decay * p
        state["m"] = 0.9 * state["m"] + (1 - dampening) * g if "m" in state else g
        g = g + 0.9 * state["m"] if nesterov else state["m"]
        return p - 0.1 * (g + decay * p if late else g)

    return rule


def adagrad(decoupled: bool) -> Rule:
    def rule(step: int, p: np.ndarray, g: np.ndarray, state: dict[str, Any]) -> np.ndarray:
        g = g if decoupled else g + 0.02 * p
        state["h"] = state.get("h", 0) + g * g
        return p - 0.1 * (g / (np.sqrt(state["h"]) + 1e-10) + (0.02 * p if decoupled else 0))

    return rule


def lamb(decoupled: bool, decay: float, always: bool, averaging: bool) -> Rule:
    def rule(step: int, p: np.ndarray, g: np.ndarray, state: dict[str, Any]) -> np.ndarray:
        g = g / max(1.0, state["norm"] / 1.0)
        g = g if decoupled else g + decay * p
        state["m"] = 0.9 * state.get("m", 0) + (0.1 if averaging else 1.0) * g
        state["v"] = 0.999 * state.get("v", 0) + 0.001 * g * g
        u = state["m"] / (1 - 0.9**step) / (np.sqrt(state["v"] / (1 - 0.999**step)) + 1e-6)
        u = u + decay * p if decoupled else u
        adaptive = (decay or always) and np.linalg.norm(p) > 0 and np.linalg.norm(u) > 0
        return p - 0.1 * (np.linalg.norm(p) / np.linalg.norm(u) if adaptive else 1.0) * u

    return rule


def novograd(inside: bool, norm_type: int, zero: bool) -> Rule:
    def rule(step: int, p: np.ndarray, g: np.ndarray, state: dict[str, Any]) -> np.ndarray:
        n = np.linalg.norm(g) if norm_type == 2 else np.abs(g).max()
        old = state.get("v", 0.0 if zero else n)
        state["v"] = math.sqrt(0.999 * old**2 + 0.001 * n**2) if norm_type == 2 else 0.999 * old + 0.001 * n
        d = state["v"] / math.sqrt(1 - 0.999**step) + 1e-8
        state["m"] = 0.9 * state.get("m", 0) + 0.1 * (g / d + 0.02 * p if inside else g)
        m = state["m"] / (1 - 0.9**step)
        return p - 0.1 * (m if inside else m / d + 0.02 * p)

    return rule


DECAY = {"lr": 0.1, "weight_decay": 0.02}
OPTIMIZERS: list[tuple[str, dict[str, Any], Rule]] = [
    ("FusedAdam", DECAY, adam(True)),
    ("FusedAdam", {**DECAY, "adam_w_mode": False}, adam(False)),
    ("FusedAdam", {**DECAY, "bias_correction": False}, adam(True, correct=False)),
    ("FusedSGD", {**DECAY, "momentum": 0.9}, sgd()),
    ("FusedSGD", {**DECAY, "momentum": 0.9, "nesterov": True}, sgd(nesterov=True)),
    ("FusedSGD", {**DECAY, "momentum": 0.9, "dampening": 0.3, "wd_after_momentum": True}, sgd(False, 0.3, True)),
    ("FusedAdagrad", DECAY, adagrad(False)),
    ("FusedAdagrad", {**DECAY, "adagrad_w_mode": True}, adagrad(True)),
    ("FusedLAMB", DECAY, lamb(True, 0.02, False, True)),
    ("FusedLAMB", {**DECAY, "adam_w_mode": False, "grad_averaging": False}, lamb(False, 0.02, False, False)),
    ("FusedLAMB", {"lr": 0.1, "weight_decay": 0.0}, lamb(True, 0.0, False, True)),
    ("FusedLAMB", {"lr": 0.1, "weight_decay": 0.0, "use_nvlamb": True}, lamb(True, 0.0, True, True)),
    ("FusedNovoGrad", DECAY, novograd(False, 2, False)),
    ("FusedNovoGrad", {**DECAY, "reg_inside_moment": True, "init_zero": True}, novograd(True, 2, True)),
    ("FusedNovoGrad", {**DECAY, "norm_type": 0}, novograd(False, 0, False)),
]


def inputs() -> tuple[list[np.ndarray], list[list[np.ndarray]]]:
    random = np.random.default_rng(5)
    shapes = [(3, 4), (5,), (2, 2, 2)]
    return [random.normal(size=s) for s in shapes], [[random.normal(size=s) for s in shapes] for _ in range(STEPS)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("name", "arguments", "rule"), OPTIMIZERS, ids=lambda v: v if isinstance(v, str) else None)
def test_optimizer(name: str, arguments: dict[str, Any], rule: Rule, device: str, dtype: torch.dtype) -> None:
    from apex import optimizers

    values, gradients = inputs()
    parameters = [nn.Parameter(torch.tensor(v, dtype=dtype).to(device)) for v in values]
    unused = nn.Parameter(torch.ones(2, device=device))
    optimizer = getattr(optimizers, name)([*parameters, unused], **arguments)
    want = [parameter.detach().cpu().double().numpy() for parameter in parameters]
    states: list[dict[str, Any]] = [{} for _ in want]
    for step, grads in enumerate(gradients, 1):
        optimizer.zero_grad()
        for parameter, grad in zip(parameters, grads, strict=True):
            parameter.grad = torch.tensor(grad, dtype=dtype).to(device)
        rounded = [parameter.grad.cpu().double().numpy() for parameter in parameters]
        norm = math.sqrt(sum((grad**2).sum() for grad in rounded))
        want = [
            rule(step, p, g, state.update(norm=norm) or state)
            for p, g, state in zip(want, rounded, states, strict=True)
        ]
        optimizer.step()
    tolerance = 1e-5 if dtype == torch.float32 else 5e-3
    for parameter, value in zip(parameters, want, strict=True):
        assert parameter.dtype == dtype
        assert np.allclose(parameter.detach().cpu().double().numpy(), value, rtol=tolerance, atol=tolerance)
    assert torch.equal(unused.cpu(), torch.ones(2))


def test_optimizer_refuses_what_apex_refuses() -> None:
    from apex.optimizers import FusedAdam, FusedLAMB, FusedSGD

    weight = nn.Parameter(torch.ones(3))
    for make in (FusedAdam, FusedLAMB):
        with pytest.raises(RuntimeError, match="AMSGrad"):
            make([weight], amsgrad=True)
    with pytest.raises(ValueError, match="Nesterov"):
        FusedSGD([weight], lr=0.1, nesterov=True)
    weight.grad = torch.ones(3).to_sparse()
    with pytest.raises(RuntimeError, match="sparse"):
        FusedAdam([weight]).step()


def test_optimizer_state_survives_a_checkpoint() -> None:
    from apex.optimizers import FusedAdam

    def run(steps: int, state: Any = None) -> tuple[torch.Tensor, Any]:
        weight = nn.Parameter(torch.ones(3) if state is None else state[0].clone())
        optimizer = FusedAdam([weight], lr=0.1)
        if state is not None:
            optimizer.load_state_dict(state[1])
        for _ in range(steps):
            weight.grad = weight.detach() ** 2
            optimizer.step()
        return weight.detach(), optimizer.state_dict()

    assert torch.equal(run(4)[0], run(2, run(2))[0])


def test_optimizers_of_the_ascend_build_are_torch_npus() -> None:
    import torch_npu
    from apex.optimizers import NpuFusedLamb, NpuFusedSGD

    assert (NpuFusedSGD, NpuFusedLamb) == (torch_npu.optim.NpuFusedSGD, torch_npu.optim.NpuFusedLamb)


def test_fused_adam_under_amp_with_combined_gradients() -> None:
    from apex import amp
    from apex.optimizers import FusedAdam

    def train(combine: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)).to("npu")
        optimizer = FusedAdam(model.parameters(), lr=0.01)
        amp.initialize(model, optimizer, opt_level="O2", combine_grad=combine, verbosity=0)
        for _ in range(3):
            with amp.scale_loss(model(torch.ones(2, 4, device="npu")).square().mean() * 0.01, optimizer) as loss:
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        assert amp._amp_state.loss_scalers[0].loss_scale() == 2.0**16
        assert (amp._amp_state.opt_properties.master_weights, amp._amp_state.opt_properties.enabled) == (True, True)
        assert all((b.state is not None) for b in optimizer._torchport_amp.buckets)
        return [parameter.detach().cpu() for parameter in amp.master_params(optimizer)]

    for want, got in zip(train(False), train(True), strict=True):
        assert torch.allclose(want, got, atol=1e-6)


def test_larc_scales_gradients() -> None:
    from apex.parallel import LARC

    for clip in (True, False):
        weight = nn.Parameter(torch.tensor([3.0, 4.0]))
        still = nn.Parameter(torch.zeros(2))
        optimizer = LARC(torch.optim.SGD([weight, still], lr=0.5, weight_decay=0.1), 0.02, clip=clip)
        weight.grad, still.grad = torch.tensor([0.6, 0.8]), torch.ones(2)
        optimizer.step()
        rate = 0.02 * 5 / (1 + 0.1 * 5 + 1e-8)
        rate = min(rate / 0.5, 1) if clip else rate
        want = torch.tensor([3.0 - 0.5 * rate * (0.6 + 0.3), 4.0 - 0.5 * rate * (0.8 + 0.4)])
        assert torch.allclose(weight, want)
        assert torch.allclose(still, torch.full((2,), -0.5))
        assert optimizer.param_groups[0]["weight_decay"] == 0.1


# --- normalization

NORMS = ["FusedLayerNorm", "MixedFusedLayerNorm", "FusedRMSNorm", "MixedFusedRMSNorm"]


def reference_norm(name: str, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    centred = x - x.mean((-2, -1), keepdim=True) if "Layer" in name else x
    normal = centred / (centred.square().mean((-2, -1), keepdim=True) + eps).sqrt()
    return normal * weight + bias if "Layer" in name else normal * weight


@pytest.mark.parametrize("dtypes", [("float32", "float32"), ("float16", "float32"), ("float16", "float16")])
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", NORMS)
def test_norm(name: str, device: str, dtypes: tuple[str, str]) -> None:
    from apex import normalization

    given, kept = (getattr(torch, dtype) for dtype in dtypes)
    torch.manual_seed(2)
    layer = getattr(normalization, name)((3, 4), eps=1e-5)
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    x = torch.randn(5, 2, 3, 4).to(given)
    layer = layer.to(kept).to(device)
    actual = x.to(device).requires_grad_()
    output = layer(actual)
    assert output.dtype == (kept if name.startswith("Mixed") else given)
    direction = torch.linspace(-1, 1, x.numel()).view_as(x)
    (output.float() * direction.to(device)).sum().backward()

    exact = [p.detach().cpu().double().requires_grad_() for p in layer.parameters()]
    leaf = x.detach().double().requires_grad_()
    want = reference_norm(name, leaf, exact[0], exact[-1], 1e-5)
    (want * direction.double()).sum().backward()
    tolerance = 2e-5 if given == torch.float32 else 2e-2
    for got, right in [(output, want), (actual.grad, leaf.grad)] + [
        (parameter.grad, value.grad) for parameter, value in zip(layer.parameters(), exact, strict=True)
    ]:
        assert torch.allclose(got.detach().cpu().double(), right, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("device", DEVICES)
def test_norm_without_parameters(device: str) -> None:
    from apex.normalization import FusedLayerNorm, FusedRMSNorm, MixedFusedLayerNorm

    x = torch.randn(4, 6)
    for module in (FusedLayerNorm, FusedRMSNorm):
        layer = module(6, elementwise_affine=False)
        assert list(layer.parameters()) == []
        want = reference_norm(module.__name__, x.double()[:, None], torch.ones(6), torch.zeros(6), 1e-5)[:, 0]
        assert torch.allclose(layer(x.to(device)).cpu().double(), want, atol=1e-5)
    with pytest.raises(RuntimeError, match="elementwise_affine"):
        MixedFusedLayerNorm(6, elementwise_affine=False)


# --- parallel, amp_C


def test_convert_syncbn_model() -> None:
    from apex.parallel import SyncBatchNorm, convert_syncbn_model

    model = nn.Sequential(nn.Conv2d(2, 3, 1), nn.Sequential(nn.BatchNorm2d(3), nn.InstanceNorm2d(3))).eval()
    weight = model[1][0].weight
    x = torch.randn(2, 2, 4, 4)
    want = model(x)
    converted = convert_syncbn_model(model)
    assert isinstance(converted[1][0], SyncBatchNorm) and isinstance(converted[1][1], nn.InstanceNorm2d)
    assert converted[1][0].weight is weight
    assert torch.allclose(converted(x), want)
    last = SyncBatchNorm(3, channel_last=True, fuse_relu=True).eval()
    y = torch.randn(2, 4, 4, 3)
    assert torch.allclose(
        last(y, y), (2 * y / math.sqrt(1 + 1e-5) - y * (1 / math.sqrt(1 + 1e-5) - 1)).relu(), atol=1e-4
    )


@pytest.mark.parametrize("device", DEVICES)
def test_multi_tensor_functions(device: str) -> None:
    import amp_C
    import apex_C
    from apex.multi_tensor_apply import multi_tensor_applier

    x = [torch.randn(3, 2), torch.randn(4)]
    there = [value.to(device) for value in x]
    flag = torch.zeros(1, dtype=torch.int, device=device)
    out = [torch.zeros_like(value, dtype=torch.float16) for value in there]
    multi_tensor_applier(amp_C.multi_tensor_scale, flag, [there, out], 0.5)
    assert all(torch.equal(a.cpu(), (b * 0.5).half()) for a, b in zip(out, x, strict=True))
    sums = [torch.zeros_like(value) for value in there]
    multi_tensor_applier(amp_C.multi_tensor_axpby, flag, [there, there, sums], 2.0, -0.5, -1)
    assert all(torch.allclose(a.cpu(), 1.5 * b) for a, b in zip(sums, x, strict=True))
    total, each = multi_tensor_applier(amp_C.multi_tensor_l2norm, flag, [there], True)
    want = [value.double().norm().item() for value in x]
    assert total.item() == pytest.approx(math.hypot(*want), rel=1e-6) and each.tolist() == pytest.approx(want, rel=1e-6)
    assert flag.item() == 0
    there[0][0, 0] = float("inf")
    multi_tensor_applier(amp_C.multi_tensor_scale, flag, [there, out], 0.5)
    assert flag.item() == 1
    flat = apex_C.flatten(sums)
    assert [piece.shape for piece in apex_C.unflatten(flat, sums)] == [value.shape for value in x]
