"""nn.LSTM, nn.GRU and their cells: whole modules, forward and backward, against float64."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from aclnn import INVALID_ARGUMENT, first_phase, run
from oracle import check, compare, random
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
            call(module, train=False),
            random(TIME, BATCH, WIDTH),
            initial,
            *parameters(module),
            dtypes=dtypes,
            grad=False,
            ulps=16,
        )


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize(("layers", "bias"), [(1, True), (2, True), (2, False)])
def test_bfloat16_takes_the_legacy_operators(kind: Any, bidirectional: bool, layers: int, bias: bool) -> None:
    """One call for each layer and direction; states between them are rounded."""
    module = kind(WIDTH, HIDDEN, layers, bidirectional=bidirectional, bias=bias, device="meta")
    initial = states(module, layers * (1 + bidirectional), BATCH, HIDDEN)
    check(call(module), random(TIME, BATCH, WIDTH), initial, *parameters(module), dtypes=[torch.bfloat16], ulps=32)


@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell])
@pytest.mark.parametrize("bias", [True, False])
def test_cells(kind: Any, bias: bool) -> None:
    module = kind(WIDTH, HIDDEN, bias=bias, device="meta")
    initial = states(module, BATCH, HIDDEN)
    check(
        call(module), random(BATCH, WIDTH), initial, *parameters(module), dtypes=(torch.float32, torch.float16), ulps=16
    )


@pytest.mark.parametrize("bidirectional", [False, True])
def test_packed_sequences(bidirectional: bool) -> None:
    """Of an LSTM only: torch_npu 2.13 has no operator for a packed GRU.

    Without gradients that pass through packing: torch_npu packs into [time * batch] rows, padding included, and
    leaves the gradient of packing to ATen, which expects the padding left out and takes the wrong rows, whatever
    computes them. The input's gradient is one; the reverse direction, which torch_npu packs anew, is another.
    """
    lengths = [5, 3, 2]
    module = nn.LSTM(WIDTH, HIDDEN, bidirectional=bidirectional)
    inputs = random(TIME, BATCH, WIDTH)

    def run(*values: torch.Tensor) -> Any:
        names = [name for name, _ in module.named_parameters()]
        packed = nn.utils.rnn.pack_padded_sequence(inputs.to(values[0]), lengths)
        output, last = functional_call(module, dict(zip(names, values, strict=True)), (packed,))
        return [nn.utils.rnn.pad_packed_sequence(output)[0], *(last if isinstance(last, tuple) else [last])]

    check(run, *parameters(module), dtypes=[torch.float32], ulps=16, grad=not bidirectional)


@pytest.mark.parametrize("bias", [True, False])
def test_fused_cell(bias: bool) -> None:
    """The operator that newer versions of torch_npu call for nn.LSTMCell."""
    gates, more, cell = random(BATCH, 24, seed=1), random(BATCH, 24, seed=2), random(BATCH, HIDDEN, seed=3)
    biases = [random(24, seed=4), random(24, seed=5)] if bias else []
    leaves = [t.requires_grad_() for t in (gates, cell, *biases)]
    total = gates + more + sum(biases)
    enter, forget, candidate, leave = total.chunk(4, 1)
    next_cell = forget.sigmoid() * cell + enter.sigmoid() * candidate.tanh()
    hidden = leave.sigmoid() * next_cell.tanh()

    npu = {name: t.detach().float().npu() for name, t in (("gates", gates), ("more", more), ("cell", cell))}
    given = [b.detach().float().npu() for b in biases] or [None, None]
    out, out_cell, storage = (torch.empty_like(npu[name]) for name in ("cell", "cell", "gates"))
    run("aclnnThnnFusedLstmCell", npu["gates"], npu["more"], npu["cell"], *given, out, out_cell, storage)
    compare(out, hidden.detach(), torch.float32, ulps=4)
    compare(out_cell, next_cell.detach(), torch.float32, ulps=4)

    grads = [random(BATCH, HIDDEN, seed=i) for i in (6, 7)]
    expected = torch.autograd.grad([hidden, next_cell], leaves, grads)
    gates_grad, cell_grad, bias_grad = (torch.empty_like(storage), torch.empty_like(out), torch.empty(24, device="npu"))
    run(
        "aclnnThnnFusedLstmCellBackward",
        *(g.float().npu() for g in grads),
        npu["cell"],
        out_cell,
        storage,
        bias,
        gates_grad,
        cell_grad,
        bias_grad if bias else None,
    )
    compare(gates_grad, expected[0], torch.float32, ulps=8)
    compare(cell_grad, expected[1], torch.float32, ulps=8)
    if bias:
        compare(bias_grad, expected[2], torch.float32, ulps=8)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_gru_of_padded_sequences(bidirectional: bool) -> None:
    """Rows of a padded batch, which torch_npu 2.13 does not reach for a GRU."""
    lengths, directions = [5, 3, 2], 1 + bidirectional
    module = nn.GRU(WIDTH, HIDDEN, bidirectional=bidirectional).double()
    inputs = random(TIME, BATCH, WIDTH).requires_grad_()
    packed = nn.utils.rnn.pack_padded_sequence(inputs, lengths)
    packed_output, last = module(packed)
    output = nn.utils.rnn.pad_packed_sequence(packed_output)[0]
    grads = [random(*output.shape, seed=1), random(*last.shape, seed=2)]
    leaves = [inputs, *module.parameters()]
    expected = torch.autograd.grad([output, last], leaves, grads)

    def empty(*shape: int) -> torch.Tensor:
        return torch.empty(*shape, device="npu")

    flat = inputs.detach().float().view(TIME * BATCH, WIDTH).npu()
    values = [p.detach().float().npu() for p in module.parameters()]
    sizes = packed.batch_sizes.npu()
    y, h = empty(TIME, BATCH, directions * HIDDEN), empty(directions, BATCH, HIDDEN)
    lists = [[empty(TIME, BATCH, HIDDEN) for _ in range(directions)] for _ in range(5)]
    run("aclnnGRU", flat, values, None, sizes, True, 1, 0.0, True, bidirectional, False, y, h, *lists)
    compare(y, output.detach(), torch.float32, ulps=16)
    compare(h, last.detach(), torch.float32, ulps=16)
    made = [empty(*flat.shape), empty(*h.shape), [empty(*v.shape) for v in values]]
    run(
        "aclnnGRUBackward",
        flat,
        values,
        None,
        *(g.float().npu() for g in grads),
        *lists,
        sizes,
        True,
        1,
        bidirectional,
        False,
        *made,
    )
    compare(made[0].view(TIME, BATCH, WIDTH), expected[0], torch.float32, ulps=32)
    for a, e in zip(made[2], expected[1:], strict=True):
        compare(a, e, torch.float32, ulps=32)


def test_gradient_of_the_last_states_alone() -> None:
    """Without one of the steps' outputs, which the operator takes as null."""
    module = nn.LSTM(WIDTH, HIDDEN).double()
    inputs, initial = random(TIME, BATCH, WIDTH).requires_grad_(), random(1, BATCH, HIDDEN, seed=1)
    last = module(inputs, (initial, initial))[1]
    grads = [random(1, BATCH, HIDDEN, seed=seed) for seed in (2, 3)]
    expected = torch.autograd.grad(last, [inputs, *module.parameters()], grads)

    def empty(*shape: int) -> torch.Tensor:
        return torch.empty(*shape, device="npu")

    x, states = inputs.detach().float().npu(), [initial.float().npu()] * 2
    values = [p.detach().float().npu() for p in module.parameters()]
    y, h, c = empty(TIME, BATCH, HIDDEN), empty(1, BATCH, HIDDEN), empty(1, BATCH, HIDDEN)
    kept = [[empty(TIME, BATCH, HIDDEN)] for _ in range(7)]
    run("aclnnLSTM", x, values, states, None, True, 1, 0.0, True, False, False, y, h, c, *kept)
    made = [empty(*x.shape), empty(*h.shape), empty(*c.shape), [empty(*v.shape) for v in values]]
    run(
        "aclnnLstmBackward",
        x,
        states,
        values,
        None,
        *(g.float().npu() for g in grads),
        *kept,
        None,
        True,
        1,
        0.0,
        True,
        False,
        False,
        [True] * 4,
        *made,
    )
    compare(made[0], expected[0], torch.float32, ulps=32)
    for a, e in zip(made[3], expected[1:], strict=True):
        compare(a, e, torch.float32, ulps=32)


