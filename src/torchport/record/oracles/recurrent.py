"""LSTM and GRU as torch_npu calls them, forward and backward, written out step by step.

From torch's documentation of nn.LSTM (gates i, f, g, o) and nn.GRU (r, z, n). What an NPU keeps for the gradient are
results too, [layers x directions, time, batch, hidden]; the gradient is computed from what was kept, so that an error
of the forward pass is none of its own. Of a pack, sequences are padded to one length, `sizes` says how many run at each
step; what is kept of those that do not is not judged. There is no dropout between layers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from torchport.record.operators.rebuilt import UnknownCallError


@dataclasses.dataclass(frozen=True)
class Net:
    """Layers and directions of one call, and how many sequences run at each step."""

    torch: Any
    cells: Sequence[Sequence[Any]]
    directions: int
    running: Sequence[int]

    @classmethod
    def from_parameters(
        cls, torch: Any, steps: Any, params: Sequence[Any], biases: bool, both: bool, sizes: Any
    ) -> Net:
        """`params` are those of torch: weights of input and hidden state, then their biases, by layer and direction."""
        each = 4 if biases else 2
        cells = [params[first : first + each] for first in range(0, len(params), each)]
        cells = [(*cell, *[cell[0].new_zeros(cell[0].shape[0])] * (4 - each)) for cell in cells]
        time, batch = steps.shape[:2]
        return cls(torch, cells, 2 if both else 1, [batch] * time if sizes is None else sizes.tolist())

    def order_steps(self, cell: int) -> list[int]:
        """The steps as a direction goes through them."""
        steps = list(range(len(self.running)))
        return steps[::-1] if cell % self.directions else steps

    def zero_ended_sequences(self, steps: Any) -> Any:
        """Zeros where a sequence has ended."""
        made = steps.clone()
        for step, count in enumerate(self.running):
            made[step, count:] = 0
        return made


def _steps(given: Any, first: bool | None, sizes: Any, batch: int) -> Any:
    """(time, batch, width)."""
    if sizes is not None:
        return given.reshape(len(sizes), batch, -1)
    return given.transpose(0, 1) if first else given


def _placed(net: Net, steps: Any, first: bool | None, sizes: Any, like: Any) -> Any:
    if sizes is not None:
        return steps.reshape(like.shape)
    return steps.transpose(0, 1) if first else steps


def _known(net: Net, kept: Any, made: Any) -> Any:
    """What is kept, and what was recorded where nothing says what it is."""
    if made is None or all(count == kept.shape[2] for count in net.running):
        return kept
    kept = kept.clone()
    for step, count in enumerate(net.running):
        kept[:, step, count:] = made[:, step, count:].to(kept.dtype)
    return kept


def _lstm(net: Net, steps: Any, hidden: Any, cell: Any) -> tuple[Any, list[Any], list[Any]]:
    """Outputs, last states, and what is kept: i, g, f, o, h, c, tanh(c)."""
    torch = net.torch
    ends: list[list[Any]] = [[], []]
    kept: list[list[Any]] = [[] for _ in range(7)]
    for layer in range(0, len(net.cells), net.directions):
        outs = []
        for number in range(layer, layer + net.directions):
            w_in, w_hidden, b_in, b_hidden = net.cells[number]
            h, c = hidden[number], cell[number]
            found: dict[int, list[Any]] = {}
            for step in net.order_steps(number):
                n = net.running[step]
                gates = steps[step] @ w_in.T + h @ w_hidden.T + b_in + b_hidden
                i, f, g, o = gates.chunk(4, -1)
                i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
                new = f * c + i * g
                c = torch.cat([new[:n], c[n:]])
                tanh = c.tanh()
                h = torch.cat([(o * tanh)[:n], h[n:]])
                found[step] = [i, g, f, o, h, c, tanh]
            rows = [torch.stack([found[step][place] for step in range(len(net.running))]) for place in range(7)]
            for place, row in enumerate(rows):
                kept[place].append(row)
            outs.append(net.zero_ended_sequences(rows[4]))
            for place, state in enumerate((h, c)):
                ends[place].append(state)
        steps = torch.cat(outs, -1)
    return steps, [torch.stack(end) for end in ends], [torch.stack(one) for one in kept]


def _lstm_npu(
    torch: Any,
    given: Any,
    states: Any,
    params: Any,
    biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    both: bool,
    first: bool | None = False,
    sizes: Any = None,
    made: Any = None,
) -> list[Any]:
    """Outputs, last hidden and cell states, and what is kept."""
    hidden, cell = states
    steps = _steps(given, first, sizes, hidden.shape[1])
    net = Net.from_parameters(torch, steps, params, biases, both, sizes)
    out, ends, kept = _lstm(net, steps, hidden, cell)
    recorded = made[3:10] if made is not None and train else [None] * 7
    kept = [_known(net, one, right) for one, right in zip(kept, recorded, strict=True)]
    return [out if sizes is not None else _placed(net, out, first, None, given), *ends, *kept]


def _lstm_gradients(
    net: Net, steps: Any, states: Sequence[Any], kept: Sequence[Any], grads: Sequence[Any]
) -> tuple[Any, list[Any], list[Any]]:
    """By input, by the first hidden and cell states, and by the parameters of each cell."""
    torch = net.torch
    i, g, f, o, h, c, tanh = kept
    width = h.shape[-1]
    by_steps, by_hidden, by_cell = (grad.clone() for grad in grads)
    by_params: list[list[Any]] = [[] for _ in net.cells]
    for layer in range(len(net.cells) - net.directions, -1, -net.directions):
        below = range(layer - net.directions, layer)
        given = torch.cat([net.zero_ended_sequences(h[number]) for number in below], -1) if layer else steps
        by_given = torch.zeros_like(given)
        for place, number in enumerate(range(layer, layer + net.directions)):
            w_in, w_hidden, *_ = net.cells[number]
            by_w = [torch.zeros_like(one) for one in (w_in, w_hidden, w_in[:, 0])]
            order = net.order_steps(number)
            for at in range(len(order) - 1, -1, -1):
                step, n = order[at], net.running[order[at]]
                h_before, c_before = (
                    (h[number, order[at - 1]], c[number, order[at - 1]])
                    if at
                    else (states[0][number], states[1][number])
                )
                dh = by_hidden[number, :n] + by_steps[step, :n, place * width : (place + 1) * width]
                gates = [one[number, step, :n] for one in (i, f, g, o)]
                t = tanh[number, step, :n]
                dc = by_cell[number, :n] + dh * gates[3] * (1 - t * t)
                raw = torch.cat(
                    [
                        dc * gates[2] * gates[0] * (1 - gates[0]),
                        dc * c_before[:n] * gates[1] * (1 - gates[1]),
                        dc * gates[0] * (1 - gates[2] ** 2),
                        dh * t * gates[3] * (1 - gates[3]),
                    ],
                    -1,
                )
                by_cell[number, :n] = dc * gates[1]
                by_hidden[number, :n] = raw @ w_hidden
                by_given[step, :n] += raw @ w_in
                by_w[0] += raw.T @ given[step, :n]
                by_w[1] += raw.T @ h_before[:n]
                by_w[2] += raw.sum(0)
            by_params[number] = [*by_w, by_w[2]]
        by_steps = by_given
    return by_steps, [by_hidden, by_cell], [one for cell in by_params for one in cell]


def _lstm_npu_backward(
    torch: Any,
    by_out: Any,
    by_hidden: Any,
    by_cell: Any,
    given: Any,
    states: Any,
    params: Any,
    i: Any,
    g: Any,
    f: Any,
    o: Any,
    h: Any,
    c: Any,
    tanh: Any,
    biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    both: bool,
    first: bool | None = False,
    sizes: Any = None,
) -> list[Any]:
    """By input, states and parameters."""
    steps = _steps(given, first, sizes, states[0].shape[1])
    net = Net.from_parameters(torch, steps, params, biases, both, sizes)
    grads = [
        _steps(by_out, first and sizes is None, None, 0) if by_out is not None else _zeros_of(steps, states[0], net),
        *(torch.zeros_like(states[0]) if one is None else one for one in (by_hidden, by_cell)),
    ]
    by_steps, by_states, by_params = _lstm_gradients(net, steps, states, (i, g, f, o, h, c, tanh), grads)
    by_params = by_params if biases else [one for place, one in enumerate(by_params) if place % 4 < 2]
    return [_placed(net, by_steps, first, sizes, given), *by_states, *by_params]


def _zeros_of(steps: Any, state: Any, net: Net) -> Any:
    return steps.new_zeros(*steps.shape[:2], net.directions * state.shape[-1])


def _one_direction(weight: Any, bias: Any, mask: Any, backwards: bool) -> list[Any]:
    """One layer's parameters as torch has them: `weight` has input and hidden state one below the other."""
    if backwards or (mask is not None and mask.numel()):
        raise UnknownCallError("there is no reference for a layer that runs backwards or has a mask")
    width = bias.shape[0] // 4
    below = weight.shape[0] - width
    return [weight[:below].T, weight[below:].T, bias, bias.new_zeros(bias.shape)]


