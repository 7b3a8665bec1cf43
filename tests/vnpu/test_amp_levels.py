"""amp.initialize: which dtype each optimization level computes in, and what it refuses."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from torchport import amp
from torchport.amp import casting

HALF, FLOAT = torch.float16, torch.float32
DEVICES = ("cpu", "npu")


@pytest.fixture(autouse=True)
def _leave_torch_as_it_was() -> Iterator[None]:
    patched = [
        (owner, name)
        for table in (casting.HALF, casting.FLOAT, casting.WIDEST)
        for owner, names in table.items()
        for name in names
    ]
    before = [vars(owner).get(name) for owner, name in patched]
    yield
    amp.initialize(nn.Linear(1, 1), enabled=False)
    assert len(patched) > 100
    assert [name for (owner, name), was in zip(patched, before, strict=True) if vars(owner).get(name) is not was] == []


def network(device: str) -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 8), nn.LayerNorm(8), nn.Softmax(1)
    ).to(device)


def output_dtypes(model: nn.Sequential, device: str) -> dict[str, torch.dtype]:
    seen = {}
    for layer in model:
        layer.register_forward_hook(lambda layer, _, output: seen.update({type(layer).__name__: output.dtype}))
    seen["result"] = model(torch.randn(3, 2, 4, 4, device=device)).dtype
    return seen


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("level", "half"),
    [
        ("O0", set()),
        ("O1", {"Conv2d", "Linear"}),
        ("O2", {"Conv2d", "BatchNorm2d", "ReLU", "Flatten", "Linear", "LayerNorm", "Softmax"}),
        ("O3", {"Conv2d", "BatchNorm2d", "ReLU", "Flatten", "Linear", "LayerNorm", "Softmax"}),
    ],
)
def test_dtype_of_each_layer(level: str, half: set[str], device: str) -> None:
    model = amp.initialize(network(device), opt_level=level, verbosity=0)
    seen = output_dtypes(model, device)
    assert seen.pop("result") == FLOAT
    assert {name for name, dtype in seen.items() if dtype == HALF} == half


@pytest.mark.parametrize("device", DEVICES)
def test_o1_runs_the_guides_functions_as_it_says(device: str) -> None:
    x = torch.randn(4, 4, device=device)
    half = x.half()
    weight = nn.Parameter(torch.randn(4, 4, device=device))
    amp.initialize(nn.Linear(1, 1), opt_level="O1", verbosity=0)
    assert {f.dtype for f in (x @ x, torch.mm(x, weight), x.matmul(x), torch.einsum("ij,jk", x, x))} == {HALF}
    assert functional.linear(x, weight).dtype == HALF
    for wide in (half.softmax(1), functional.log_softmax(half, 1), half.exp(), half.sum(), half.pow(2), half**2):
        assert wide.dtype == FLOAT
    assert functional.mse_loss(half, half).dtype == FLOAT
    assert torch.cat([half, x]).dtype == FLOAT
    assert torch.stack([half, half]).dtype == HALF
    assert (half + half).dtype == HALF
    assert x.long().sum().dtype == torch.int64
    with amp.disable_casts():
        assert (x @ x).dtype == FLOAT


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("cell", [nn.LSTM, nn.GRU, nn.RNN])
def test_o1_runs_recurrent_layers_in_half(cell: Any, device: str) -> None:
    layer = cell(3, 5, batch_first=True).to(device)
    amp.initialize(layer, opt_level="O1", verbosity=0)
    output, _ = layer(torch.randn(2, 4, 3, device=device))
    output.float().sum().backward()
    assert output.dtype == HALF
    assert layer.weight_ih_l0.grad.dtype == FLOAT


def test_o1_casts_a_parameter_once_per_step() -> None:
    weight = nn.Parameter(torch.ones(2, 2))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    amp.initialize(nn.Linear(1, 1), optimizer, opt_level="O1", loss_scale=1.0, verbosity=0)
    x = torch.ones(2, 2)
    first, second = torch.mm(x, weight), torch.mm(x, weight)
    cast = first.grad_fn.next_functions[1][0]
    assert cast is second.grad_fn.next_functions[1][0]
    with torch.no_grad():
        assert torch.mm(x, weight).grad_fn is None
    with amp.scale_loss((first + second).sum(), optimizer) as loss:
        loss.backward()
    assert torch.equal(weight.grad, torch.full((2, 2), 4.0))
    optimizer.step()
    assert torch.mm(x, weight).sum() == 8 * (1 - 4)  # not of a cast from before the step


def test_registered_functions_are_cast_from_initialize_on() -> None:
    class Mine:
        @staticmethod
        def run(x: torch.Tensor) -> torch.Tensor:
            return x + 1

    original = Mine.run
    amp.register_half_function(Mine, "run")
    amp.initialize(nn.Linear(1, 1), opt_level="O1", verbosity=0)
    try:
        assert Mine.run(torch.ones(2)).dtype == HALF
        assert amp.float_function(original)(torch.ones(2, dtype=HALF)).dtype == FLOAT
        assert amp.promote_function(torch.add)(torch.ones(2), torch.ones(2, dtype=HALF)).dtype == FLOAT
    finally:
        casting._registered.clear()
    with pytest.raises(ValueError, match="nothing"):
        amp.register_float_function(torch, "nothing")


def test_o1_refuses_binary_cross_entropy_of_halves() -> None:
    amp.initialize(nn.Linear(1, 1), opt_level="O1", verbosity=0)
    with pytest.raises(NotImplementedError, match="BCEWithLogitsLoss"):
        functional.binary_cross_entropy(torch.full((2,), 0.5, dtype=HALF), torch.ones(2))
    assert functional.binary_cross_entropy(torch.full((2,), 0.5), torch.ones(2)).item() == pytest.approx(
        0.6931, abs=1e-4
    )


def test_o2_keeps_batch_norm_unless_told() -> None:
    kept = amp.initialize(network("cpu"), opt_level="O2", keep_batchnorm_fp32="True", verbosity=0)
    cast = amp.initialize(network("cpu"), opt_level="O2", keep_batchnorm_fp32=False, verbosity=0)
    assert (kept[1].weight.dtype, kept[1].running_mean.dtype, kept[0].weight.dtype) == (FLOAT, FLOAT, HALF)
    assert (cast[1].weight.dtype, cast[1].running_mean.dtype) == (HALF, HALF)


def test_o2_casts_nested_inputs_and_outputs() -> None:
    class Model(nn.Module):
        def forward(self, batch: dict[str, Any], *, scale: torch.Tensor) -> Any:
            assert {batch["x"].dtype, batch["more"][0].dtype, scale.dtype} == {HALF}
            assert batch["index"].dtype == torch.int64
            return {"y": batch["x"] * scale}, [batch["index"]]

    model = amp.initialize(Model(), opt_level="O2", verbosity=0)
    batch = {"x": torch.ones(2), "more": (torch.ones(1),), "index": torch.arange(2)}
    output, rest = model(batch, scale=torch.ones(1))
    assert output["y"].dtype == FLOAT and rest[0].dtype == torch.int64
    assert batch["x"].dtype == FLOAT, "the caller's batch is not changed"


@pytest.mark.parametrize("device", DEVICES)
def test_o2_checkpoint_is_float_and_holds_the_masters_digits(device: str) -> None:
    model = nn.Linear(3, 2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O2", loss_scale=128.0, verbosity=0)
    x = torch.ones(1, 3, device=device)
    for _ in range(3):
        with amp.scale_loss(model(x).sum(), optimizer) as loss:
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    saved = {name: value.clone() for name, value in model.state_dict().items()}
    masters = list(amp.master_params(optimizer))
    assert {value.dtype for value in saved.values()} == {FLOAT}
    assert torch.equal(saved["weight"], masters[0])
    assert not torch.equal(saved["weight"], model.weight.float()), "steps this small vanish in fp16"

    again = nn.Linear(3, 2).to(device)
    optimizer = torch.optim.SGD(again.parameters(), lr=1e-5)
    again, optimizer = amp.initialize(again, optimizer, opt_level="O2", verbosity=0)
    again.load_state_dict(saved)
    assert torch.equal(next(amp.master_params(optimizer)), saved["weight"])
    assert torch.equal(again.weight, model.weight)


def test_copy_of_an_o2_model_stands_alone() -> None:
    model = amp.initialize(nn.Linear(2, 2), opt_level="O2", verbosity=0)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.weight.zero_()
        twin.bias.zero_()
    assert torch.equal(twin(torch.ones(1, 2)), torch.zeros(1, 2))
    assert twin.state_dict()["weight"].abs().sum() == 0


def test_cast_model_outputs() -> None:
    model = amp.initialize(nn.Linear(2, 2), opt_level="O2", cast_model_outputs=HALF, verbosity=0)
    assert model(torch.ones(1, 2)).dtype == HALF


def test_lists_come_back_as_lists() -> None:
    models = [nn.Linear(2, 2), nn.Linear(2, 2)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    assert amp.initialize(models, optimizers, opt_level="O1", verbosity=0) == (models, optimizers)
    assert amp.initialize(models[0], opt_level="O0", verbosity=0) is models[0]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"opt_level": "02"}, "'O2'"),
        ({"opt_level": "O1", "master_weights": True}, "leave master_weights out"),
        ({"opt_level": "O1", "keep_batchnorm_fp32": "True"}, "batch norm"),
        ({"opt_level": "O1", "cast_model_type": HALF}, "use O2"),
        ({"opt_level": "O2", "patch_torch_functions": True}, "'O1'"),
        ({"opt_level": "O2", "keep_batchnorm_fp32": "yes"}, "'True' or 'False'"),
        ({"opt_level": "O2", "combine_grad": True, "master_weights": False}, "needs master_weights"),
        ({"opt_level": "O2", "combine_ddp": True}, "combine_grad=True"),
    ],
)
def test_contradictions_are_refused(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(RuntimeError, match=text):
        amp.initialize(nn.Linear(1, 1), verbosity=0, **arguments)


def test_models_that_are_not_float_are_refused() -> None:
    with pytest.raises(RuntimeError, match="drop"):
        amp.initialize(nn.Linear(1, 1).half(), opt_level="O2", verbosity=0)
    with pytest.raises(RuntimeError, match="then wrap it"):
        amp.initialize(nn.DataParallel(nn.Linear(1, 1)), opt_level="O2", verbosity=0)


def test_disabled_changes_nothing() -> None:
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    amp.initialize(model, optimizer, enabled=False, opt_level="O2")
    loss = model(torch.ones(1, 1)).sum()
    with amp.scale_loss(loss, optimizer) as scaled:
        assert scaled is loss
    assert model.weight.dtype == FLOAT
