"""recurrent/aclop_gru.cpp where a program reaches it by options, against torch in float64. The others are in
tests/mindspore/test_mindspore_gradients.py."""

from __future__ import annotations

import pytest
import torch
from aclop import INVALID_ARGUMENT, drawn, launch, near, ran


@pytest.mark.parametrize("order", ["", "zrh", "rzh"])
@pytest.mark.parametrize("bias", [True, False])
def test_the_order_of_a_grus_gates_is_that_of_the_call(order: str, bias: bool) -> None:
    """The default is CANN's, in which the update gate comes first; torch's has the reset gate first."""
    cell = torch.nn.GRU(3, 2, bias=bias).double()
    x, state, slope = drawn(4, 2, 3), drawn(1, 2, 2), drawn(4, 2, 2)
    place = [0, 1, 2] if order == "rzh" else [1, 0, 2]

    def gates(rows: torch.Tensor) -> torch.Tensor:
        return torch.cat([rows.chunk(3)[i] for i in place])

    def given(rows: torch.Tensor) -> torch.Tensor:
        return gates(rows).t().detach().float().contiguous()

    weights = [given(cell.weight_ih_l0), given(cell.weight_hh_l0)]
    biases = [given(cell.bias_ih_l0), given(cell.bias_hh_l0)] if bias else [None, None]
    attributes = {"gate_order": order} if order else {}
    made = ran("DynamicGRUV2", [x, *weights, *biases, None, state], *[(4, 2, 2)] * 6, **attributes)
    wide, first = x.double().requires_grad_(), state.double().requires_grad_()
    expected, _ = cell(wide, first)
    near(made[0], expected.detach())
    expected.backward(slope.double())
    y, h, update, reset, new, hidden = (each.float() for each in made)
    slope_of_state = torch.zeros(1, 2, 2).npu()
    inputs = [x, *weights, y, state, h, slope, slope_of_state, update, reset, new, hidden]
    grads = ran("DynamicGRUV2Grad", inputs, (3, 6), (2, 6), (6,), (6,), x.shape, (1, 2, 2), **attributes)
    near(grads[0], gates(cell.weight_ih_l0.grad).t())
    near(grads[1], gates(cell.weight_hh_l0.grad).t())
    if bias:
        near(grads[2], gates(cell.bias_ih_l0.grad))
        near(grads[3], gates(cell.bias_hh_l0.grad))
    near(grads[4], wide.grad)
    near(grads[5], first.grad)
    assert not slope_of_state.any(), "an input was overwritten"


# Operator: inputs, the output's sizes, attributes; words of the message.
REFUSED = {
    "DynamicGRUV2": (
        [drawn(1, 1, 1), drawn(1, 3), drawn(1, 3), None, None, None, drawn(1, 1)],
        (1, 1, 1),
        {"gate_order": "hrz"},
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