def npu_lstm(
    torch: Any,
    given: Any,
    weight: Any,
    bias: Any,
    mask: Any,
    hidden: Any,
    cell: Any,
    biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    both: bool,
    first: bool,
    has_mask: bool,
    backwards: bool,
) -> list[Any]:
    """One layer in one direction: outputs, hidden and cell states of all steps, i, g, f, o and tanh(c)."""
    net = Net.from_parameters(torch, given, _one_direction(weight, bias, mask, backwards), True, False, None)
    out, _, kept = _lstm(net, given, hidden, cell)
    i, g, f, o, h, c, tanh = (one[0] for one in kept)
    return [out, h, c, i, g, f, o, tanh]


def npu_lstm_backward(
    torch: Any,
    by_out: Any,
    by_hidden: Any,
    by_cell: Any,
    given: Any,
    weight: Any,
    bias: Any,
    hidden: Any,
    cell: Any,
    out: Any,
    h: Any,
    c: Any,
    i: Any,
    g: Any,
    f: Any,
    o: Any,
    tanh: Any,
) -> list[Any]:
    """By input, weight, bias and first states."""
    if by_hidden is not None or by_cell is not None:
        raise UnknownCallError("there is no reference for gradients of the states of all steps")
    net = Net.from_parameters(torch, given, _one_direction(weight, bias, None, False), True, False, None)
    grads = [by_out, torch.zeros_like(hidden), torch.zeros_like(cell)]
    kept = [one.unsqueeze(0) for one in (i, g, f, o, h, c, tanh)]
    by_given, by_states, by_params = _lstm_gradients(net, given, (hidden, cell), kept, grads)
    return [by_given, torch.cat([by_params[0].T, by_params[1].T]), by_params[2], *by_states]


