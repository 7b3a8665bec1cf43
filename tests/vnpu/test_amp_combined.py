"""combine_grad gives the same training as separate tensors, in one tensor per dtype."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from torchport import amp
from torchport.amp.combined import ELEMENTWISE

DEVICES = ("cpu", "npu")
ARGUMENTS: dict[str, dict[str, Any]] = {
    "SGD": {"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-2},
    "Adadelta": {"lr": 1.0},
    "ASGD": {"lr": 0.1},
}


@pytest.fixture(autouse=True)
def _leave_torch_as_it_was() -> Iterator[None]:
    yield
    amp.initialize(nn.Linear(1, 1), enabled=False)


class Network(nn.Module):
    """Two branches, of which one is used only when asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 5)
        self.norm = nn.BatchNorm1d(5)
        self.last = nn.Linear(5, 2)
        self.aside = nn.Linear(6, 2)

    def forward(self, x: torch.Tensor, aside: bool) -> torch.Tensor:
        result = self.last(self.norm(self.first(x)).relu())
        return result + self.aside(x) if aside else result


def start(make: Callable[..., Any], device: str, **options: Any) -> tuple[Network, Any]:
    torch.manual_seed(1)
    model = Network().to(device)
    groups = [
        {"params": [*model.first.parameters(), *model.norm.parameters()]},
        {"params": [*model.last.parameters(), *model.aside.parameters()], "weight_decay": 0.05},
    ]
    return amp.initialize(model, make(groups), loss_scale=64.0, verbosity=0, **options)  # type: ignore[no-any-return]


def train(model: Network, optimizer: Any, device: str, asides: str = "yyyy", clip: Any = None) -> list[torch.Tensor]:
    for step, aside in enumerate(asides):
        x = torch.linspace(-1, 1 + step, 24).view(4, 6).to(device)
        with amp.scale_loss(model(x, aside == "y").square().mean(), optimizer) as loss:
            loss.backward()
        if clip is not None:
            clip(optimizer)
        optimizer.step()
        optimizer.zero_grad()
    return [parameter.detach().cpu().clone() for parameter in amp.master_params(optimizer)]


def maker(name: str) -> Callable[..., Any]:
    return lambda groups: getattr(torch.optim, name)(groups, **ARGUMENTS.get(name, {"lr": 0.01}))


