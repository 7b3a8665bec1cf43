"""Operators of the old API that MindSpore's functions have no gradient for, or that a program reaches by options: against
torch in float64. The others of their files are in tests/mindspore/test_mindspore_gradients.py."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from aclop import INVALID_ARGUMENT, drawn, launch, near, ran


def test_channels_are_shuffled() -> None:
    x = drawn(2, 6, 3, 2)
    (y,) = ran("ShuffleChannel", [x], x.shape, group=3)
    assert torch.equal(y, x.double().reshape(2, 3, 2, 3, 2).transpose(1, 2).reshape(x.shape))


@pytest.mark.parametrize("reduction", ["none", "sum", "mean", "batchmean"])
@pytest.mark.parametrize("log_target", [False, True])
def test_the_gradient_of_a_divergence(reduction: str, log_target: bool) -> None:
    x, target = drawn(3, 4), drawn(3, 4)
    if not log_target:
        target = target.clamp_min(0)  # zeros of it have no gradient
    wide = x.double().requires_grad_()
    loss = F.kl_div(wide, target.double(), reduction=reduction, log_target=log_target)
    gradient = drawn(*loss.shape)
    (slope,) = ran(
        "KlDivLossGrad", [gradient, x, target], x.shape, reduction=reduction, log_target=log_target
    )
    near(slope, torch.autograd.grad(loss, wide, gradient.double())[0])


@pytest.mark.parametrize("clip", [False, True])
def test_a_step_of_lars(clip: bool) -> None:
    w, g = drawn(3, 4), drawn(3, 4)
    squares = [each.square().sum() for each in (w, g)]
    decay, rate = torch.tensor(0.1), torch.tensor(0.02)
    (slope,) = ran(
        "LarsV2Update", [w, g, *squares, decay, rate], w.shape, hyperpara=0.01, epsilon=1e-3, use_clip=clip
    )
    norm_w, norm_g = (each.double().norm() for each in (w, g))
    share = 0.01 * norm_w / (norm_g + 0.1 * norm_w + 1e-3)
    near(slope, (g.double() + 0.1 * w.double()) * (min(share / 0.02, torch.tensor(1.0)) if clip else share))


@pytest.mark.parametrize(("below", "above"), [(1, 0), (0, 2), (-1, 1), (1, -1), (-1, -1)])
def test_a_band_of_a_matrix(below: int, above: int) -> None:
    x = drawn(2, 4, 5)
    (y,) = ran("MatrixBandPart", [x, [below], [above]], x.shape)
    rows, columns = torch.arange(4).view(-1, 1), torch.arange(5)
    kept = ((rows - columns <= below) | (below < 0)) & ((columns - rows <= above) | (above < 0))
    assert torch.equal(y, torch.where(kept, x.double(), 0.0))


def test_an_empty_segment_has_the_end_of_the_numbers() -> None:
    x, ids = drawn(3, 2), torch.tensor([2, -1, 2])
    for name, extreme in (("Max", torch.finfo(torch.float32).min), ("Min", torch.finfo(torch.float32).max)):
        (y,) = ran(f"UnsortedSegment{name}", [x, ids, [3]], (3, 2))
        assert (y[:2] == extreme).all() and (y[2] != extreme).all()


def test_padding_takes_pairs_or_all_that_go_before() -> None:
    x = drawn(3, 4)
    (pairs,) = ran(
        "PadV3", [x, [1, 2, 0, 3], torch.tensor(5.0)], (6, 7), mode="constant", paddings_contiguous=True
    )
    (apart,) = ran(
        "PadV3", [x, [1, 0, 2, 3], torch.tensor(5.0)], (6, 7), mode="constant", paddings_contiguous=False
    )
    assert torch.equal(pairs, apart) and torch.equal(pairs, F.pad(x.double(), (0, 3, 1, 2), value=5.0))


@pytest.mark.parametrize("order", ["ijfo", "ifjo"])
def test_the_order_of_gates_is_that_of_the_call(order: str) -> None:
    """The default is CANN's, in which the candidate comes second."""
    cell = torch.nn.LSTM(3, 2).double()
    x, state = drawn(4, 2, 3), [drawn(1, 2, 2), drawn(1, 2, 2)]
    place = [0, 2, 1, 3] if order == "ijfo" else [0, 1, 2, 3]

    def gates(rows: torch.Tensor) -> torch.Tensor:
        return torch.cat([rows.chunk(4)[i] for i in place])

    weight = (
        torch.cat([gates(cell.weight_ih_l0), gates(cell.weight_hh_l0)], 1).t().detach().float().contiguous()
    )
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
    inputs = [x, *weights, y, state, h, slope, torch.zeros(1, 2, 2), update, reset, new, hidden]
    grads = ran("DynamicGRUV2Grad", inputs, (3, 6), (2, 6), (6,), (6,), x.shape, (1, 2, 2), **attributes)
    near(grads[0], gates(cell.weight_ih_l0.grad).t())
    near(grads[1], gates(cell.weight_hh_l0.grad).t())
    if bias:
        near(grads[2], gates(cell.bias_ih_l0.grad))
        near(grads[3], gates(cell.bias_hh_l0.grad))
    near(grads[4], wide.grad)
    near(grads[5], first.grad)


