"""amp.scale_loss: gradients come out unscaled, overflow skips the step, and the scale moves as apex specifies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from torchport import amp
from torchport.amp.scaler import LossScaler

INF, NAN = float("inf"), float("nan")
DEVICES = ("cpu", "npu")
LEVELS = ("O1", "O2", "O3")


@pytest.fixture(autouse=True)
def _leave_torch_as_it_was() -> Iterator[None]:
    yield
    amp.initialize(nn.Linear(1, 1), enabled=False)


def linear(device: str, seed: int = 0) -> nn.Linear:
    torch.manual_seed(seed)
    return nn.Linear(6, 3).to(device)


def gradients64(model: nn.Linear, *losses: Any) -> list[torch.Tensor]:
    """The sum of the losses' gradients in float64."""
    twin = nn.Linear(6, 3).double()
    twin.load_state_dict({name: value.detach().cpu().double() for name, value in model.state_dict().items()})
    sum(loss(twin, torch.float64, "cpu") for loss in losses).backward()
    return [twin.weight.grad, twin.bias.grad]


def square(factor: float = 1.0) -> Any:
    def loss(model: nn.Module, dtype: torch.dtype, device: str) -> torch.Tensor:
        x = torch.linspace(-1, 1, 24, dtype=dtype).view(4, 6).to(device)
        return factor * model(x).to(dtype if dtype == torch.float64 else torch.float32).square().mean()

    return loss


def backward(loss: Any, model: nn.Module, optimizer: Any, device: str, **options: Any) -> None:
    with amp.scale_loss(loss(model, torch.float32, device), optimizer, **options) as scaled:
        scaled.backward()


@pytest.mark.parametrize("combine", [False, True])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("device", DEVICES)
def test_gradients_are_those_of_float64(device: str, level: str, combine: bool) -> None:
    model = linear(device)
    want = gradients64(model, square())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    amp.initialize(model, optimizer, opt_level=level, loss_scale=1024.0, combine_grad=combine, verbosity=0)
    backward(square(), model, optimizer, device)
    for parameter, grad in zip(amp.master_params(optimizer), want, strict=True):
        assert torch.allclose(parameter.grad.cpu().double(), grad, rtol=4e-3, atol=1e-3)