@pytest.mark.parametrize("level", ["O1", "O2"])
@pytest.mark.parametrize("name", [*ELEMENTWISE, "Rprop"])
def test_every_optimizer_trains_the_same(name: str, level: str) -> None:
    """Rprop is not in the list: its step goes parameter by parameter."""
    separate = start(maker(name), "cpu", opt_level=level)
    combined = start(maker(name), "cpu", opt_level=level, combine_grad=True)
    for want, got in zip(train(*separate, "cpu"), train(*combined, "cpu"), strict=True):
        assert torch.allclose(want, got, rtol=1e-5, atol=1e-6)
    buckets = combined[1]._torchport_amp.buckets
    assert all((bucket.state is not None) == (name in ELEMENTWISE) for bucket in buckets)
    for (key, want), (also, got) in zip(
        separate[1].state_dict()["state"].items(), combined[1].state_dict()["state"].items(), strict=True
    ):
        assert (key, want.keys()) == (also, got.keys())
        for entry in want:
            assert torch.allclose(torch.as_tensor(want[entry]), torch.as_tensor(got[entry]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("level", ["O1", "O2"])
@pytest.mark.parametrize("name", ["SGD", "AdamW"])
def test_trains_the_same_on_the_npu(name: str, level: str) -> None:
    separate = start(maker(name), "npu", opt_level=level)
    combined = start(maker(name), "npu", opt_level=level, combine_grad=True)
    for want, got in zip(train(*separate, "npu"), train(*combined, "npu"), strict=True):
        assert torch.allclose(want, got, rtol=1e-5, atol=1e-6)
    assert all(bucket.state is not None for bucket in combined[1]._torchport_amp.buckets)


@pytest.mark.parametrize("name", ["SGD", "Adam"])
@pytest.mark.parametrize("asides", ["nnnn", "ynyy", "nyny", "yyny"])
def test_parameters_without_gradient_are_left_alone(asides: str, name: str) -> None:
    separate = train(*start(maker(name), "cpu", opt_level="O2"), "cpu", asides)
    combined = train(*start(maker(name), "cpu", opt_level="O2", combine_grad=True), "cpu", asides)
    for want, got in zip(separate, combined, strict=True):
        assert torch.allclose(want, got, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_storage_is_joined(device: str) -> None:
    model, optimizer = start(maker("Adam"), device, opt_level="O2", combine_grad=True)
    train(model, optimizer, device)
    grads, parameters = optimizer.get_optimizer_combined_grads(), optimizer.get_optimizer_combined_params()
    # First group: fp16 weights with masters, and batch norm's own; second group: all fp16.
    assert [tensor.numel() for tensor in parameters] == [6 * 5 + 5, 2 * 5, 5 * 2 + 2 + 6 * 2 + 2]
    assert [tensor.shape for tensor in grads] == [tensor.shape for tensor in parameters]
    first = model.state_dict()["first.weight"]
    assert first.data_ptr() == parameters[0].data_ptr()
    moments = {entry["exp_avg"].untyped_storage().data_ptr() for entry in optimizer.state.values()}
    assert (len(optimizer.state), len(moments)) == (8, 3)


def test_fused_clipping_is_clip_grad_norm() -> None:
    def fused(optimizer: Any) -> None:
        norms.append(optimizer.clip_grad_norm_fused_(0.5))

    def separate(optimizer: Any) -> None:
        norms.append(nn.utils.clip_grad_norm_(amp.master_params(optimizer), 0.5))

    norms: list[torch.Tensor] = []
    want = train(*start(maker("SGD"), "cpu", opt_level="O2"), "cpu", clip=separate)
    got = train(*start(maker("SGD"), "cpu", opt_level="O2", combine_grad=True), "cpu", clip=fused)
    assert torch.allclose(torch.stack(norms[:4]), torch.stack(norms[4:]))
    assert max(norms) > 0.5
    for a, b in zip(want, got, strict=True):
        assert torch.allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("combine", [False, True])
@pytest.mark.parametrize("device", DEVICES)
def test_resumed_training_is_the_uninterrupted_one(device: str, combine: bool) -> None:
    options = {"opt_level": "O2", "combine_grad": combine}
    model, optimizer = start(maker("AdamW"), device, **options)
    train(model, optimizer, device)
    file = io.BytesIO()
    torch.save([model.state_dict(), optimizer.state_dict(), amp.state_dict()], file)
    want = train(model, optimizer, device)

    model, optimizer = start(maker("AdamW"), device, **options)
    train(model, optimizer, device, "y")
    file.seek(0)
    states = torch.load(file, map_location=device)
    for owner, state in zip((model, optimizer, amp), states, strict=True):
        owner.load_state_dict(state)
    got = train(model, optimizer, device)
    assert all(map(torch.equal, want, got))


def test_moved_parameters_are_joined_anew() -> None:
    model, optimizer = start(maker("SGD"), "cpu", opt_level="O1", combine_grad=True)
    train(model, optimizer, "cpu")
    before = model.last.weight.detach().clone()
    model.last.weight.data = model.last.weight.data.clone()
    train(model, optimizer, "cpu", "y")
    assert not torch.equal(before, model.last.weight)
    joined = optimizer.get_optimizer_combined_params()[1]
    assert torch.equal(joined[: before.numel()].view_as(before), model.last.weight)


FUSED = {
    "NpuFusedSGD": ("SGD", {"lr": 0.1, "momentum": 0.9}),
    "NpuFusedAdam": ("Adam", {"lr": 0.01}),
    "NpuFusedAdamW": ("AdamW", {"lr": 0.01}),
    "NpuFusedAdadelta": ("Adadelta", {"lr": 1.0}),
    "NpuFusedRMSprop": ("RMSprop", {"lr": 0.01}),
}


@pytest.mark.parametrize("combine", [False, True])
@pytest.mark.parametrize("level", ["O1", "O2"])
@pytest.mark.parametrize("name", FUSED)
def test_fused_optimizers_of_torch_npu(name: str, level: str, combine: bool) -> None:
    """They join tensors themselves, at their first step, and rely on the gradients' place in memory."""
    import torch_npu

    twin, arguments = FUSED[name]

    def training(make: Any, **options: Any) -> list[torch.Tensor]:
        model, optimizer = start(lambda groups: make(groups, **arguments), "npu", opt_level=level, **options)
        return train(model, optimizer, "npu")

    want = training(getattr(torch.optim, twin))
    got = training(getattr(torch_npu.optim, name), combine_grad=combine)
    for a, b in zip(want, got, strict=True):
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-5)