def _gru_npu(
    torch: Any,
    given: Any,
    hidden: Any,
    params: Any,
    biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    both: bool,
    first: bool | None = False,
    sizes: Any = None,
    made: Any = None,
) -> list[Any]:
    """Outputs, last states, and what is kept: r, z, n, W h + b of n, h."""
    steps = _steps(given, first, sizes, hidden.shape[1])
    net = Net.from_parameters(torch, steps, params, biases, both, sizes)
    ends: list[Any] = []
    kept: list[list[Any]] = [[] for _ in range(5)]
    for layer in range(0, len(net.cells), net.directions):
        outs = []
        for number in range(layer, layer + net.directions):
            w_in, w_hidden, b_in, b_hidden = net.cells[number]
            h = hidden[number]
            found: dict[int, list[Any]] = {}
            for step in net.order_steps(number):
                count = net.running[step]
                of_in = (steps[step] @ w_in.T + b_in).chunk(3, -1)
                of_hidden = (h @ w_hidden.T + b_hidden).chunk(3, -1)
                r, z = ((one + other).sigmoid() for one, other in zip(of_in[:2], of_hidden[:2], strict=True))
                n = (of_in[2] + r * of_hidden[2]).tanh()
                h = torch.cat([((1 - z) * n + z * h)[:count], h[count:]])
                found[step] = [r, z, n, of_hidden[2], h]
            rows = [torch.stack([found[step][place] for step in range(len(net.running))]) for place in range(5)]
            for place, row in enumerate(rows):
                kept[place].append(row)
            outs.append(net.zero_ended_sequences(rows[4]))
            ends.append(h)
        steps = torch.cat(outs, -1)
    recorded = made[2:7] if made is not None and train else [None] * 5
    stacked = [_known(net, torch.stack(one), right) for one, right in zip(kept, recorded, strict=True)]
    return [steps if sizes is not None else _placed(net, steps, first, None, given), torch.stack(ends), *stacked]