@pytest.mark.parametrize("combine", [False, True])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("device", DEVICES)
def test_gradients_accumulate_over_blocks(device: str, level: str, combine: bool) -> None:
    model = linear(device)
    want = gradients64(model, square(), square(2.0), square(0.5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    amp.initialize(
        model, optimizer, opt_level=level, loss_scale="dynamic", num_losses=3, combine_grad=combine, verbosity=0
    )
    amp.load_state_dict({f"loss_scaler{i}": {"loss_scale": 2.0**i * 256, "unskipped": 0} for i in range(3)})
    backward(square(), model, optimizer, device)
    backward(square(2.0), model, optimizer, device, loss_id=1)
    backward(square(0.5), model, optimizer, device, loss_id=2)
    for parameter, grad in zip(amp.master_params(optimizer), want, strict=True):
        assert torch.allclose(parameter.grad.cpu().double(), grad, rtol=8e-3, atol=2e-3)
    optimizer.zero_grad()
    assert [p.grad for p in amp.master_params(optimizer)] == [None, None]


@pytest.mark.parametrize("combine", [False, True])
def test_delayed_unscaling_adds_scaled_gradients(combine: bool) -> None:
    model = linear("cpu")
    want = gradients64(model, square(), square())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    amp.initialize(model, optimizer, opt_level="O2", loss_scale=64.0, combine_grad=combine, verbosity=0)
    backward(square(), model, optimizer, "cpu", delay_unscale=True)
    backward(square(), model, optimizer, "cpu")
    for parameter, grad in zip(amp.master_params(optimizer), want, strict=True):
        assert torch.allclose(parameter.grad.double(), grad, rtol=4e-3, atol=1e-3)


def test_two_optimizers_share_a_loss() -> None:
    models = [linear("cpu", seed) for seed in (0, 1)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    want = [gradients64(model, square()) for model in models]
    amp.initialize(models, optimizers, opt_level="O2", loss_scale=64.0, verbosity=0)
    loss = sum(square()(model, torch.float32, "cpu") for model in models)
    with amp.scale_loss(loss, optimizers) as scaled:
        scaled.backward()
    for optimizer, gradients in zip(optimizers, want, strict=True):
        for parameter, grad in zip(amp.master_params(optimizer), gradients, strict=True):
            assert torch.allclose(parameter.grad.double(), grad, rtol=4e-3, atol=1e-3)


@pytest.mark.parametrize("combine", [False, True])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("device", DEVICES)
def test_overflow_skips_the_step_and_halves_the_scale(
    device: str, level: str, combine: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    model = linear(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.125, momentum=0.9)
    amp.initialize(model, optimizer, opt_level=level, loss_scale="dynamic", combine_grad=combine)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 100)
    history = []
    for poison in (1.0, INF, 1.0, NAN, INF, 1.0):
        before = [parameter.detach().clone() for parameter in model.parameters()]
        backward(square(poison), model, optimizer, device)
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        moved = any(not torch.equal(*pair) for pair in zip(before, model.parameters(), strict=True))
        scale = amp.state_dict()["loss_scaler0"]["loss_scale"]
        history.append((moved, scale))
        assert all(bool(parameter.isfinite().all()) for parameter in model.parameters())
    assert history == [
        (True, 2.0**16),
        (False, 2.0**15),
        (True, 2.0**15),
        (False, 2.0**14),
        (False, 2.0**13),
        (True, 2.0**13),
    ]
    assert "Skipping step, loss scaler 0 reducing loss scale to 32768.0" in capsys.readouterr().out


def test_dynamic_scale_grows_after_2000_clean_steps() -> None:
    scaler = LossScaler("dynamic")
    scales = []
    for _ in range(4000):
        assert not scaler.update_scale()
        scales.append(scaler.loss_scale())
    assert [step for step in range(1, 4000) if scales[step] != scales[step - 1]] == [1999, 3999]
    assert (scales[0], scales[-1]) == (2.0**16, 2.0**18)


def test_clean_steps_are_counted_anew_after_an_overflow() -> None:
    scaler = LossScaler("dynamic")
    for _ in range(1999):
        scaler.update_scale()
    scaler.unscale_([torch.tensor([INF])])
    assert scaler.update_scale() and scaler.scale == 2.0**15
    for _ in range(1999):
        scaler.update_scale()
    assert scaler.scale == 2.0**15
    scaler.update_scale()
    assert scaler.scale == 2.0**16


@pytest.mark.parametrize(
    ("value", "limits", "want"), [(INF, {"minimum": 2.0**15}, 2.0**15), (1.0, {"maximum": 2.0**16}, 2.0**16)]
)
def test_scale_stays_within_its_limits(value: float, limits: dict[str, float], want: float) -> None:
    scaler = LossScaler("dynamic", **limits)
    for _ in range(4000):
        if value == INF or scaler.unskipped == 0:
            scaler.unscale_([torch.tensor([value])])
        scaler.update_scale()
    assert scaler.scale == want


def test_static_scale_neither_moves_nor_skips() -> None:
    model = linear("cpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    amp.initialize(model, optimizer, opt_level="O2", loss_scale="128.0", verbosity=0)
    backward(square(INF), model, optimizer, "cpu")
    optimizer.step()
    assert amp.state_dict() == {"loss_scaler0": {"loss_scale": 128.0, "unskipped": 1}}
    assert not model.weight.isfinite().all()


def test_losses_have_scales_of_their_own() -> None:
    model = linear("cpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    amp.initialize(model, optimizer, opt_level="O2", num_losses=2, verbosity=0)
    backward(square(), model, optimizer, "cpu", loss_id=0)
    backward(square(INF), model, optimizer, "cpu", loss_id=1)
    before = model.weight.clone()
    optimizer.step()
    assert torch.equal(before, model.weight)
    assert [entry["loss_scale"] for entry in amp.state_dict().values()] == [2.0**16, 2.0**15]
    saved = amp.state_dict()
    amp.initialize(linear("cpu"), opt_level="O2", num_losses=2, verbosity=0)
    amp.load_state_dict(saved)
    assert amp.state_dict() == saved
    with pytest.raises(RuntimeError, match="colour"):
        amp.load_state_dict({"colour": 1})


def test_optimizer_that_was_not_initialized_is_refused() -> None:
    model = linear("cpu")
    amp.initialize(model, opt_level="O1", verbosity=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(RuntimeError, match="has not been through"), amp.scale_loss(torch.ones(1), optimizer):
        pass
    amp.initialize(model, optimizer, opt_level="O1", verbosity=0)
    with pytest.raises(RuntimeError, match="before"):
        amp.initialize(model, optimizer, opt_level="O1", verbosity=0)
    with pytest.raises(RuntimeError, match="closures"):
        optimizer.step(lambda: 0.0)


def test_groups_added_later_get_masters() -> None:
    model = linear("cpu")
    optimizer = torch.optim.SGD([model.weight], lr=0.125)
    amp.initialize(model, optimizer, opt_level="O2", loss_scale=64.0, verbosity=0)
    optimizer.add_param_group({"params": [model.bias]})
    before = model.bias.clone()
    backward(square(), model, optimizer, "cpu")
    optimizer.step()
    assert {parameter.dtype for parameter in amp.master_params(optimizer)} == {torch.float32}
    assert not torch.equal(before, model.bias)
