"""nn.LSTM, nn.GRU and their cells: whole modules, forward and backward, against float64."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from aclnn import INVALID_ARGUMENT, first_phase
from oracle import check, random
from torch import nn
from torch.func import functional_call

TIME, BATCH, WIDTH, HIDDEN = 5, 3, 4, 6


def parameters(module: nn.Module) -> list[torch.Tensor]:
    return [random(*p.shape, low=-0.6, high=0.6, seed=i) for i, p in enumerate(module.parameters())]


def call(module: nn.Module, train: bool = True) -> Callable[..., Any]:
    """The module as a function of its input, initial states and parameters."""
    names = [name for name, _ in module.named_parameters()]

    def function(inputs: torch.Tensor, states: Any, *values: torch.Tensor) -> Any:
        states = tuple(states) if isinstance(states, list) else states
        return functional_call(module.train(train), dict(zip(names, values, strict=True)), (inputs, states))

    return function


def states(module: nn.Module, *shape: int) -> Any:
    hidden, cell = random(*shape, low=-1, high=1, seed=50), random(*shape, low=-1, high=1, seed=51)
    return [hidden, cell] if isinstance(module, nn.LSTM | nn.LSTMCell) else hidden


MODULES = [(nn.LSTM, (torch.float32, torch.float16)), (nn.GRU, (torch.float32, torch.float16))]


@pytest.mark.parametrize(("kind", "dtypes"), MODULES)
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("layers", [1, 2])
def test_module(kind: Any, dtypes: Any, bidirectional: bool, bias: bool, layers: int) -> None:
    module = kind(WIDTH, HIDDEN, layers, bidirectional=bidirectional, bias=bias, device="meta")
    initial = states(module, layers * (1 + bidirectional), BATCH, HIDDEN)
    check(call(module), random(TIME, BATCH, WIDTH), initial, *parameters(module), dtypes=dtypes, ulps=16)


@pytest.mark.parametrize(("kind", "dtypes"), MODULES)
def test_batch_first(kind: Any, dtypes: Any) -> None:
    module = kind(WIDTH, HIDDEN, batch_first=True, device="meta")
    initial = states(module, 1, BATCH, HIDDEN)
    inputs = random(BATCH, WIDTH, TIME).transpose(1, 2)  # strided
    check(call(module), inputs, initial, *parameters(module), dtypes=dtypes, ulps=16)


@pytest.mark.parametrize(("kind", "dtypes"), MODULES)
def test_without_initial_states(kind: Any, dtypes: Any) -> None:
    module = kind(WIDTH, HIDDEN, device="meta")
    check(call(module), random(TIME, BATCH, WIDTH), None, *parameters(module), dtypes=dtypes, ulps=16)


@pytest.mark.parametrize(("kind", "dtypes"), MODULES)
def test_inference(kind: Any, dtypes: Any) -> None:
    module = kind(WIDTH, HIDDEN, device="meta")
    initial = states(module, 1, BATCH, HIDDEN)
    with torch.no_grad():
        check(
            call(module, train=False), random(TIME, BATCH, WIDTH), initial, *parameters(module),
            dtypes=dtypes, grad=False, ulps=16,
        )  # fmt: skip


def test_bfloat16_takes_the_legacy_operator() -> None:
    module = nn.LSTM(WIDTH, HIDDEN, device="meta")
    initial = states(module, 1, BATCH, HIDDEN)
    check(
        call(module),
        random(TIME, BATCH, WIDTH),
        initial,
        *parameters(module),
        dtypes=[torch.bfloat16],
        ulps=32,
    )


@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell])
@pytest.mark.parametrize("bias", [True, False])
def test_cells(kind: Any, bias: bool) -> None:
    module = kind(WIDTH, HIDDEN, bias=bias, device="meta")
    initial = states(module, BATCH, HIDDEN)
    check(
        call(module), random(BATCH, WIDTH), initial, *parameters(module),
        dtypes=(torch.float32, torch.float16), ulps=16,
    )  # fmt: skip


@pytest.mark.parametrize("bidirectional", [False, True])
def test_packed_sequences(bidirectional: bool) -> None:
    """Of an LSTM only: torch_npu 2.13 has no operator for a packed GRU."""
    lengths = [5, 3, 2]
    module = nn.LSTM(WIDTH, HIDDEN, bidirectional=bidirectional)

    def run(inputs: torch.Tensor, *values: torch.Tensor) -> Any:
        names = [name for name, _ in module.named_parameters()]
        packed = nn.utils.rnn.pack_padded_sequence(inputs, lengths)
        output, last = functional_call(module, dict(zip(names, values, strict=True)), (packed,))
        return [nn.utils.rnn.pad_packed_sequence(output)[0], *(last if isinstance(last, tuple) else [last])]

    check(run, random(TIME, BATCH, WIDTH), *parameters(module), dtypes=[torch.float32], ulps=16)


def test_refusals() -> None:
    def npu(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.zeros(*shape, dtype=dtype, device="npu")

    def planned(**changes: Any) -> tuple[int, str]:
        gates = [npu(TIME, BATCH, HIDDEN) for _ in range(5)]
        call: dict[str, Any] = {
            "input": npu(TIME, BATCH, WIDTH),
            "params": [npu(18, WIDTH), npu(18, HIDDEN), npu(18), npu(18)],
            "hx": npu(1, BATCH, HIDDEN), "sizes": None, "bias": True, "layers": 1, "dropout": 0.0,
            "train": True, "bidirectional": False, "batch_first": False,
            "output": npu(TIME, BATCH, HIDDEN), "hy": npu(1, BATCH, HIDDEN),
            "r": gates[:1], "z": gates[1:2], "n": gates[2:3], "hn": gates[3:4], "h": gates[4:5],
        }  # fmt: skip
        assert set(changes) <= set(call)
        return first_phase("aclnnGRU", *(call | changes).values())

    status, message = planned()
    assert status == 0, message
    for changes, words in (
        ({"input": npu(TIME, WIDTH)}, "parameter input has 2 dimensions, allowed are [3]"),
        ({"layers": 2}, "parameter params has 4 tensors, expected 8: 4 for each layer and direction"),
        ({"layers": 0}, "parameter numLayers is 0"),
        ({"hx": npu(2, BATCH, HIDDEN)}, "parameter hx has shape [2, 3, 6], expected [1, 3, 6]"),
        (
            {"hy": npu(1, BATCH, HIDDEN, dtype=torch.float16)},
            "parameter hy has dtype float16, expected float32",
        ),
        ({"output": npu(BATCH, TIME, HIDDEN)}, "parameter output has shape [3, 5, 6], expected [5, 3, 6]"),
        ({"r": []}, "parameter rOut has 0 tensors, expected 1"),
        ({"input": npu(TIME, BATCH, WIDTH, dtype=torch.bfloat16)}, "parameter input has dtype bfloat16"),
    ):
        status, message = planned(**changes)
        assert status == INVALID_ARGUMENT and words in message, message