def _gru_npu_backward(
    torch: Any,
    by_out: Any,
    by_hidden: Any,
    given: Any,
    hidden: Any,
    params: Any,
    r: Any,
    z: Any,
    n: Any,
    new: Any,
    h: Any,
    biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    both: bool,
    first: bool | None = False,
    sizes: Any = None,
) -> list[Any]:
    """By input, states and parameters."""
    steps = _steps(given, first, sizes, hidden.shape[1])
    net = Net.from_parameters(torch, steps, params, biases, both, sizes)
    width = hidden.shape[-1]
    by_steps = _zeros_of(steps, hidden, net) if by_out is None else _steps(by_out, first and sizes is None, None, 0)
    by_hidden = torch.zeros_like(hidden) if by_hidden is None else by_hidden.clone()
    by_params: list[list[Any]] = [[] for _ in net.cells]
    for layer in range(len(net.cells) - net.directions, -1, -net.directions):
        below = range(layer - net.directions, layer)
        fed = torch.cat([net.zero_ended_sequences(h[number]) for number in below], -1) if layer else steps
        by_fed = torch.zeros_like(fed)
        for place, number in enumerate(range(layer, layer + net.directions)):
            w_in, w_hidden, *_ = net.cells[number]
            by_w = [torch.zeros_like(one) for one in (w_in, w_hidden, w_in[:, 0], w_in[:, 0])]
            order = net.order_steps(number)
            for at in range(len(order) - 1, -1, -1):
                step, count = order[at], net.running[order[at]]
                before = (h[number, order[at - 1]] if at else hidden[number])[:count]
                dh = by_hidden[number, :count] + by_steps[step, :count, place * width : (place + 1) * width]
                gates = [one[number, step, :count] for one in (r, z, n, new)]
                dn = dh * (1 - gates[1]) * (1 - gates[2] ** 2)
                dz = dh * (before - gates[2]) * gates[1] * (1 - gates[1])
                dr = dn * gates[3] * gates[0] * (1 - gates[0])
                of_in = torch.cat([dr, dz, dn], -1)
                of_hidden = torch.cat([dr, dz, dn * gates[0]], -1)
                by_hidden[number, :count] = dh * gates[1] + of_hidden @ w_hidden
                by_fed[step, :count] += of_in @ w_in
                by_w[0] += of_in.T @ fed[step, :count]
                by_w[1] += of_hidden.T @ before
                by_w[2] += of_in.sum(0)
                by_w[3] += of_hidden.sum(0)
            by_params[number] = by_w
        by_steps = by_fed
    flat = [one for cell in by_params for one in (cell if biases else cell[:2])]
    return [_placed(net, by_steps, first, sizes, given), by_hidden, *flat]