def test_refusals() -> None:
    def npu(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.zeros(*shape, dtype=dtype, device="npu")

    def planned(**changes: Any) -> tuple[int, str]:
        gates = [npu(TIME, BATCH, HIDDEN) for _ in range(5)]
        call: dict[str, Any] = {
            "input": npu(TIME, BATCH, WIDTH),
            "params": [npu(18, WIDTH), npu(18, HIDDEN), npu(18), npu(18)],
            "hx": npu(1, BATCH, HIDDEN),
            "sizes": None,
            "bias": True,
            "layers": 1,
            "dropout": 0.0,
            "train": True,
            "bidirectional": False,
            "batch_first": False,
            "output": npu(TIME, BATCH, HIDDEN),
            "hy": npu(1, BATCH, HIDDEN),
            "r": gates[:1],
            "z": gates[1:2],
            "n": gates[2:3],
            "hn": gates[3:4],
            "h": gates[4:5],
        }
        assert set(changes) <= set(call)
        return first_phase("aclnnGRU", *(call | changes).values())

    status, message = planned()
    assert status == 0, message
    for changes, words in (
        ({"input": npu(TIME, WIDTH)}, "parameter input has 2 dimensions, allowed are [3]"),
        ({"layers": 2}, "parameter params has 4 tensors, expected 8: 4 for each layer and direction"),
        ({"layers": 0}, "parameter numLayers is 0"),
        ({"hx": npu(2, BATCH, HIDDEN)}, "parameter hx has shape [2, 3, 6], expected [1, 3, 6]"),
        ({"hy": npu(1, BATCH, HIDDEN, dtype=torch.float16)}, "parameter hy has dtype float16, expected float32"),
        ({"output": npu(BATCH, TIME, HIDDEN)}, "parameter output has shape [3, 5, 6], expected [5, 3, 6]"),
        ({"r": []}, "parameter rOut has 0 tensors, expected 1"),
        ({"input": npu(TIME, BATCH, WIDTH, dtype=torch.bfloat16)}, "parameter input has dtype bfloat16"),
    ):
        status, message = planned(**changes)
        assert status == INVALID_ARGUMENT and words in message, message
