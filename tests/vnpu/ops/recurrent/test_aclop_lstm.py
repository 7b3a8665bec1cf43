"""recurrent/aclop_lstm.cpp where a program reaches it by options, against torch in float64. The others are in
tests/mindspore/test_mindspore_gradients.py."""

from __future__ import annotations

import pytest
import torch
from aclop import INVALID_ARGUMENT, drawn, launch, near, ran


@pytest.mark.parametrize("order", ["ijfo", "ifjo"])
def test_the_order_of_gates_is_that_of_the_call(order: str) -> None:
    """The default is CANN's, in which the candidate comes second."""
    cell = torch.nn.LSTM(3, 2).double()
    x, state = drawn(4, 2, 3), [drawn(1, 2, 2), drawn(1, 2, 2)]
    place = [0, 2, 1, 3] if order == "ijfo" else [0, 1, 2, 3]

    def gates(rows: torch.Tensor) -> torch.Tensor:
        return torch.cat([rows.chunk(4)[i] for i in place])

    weight = torch.cat([gates(cell.weight_ih_l0), gates(cell.weight_hh_l0)], 1).t().detach().float().contiguous()
    bias = gates(cell.bias_ih_l0 + cell.bias_hh_l0).detach().float()
    steps = [(4, 2, 2)] * 8
    attributes = {} if order == "ijfo" else {"gate_order": order}
    made = ran("DynamicRNN", [x, weight, bias, None, *state], *steps, **attributes)
    wide = x.double().requires_grad_()
    expected, _ = cell(wide, tuple(each.double() for each in state))
    near(made[0], expected.detach())
    slope = drawn(4, 2, 2)
    expected.backward(slope.double())
    _, h, c, i, j, f, o, tanh = (each.float() for each in made)
    inputs = [
        x,
        weight,
        bias,
        made[0].float(),
        *state,
        h,
        c,
        slope,
        torch.zeros(1, 2, 2),
        torch.zeros(1, 2, 2),
        i,
        j,
        f,
        o,
        tanh,
    ]
    grads = ran("DynamicRNNGrad", inputs, (5, 8), (8,), x.shape, (1, 2, 2), (1, 2, 2), **attributes)
    near(grads[0], torch.cat([gates(cell.weight_ih_l0.grad), gates(cell.weight_hh_l0.grad)], 1).t())
    near(grads[1], gates(cell.bias_ih_l0.grad))
    near(grads[2], wide.grad)


# Operator: inputs, the output's sizes, attributes; words of the message.
REFUSED = {
    "DynamicRNN": (
        [drawn(1, 1, 1), drawn(2, 4), drawn(4), None, drawn(1, 1, 1), drawn(1, 1, 1)],
        (1, 1, 1),
        {"gate_order": "oijf"},
        "gate_order",
    )
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_call_that_does_not_fit_is_refused(name: str) -> None:
    inputs, size, attributes, words = REFUSED[name]
    operands = [each.npu() if isinstance(each, torch.Tensor) else each for each in inputs]
    outputs = [torch.zeros(size).npu() for _ in range(8)]
    status, message = launch(name, operands, outputs, **attributes)
    assert status == INVALID_ARGUMENT and words in message and name in message, (status, message)