I32 = torch.int32
POOL = {"ksize": [1, 1, 2, 2, 2], "strides": [1, 1, 2, 2, 2], "pads": [0] * 6, "data_format": "NCDHW"}
# Operator: inputs, the output's sizes, attributes; words of the message.
REFUSED = {
    "SpaceToBatchND": ([drawn(1, 2, 4, 4), [2, 3], [0, 0, 0, 0]], (6, 2, 2, 1), {}, "no multiple"),
    "BatchToSpaceND": ([drawn(4, 2, 2, 2), [2, 2], [0, 0, 0, -1]], (1, 2, 4, 4), {}, "an edge of -1"),
    "SpaceToBatchD": ([drawn(1, 2, 4, 4)], (4, 2, 2, 3), {"block_size": 2, "paddings": [0] * 4}, "the output is"),
    "BatchToSpaceD": ([drawn(4, 2, 2, 2)], (1, 2, 4, 4), {"block_size": 0, "crops": [0] * 4}, "is 0 long"),
    "SpaceToDepth": ([drawn(1, 2, 4, 5)], (1, 8, 2, 2), {"block_size": 2}, "do not fit"),
    "DepthToSpace": ([drawn(1, 7, 2, 2)], (1, 2, 4, 4), {"block_size": 2}, "the smaller tensor is"),
    "ShuffleChannel": ([drawn(1, 7, 2, 2)], (1, 7, 2, 2), {"group": 2}, "group is 2"),
    "PadV3": ([drawn(3), [1, 3], drawn(1)], (7,), {"mode": "reflect"}, "more than a side"),
    "PadV3Grad": ([drawn(7), [1, 1]], (6,), {"mode": "edge"}, "the padded tensor is"),
    "MirrorPad": ([drawn(3), [1, 1]], (5,), {"mode": "WRAP"}, '"WRAP"'),
    "MirrorPadGrad": ([drawn(5), [1]], (3,), {"mode": "SYMMETRIC"}, "1 paddings"),
    "MaxPool3D": ([drawn(1, 1, 4, 4, 4)], (1, 1, 2, 2, 3), POOL, "the output is"),
    "MaxPool3DGrad": ([drawn(1, 1, 4, 4, 4), drawn(1, 1, 2, 2, 2), drawn(1, 1, 2, 2, 1)], (1, 1, 4, 4, 4), POOL, "the gradient is"),
    "AvgPool3D": ([drawn(1, 1, 4, 4, 1)], (1, 1, 2, 2, 1), POOL, "do not fit into 1"),
    "AvgPool3DGrad": ([[1, 1, 4, 4, 4], drawn(1, 1, 2, 2, 2)], (1, 1, 4, 4, 5), POOL, "the gradient of x is"),
    "CustAdaptiveAvgPool2DGrad": ([drawn(1, 2, 2, 2), [1, 3, 4, 4]], (1, 3, 4, 4), {}, "the gradient is"),
    "CustAdaptiveAvgPool3d": ([drawn(1, 2, 4, 4, 4)], (1, 2, 2, 2, 2), {"output_size": [2, 2]}, "2 values"),
    "CustAdaptiveAvgPool3dGrad": ([drawn(1, 2, 2, 2, 2), [1, 2, 4, 4, 4]], (1, 2, 4, 4, 3), {}, "the gradient of x is"),
    "ResizeBilinearV2Grad": ([drawn(1, 2, 4, 4), drawn(1, 2, 3, 3)], (1, 2, 3, 2), {}, "the gradient of x is"),
    "ResizeNearestNeighborV2Grad": ([drawn(1, 2, 4, 4), [3, 0]], (1, 2, 3, 3), {}, "the size"),
    "Softplus": ([drawn(3)], (4,), {}, "expected shape"),
    "SoftplusGrad": ([drawn(3), drawn(4)], (3,), {}, "expected shape"),
    "Softsign": ([drawn(3)], (4,), {}, "expected shape"),
    "CeluV2": ([drawn(3)], (4,), {}, "expected shape"),
    "FastGelu": ([drawn(3)], (4,), {}, "expected shape"),
    "FastGeluGrad": ([drawn(3), drawn(4)], (3,), {}, "expected shape"),
    "SqrtGrad": ([drawn(3), drawn(4)], (3,), {}, "expected shape"),
    "L2NormalizeGrad": ([drawn(3), drawn(3), drawn(4)], (3,), {"dim": [0]}, "expected shape"),
    "LRNGrad": ([drawn(2, 3, 4)] * 3, (2, 3, 4), {}, "expected [any, any, any, any]"),
    "KlDivLossGrad": ([drawn(2), drawn(3), drawn(3)], (3,), {}, "expected shape"),
    "CTCLoss": ([drawn(4, 2, 3), torch.zeros(3, 2, dtype=torch.int64), torch.zeros(2, dtype=I32), torch.ones(2, dtype=I32)], (2,), {}, "the places of the labels"),
    "LarsV2Update": ([drawn(3), drawn(3), drawn(2), drawn(1), drawn(1), drawn(1)], (3,), {}, "a number is"),
    "ScatterNd": ([torch.tensor([[0]]), drawn(2), [3]], (3,), {}, "the updates is"),
    "UnsortedSegmentMax": ([drawn(3, 2), torch.tensor([0, 1]), [2]], (2, 2), {}, "the segments"),
    "UnsortedSegmentMin": ([drawn(3, 2), torch.tensor([0, 1]), [2]], (2, 2), {}, "the segments"),
    "ReverseSequence": ([drawn(3, 2), torch.tensor([0, 1, 2])], (3, 2), {"seq_dim": 0, "batch_dim": 0}, "batch_dim 0"),
    "MatrixBandPart": ([drawn(3), [0], [0]], (3,), {}, "expected matrices"),
    "MatrixInverse": ([drawn(2, 3)], (2, 3), {}, "expected square matrices"),
    "MatrixDeterminant": ([drawn(2, 3, 3)], (3,), {}, "expected 2 elements"),
    "LogMatrixDeterminant": ([drawn(2, 3, 3)], (3,), {}, "expected 2 elements"),
    "Trace": ([drawn(2, 3, 3)], (1,), {}, "expected [any, any]"),
    "CustTraceGrad": ([drawn(1), [2, 3]], (3, 2), {}, "the gradient of x is"),
    "DynamicGRUV2": ([drawn(1, 1, 1), drawn(1, 3), drawn(1, 3), None, None, None, drawn(1, 1)], (1, 1, 1), {"gate_order": "hrz"}, "gate_order"),
    "DynamicRNN": ([drawn(1, 1, 1), drawn(2, 4), drawn(4), None, drawn(1, 1, 1), drawn(1, 1, 1)], (1, 1, 1), {"gate_order": "oijf"}, "gate_order"),
}  # fmt: skip


def test_indices_without_a_dimension_are_refused() -> None:
    """Their last size, which says how many dimensions they name, is not there."""
    operands = [torch.tensor(0).npu(), drawn(1).npu(), [3]]
    status, message = launch("ScatterNd", operands, [torch.zeros(3).npu()])
    assert status == INVALID_ARGUMENT and "the indices are" in message, (status, message)


@pytest.mark.parametrize("name", REFUSED)
def test_a_call_that_does_not_fit_is_refused(name: str) -> None:
    inputs, size, attributes, words = REFUSED[name]
    operands = [each.npu() if isinstance(each, torch.Tensor) else each for each in inputs]
    outputs = [torch.zeros(size).npu() for _ in range(8)]
    status, message = launch(name, operands, outputs, **attributes)
    assert status == INVALID_ARGUMENT and words in message and name in message, (status, message)
