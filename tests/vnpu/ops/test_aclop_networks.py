"""Operators of the old API that MindSpore's layers and optimizers call by their type, against torch in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from aclop import check_refused, drawn, near, ran

X = drawn(3, 4, 5, 6)
G = drawn(3, 4, 5, 6)


@pytest.mark.parametrize("bias", [True, False])
def test_bias(bias: bool) -> None:
    values = drawn(4)
    (y,) = ran("BiasAdd", [X, values], X.shape, data_format="NCHW")
    near(y, X.double() + values.double().view(1, 4, 1, 1))
    (last,) = ran("BiasAdd", [X, drawn(6)], X.shape, data_format="NHWC")
    assert not torch.equal(last, y)
    (slope,) = ran("BiasAddGrad", [X], (4,), data_format="NCHW")
    near(slope, X.double().sum((0, 2, 3)))


POINTWISE: dict[str, tuple[str, Callable[[torch.Tensor], torch.Tensor], bool]] = {
    "Relu6": ("Relu6Grad", lambda x: F.relu6(x * 4), False),
    "Elu": ("EluGrad", F.elu, True),
    "Selu": ("SeluGrad", F.selu, True),
}


@pytest.mark.parametrize("name", POINTWISE)
def test_activations_and_their_gradients(name: str) -> None:
    gradient, function, by_result = POINTWISE[name]
    x = X * 4 if name == "Relu6" else X
    wide = X.double().requires_grad_()
    expected = function(wide)
    (y,) = ran(name, [x], x.shape)
    near(y, expected.detach())
    (slope,) = torch.autograd.grad(expected, wide, G.double())
    (found,) = ran(gradient, [G, y.float() if by_result else x], x.shape)
    near(found * (4 if name == "Relu6" else 1), slope)


def test_batch_normalization_in_its_parts() -> None:
    scale, offset = drawn(4), drawn(4)
    mean, variance = torch.zeros(4), torch.ones(4)
    wide, gamma, beta = (each.double().requires_grad_() for each in (X, scale, offset))
    running = [mean.double(), variance.double()]
    expected = F.batch_norm(wide, *running, gamma, beta, training=True, momentum=0.1, eps=1e-5)
    total, squares = ran("BNTrainingReduce", [X], (4,), (4,))
    # Summed in double and rounded once: the variance is the difference of two large numbers.
    assert torch.equal(total, X.double().sum((0, 2, 3)).float().double())
    assert torch.equal(squares, X.double().square().sum((0, 2, 3)).float().double())
    inputs = [X, total.float(), squares.float(), scale, offset, mean, variance]
    y, new_mean, new_variance, batch_mean, batch_variance = ran(
        "BNTrainingUpdate", inputs, X.shape, (4,), (4,), (4,), (4,), factor=0.1, epsilon=1e-5
    )
    near(y, expected.detach(), 1e-5)
    near(new_mean, running[0])
    near(new_variance, running[1])
    assert torch.equal(batch_mean, (total / 90).float().double())
    assert torch.equal(batch_variance, (squares / 90 - (total / 90) ** 2).float().double())
    slopes = torch.autograd.grad(expected, (wide, gamma, beta), G.double())
    means = [batch_mean.float(), batch_variance.float()]
    found = ran("BNTrainingUpdateGrad", [G, X, *means], (4,), (4,), epsilon=1e-5)
    near(found[0], slopes[1], 1e-5)
    near(found[1], slopes[2], 1e-5)
    (slope,) = ran(
        "BNTrainingReduceGrad",
        [G, X, *(each.float() for each in found), scale, *means],
        X.shape,
        epsilon=1e-5,
    )
    near(slope, slopes[0], 1e-5)
    (infer,) = ran("BNInfer", [X, scale, offset, *means], X.shape, epsilon=1e-5)
    near(infer, expected.detach(), 1e-5)
    (back,) = ran("BNInferGrad", [G, scale, means[1]], X.shape, epsilon=1e-5)
    near(back, G.double() * (scale.double() / (means[1].double() + 1e-5).sqrt()).view(1, 4, 1, 1))


@pytest.mark.parametrize("padding", ["VALID", "SAME"])
def test_pools_and_their_gradients(padding: str) -> None:
    attributes = {"ksize": [1, 1, 3, 3], "strides": [1, 1, 2, 2], "padding": padding, "data_format": "NCHW"}
    x = drawn(2, 3, 7, 8)
    wide = x.double().requires_grad_()
    # SAME: rows 7 -> 4 windows, 9 wanted: one above and one below; columns 8 -> 4 windows, 9 wanted: one to the right.
    pads = (0, 1, 1, 1) if padding == "SAME" else (0, 0, 0, 0)
    best = F.max_pool2d(F.pad(wide, pads, value=float("-inf")), 3, 2)
    held = F.avg_pool2d(F.pad(torch.ones_like(wide), pads), 3, 2)
    mean = F.avg_pool2d(F.pad(wide, pads), 3, 2) / held
    gradient = drawn(*best.shape)
    (y,) = ran("MaxPool", [x], best.shape, **attributes)
    near(y, best.detach())
    (found,) = ran("MaxPoolGrad", [x, y.float(), gradient], x.shape, **attributes)
    near(found, torch.autograd.grad(best, wide, gradient.double())[0])
    (y,) = ran("AvgPool", [x], mean.shape, **attributes)
    near(y, mean.detach())
    (found,) = ran("AvgPoolGrad", [list(x.shape), gradient], x.shape, **attributes)
    near(found, torch.autograd.grad(mean, wide, gradient.double())[0])


def test_norms_and_losses() -> None:
    x = drawn(4, 5)
    wide = x.double()
    (y,) = ran("L2Normalize", [x], x.shape, axis=[1], eps=1e-4)
    near(y, wide / (wide * wide).sum(1, True).sqrt())
    (y,) = ran("LpNorm", [x], (4,), p=2, axes=[1], keepdim=False, epsilon=1e-12)
    near(y, wide.norm(dim=1))
    deviation, mean = ran("ReduceStd", [x], (4,), (4,), dim=[1], unbiased=True, keepdim=False)
    near(deviation, wide.std(1))
    near(mean, wide.mean(1))
    target = drawn(4, 5).softmax(1)
    for reduction in ("none", "sum", "mean", "batchmean"):
        size = (4, 5) if reduction == "none" else ()
        (y,) = ran("KLDiv", [x, target], size, reduction=reduction)
        near(y, F.kl_div(wide, target.double(), reduction=reduction), 1e-5)
    (y,) = ran("Diag", [x[0]], (5, 5))
    near(y, torch.diag(wide[0]))


def test_what_picks_and_places() -> None:
    x = drawn(3, 4)
    wide = x.double()
    classes = torch.tensor([0, 2, 5], dtype=torch.int32)
    (y,) = ran("OneHot", [classes, [4], torch.tensor([2.0]), torch.tensor([-1.0])], (3, 4), axis=-1)
    near(y, torch.tensor([[2.0, -1, -1, -1], [-1, -1, 2, -1], [-1, -1, -1, -1]]))
    values, where = ran("TopK", [x, [2]], (3, 2), (3, 2, torch.int32), sorted=True, largest=True, dim=-1)
    near(values, wide.topk(2)[0])
    near(where, wide.topk(2)[1])
    values, where = ran("Sort", [x], (3, 4), (3, 4, torch.int32), axis=-1, descending=True)
    near(values, wide.sort(descending=True)[0])
    near(where, wide.sort(descending=True)[1])
    segments = torch.tensor([1, -1, 1], dtype=torch.int32)
    (y,) = ran("UnsortedSegmentSum", [x, segments, [3]], (3, 4))
    near(y, torch.stack([torch.zeros(4).double(), wide[0] + wide[2], torch.zeros(4).double()]))
    places = torch.tensor([[0, 1], [2, 3]], dtype=torch.int32)
    (y,) = ran("GatherNd", [x, places], (2,))
    near(y, torch.stack([wide[0, 1], wide[2, 3]]))
    (y,) = ran("TensorScatterUpdate", [x, places, torch.tensor([8.0, 9.0])], (3, 4))
    expected = wide.clone()
    expected[0, 1], expected[2, 3] = 8, 9
    near(y, expected)
    (y,) = ran("Cumsum", [x, [1]], (3, 4), exclusive=True, reverse=True)
    near(y, wide.flip(1).cumsum(1).flip(1) - wide)


def test_the_gradient_of_a_slice_lies_where_the_slice_was() -> None:
    x = drawn(3, 4).double().requires_grad_()
    gradient = drawn(2)
    (x[::2, 1] * gradient.double()).sum().backward()
    inputs = [[3, 4], [0, 1], [3, 2], [2, 1], gradient]
    (y,) = ran("StridedSliceGrad", inputs, (3, 4), shrink_axis_mask=2, begin_mask=0, end_mask=0)
    near(y, x.grad)


def test_variables_are_written() -> None:
    one, value = drawn(3), drawn(3)
    for name, expected in (("Assign", value), ("AssignAdd", one + value), ("AssignSub", one - value)):
        (y,) = ran(name, [one.clone(), value], (3,))
        near(y, expected)
        near(ran.operands[0].double(), expected)  # type: ignore[attr-defined]
    (y,) = ran("AddN", [one, value, one], (3,))
    near(y, 2 * one.double() + value.double())
    (y,) = ran("TensorMove", [one], (3,))
    near(y, one)


@pytest.mark.parametrize("nesterov", [False, True])
def test_steps_of_optimizers_are_torchs(nesterov: bool) -> None:
    start, slope = drawn(5), drawn(5)

    def after(kind: Any, steps: int, **options: Any) -> torch.Tensor:
        parameter = torch.nn.Parameter(start.double())
        optimizer = kind([parameter], lr=0.1, **options)
        for _ in range(steps):
            parameter.grad = slope.double()
            optimizer.step()
        return parameter.detach()

    rate, share = torch.tensor([0.1]), torch.tensor([0.9])
    accumulated, stat, current = torch.zeros(5), torch.ones(5), start.clone()
    for _ in range(3):
        (y,) = ran(
            "SGD", [current, slope, rate, accumulated, share, stat], (5,), weight_decay=0.01, dampening=0.0,
            nesterov=nesterov,
        )  # fmt: skip
        current, accumulated, stat = (ran.operands[i] for i in (0, 3, 5))  # type: ignore[attr-defined]
    near(y, after(torch.optim.SGD, 3, momentum=0.9, weight_decay=0.01, nesterov=nesterov))
    accumulated, current = torch.zeros(5), start.clone()
    for _ in range(3):
        (y,) = ran("ApplyMomentum", [current, accumulated, rate, slope, share], (5,), use_nesterov=nesterov)
        current, accumulated = (ran.operands[i] for i in (0, 1))  # type: ignore[attr-defined]
    near(y, after(torch.optim.SGD, 3, momentum=0.9, nesterov=nesterov))


def test_adam_and_adagrad() -> None:
    start, slope = drawn(5), drawn(5)
    m, v, current = torch.zeros(5), torch.zeros(5), start.clone()
    wide_m, wide_v, expected = torch.zeros(5).double(), torch.zeros(5).double(), start.double()
    numbers = [torch.tensor([n]) for n in (0.1, 0.9, 0.999, 1e-8)]
    for step in range(1, 4):
        powers = [torch.tensor([0.9**step]), torch.tensor([0.999**step])]
        ran("ApplyAdam", [current, m, v, *powers, *numbers, slope], (5,), (5,), (5,))
        current, m, v = (ran.operands[i] for i in range(3))  # type: ignore[attr-defined]
        wide_m = 0.9 * wide_m + 0.1 * slope.double()
        wide_v = 0.999 * wide_v + 0.001 * slope.double() ** 2
        rate = 0.1 * (1 - 0.999**step) ** 0.5 / (1 - 0.9**step)
        expected = expected - rate * wide_m / (wide_v.sqrt() + 1e-8)
    near(current.double(), expected, 1e-5)
    ran("ApplyAdagrad", [start.clone(), torch.ones(5), numbers[0], slope], (5,), (5,))
    near(ran.operands[0].double(), start.double() - 0.1 * slope.double() / (1 + slope.double() ** 2).sqrt())  # type: ignore[attr-defined]


def test_a_step_of_adam_with_decay() -> None:
    start, slope = drawn(5), drawn(5)
    m, v = torch.zeros(5), torch.zeros(5)
    numbers = [torch.tensor([n]) for n in (0.1, 0.9, 0.1, 0.999, 0.001, 0.01, 1e-6)]
    ran("AdamApplyOneWithDecayAssign", [slope, v, m, start.clone(), *numbers], (5,), (5,), (5,))
    wide, g = start.double(), slope.double()
    expected = wide - 0.1 * (0.1 * g / ((0.001 * g * g).sqrt() + 1e-6) + 0.01 * wide)
    near(ran.operands[3].double(), expected, 1e-5)  # type: ignore[attr-defined]
    near(ran.operands[1].double(), 0.001 * g * g)  # type: ignore[attr-defined]


def test_rms_prop_is_torchs() -> None:
    start, slope = drawn(5), drawn(5)
    parameter = torch.nn.Parameter(start.double())
    optimizer = torch.optim.RMSprop([parameter], lr=0.1, alpha=0.9, momentum=0.5, eps=0)
    numbers = [torch.tensor([n]) for n in (0.1, 0.9, 0.5, 0.0)]
    current, squares, moved = start.clone(), torch.zeros(5), torch.zeros(5)
    for _ in range(3):
        parameter.grad = slope.double()
        optimizer.step()
        ran("ApplyRMSProp", [current, squares, moved, *numbers, slope], (5,), (5,), (5,))
        current, squares, moved = (ran.operands[i] for i in range(3))  # type: ignore[attr-defined]
    near(current.double(), parameter.detach(), 1e-5)


def test_what_is_drawn() -> None:
    """Another draw each time, with the moments that they have, and a bit for each element of a mask."""
    normal = [ran("RandomStandardNormal", [[4096]], (4096,), seed=1, seed2=2)[0] for _ in range(2)]
    assert not torch.equal(*normal)
    assert abs(float(normal[0].mean())) < 0.1 and abs(float(normal[0].std()) - 1) < 0.1
    (uniform,) = ran("RandomUniform", [[4096]], (4096,), seed=1, seed2=2)
    assert float(uniform.min()) >= 0 and float(uniform.max()) < 1 and abs(float(uniform.mean()) - 0.5) < 0.05
    keep = torch.tensor([0.75])
    masks = [ran("DropOutGenMask", [[4096], keep], (512, torch.uint8), seed=1, seed2=2)[0] for _ in range(2)]
    assert not torch.equal(*masks)
    bits = sum(bin(int(byte)).count("1") for byte in masks[0])
    assert abs(bits / 4096 - 0.75) < 0.05
    (y,) = ran("DropOutDoMask", [torch.ones(4096), masks[0].to(torch.uint8), keep], (4096,))
    assert int((y != 0).sum()) == bits


REFUSED: dict[str, tuple[list[Any], tuple[Any, ...], dict[str, Any], str]] = {
    "BiasAdd": ([X, drawn(5)], (X.shape,), {"data_format": "NCHW"}, "the bias is"),
    "EluGrad": ([X, drawn(3)], (X.shape,), {}, "expected shape and dtype"),
    "BNTrainingUpdate": ([X, *[drawn(3)] * 6], (X.shape, *[(4,)] * 4), {}, "by channel"),
    "MaxPool": (
        [X], ((3, 4, 2, 2),),
        {"ksize": [1, 1, 2, 2], "strides": [1, 1, 2, 2], "padding": "FULL", "data_format": "NCHW"},
        "allowed are SAME and VALID",
    ),
    "AvgPool": (
        [X], ((3, 4, 2, 2),),
        {"ksize": [1, 1, 2, 2], "strides": [1, 1, 2, 2], "padding": "VALID", "data_format": "NCHW"}, "the output is",
    ),
    "OneHot": ([torch.tensor([0], dtype=torch.int32), [4], drawn(1), drawn(1)], ((1, 5),), {}, "the output"),
    "TopK": ([drawn(3), [4]], ((4,), (4, torch.int32)), {}, "k is 4"),
    "UnsortedSegmentSum": ([drawn(3, 2), torch.tensor([0, 1]), [2]], ((2, 2),), {}, "the segments"),
    "GatherNd": ([drawn(3), torch.tensor([[0, 1]])], ((1,),), {}, "the indices"),
    "Cumsum": ([drawn(3), [1]], ((3,),), {}, "axis is 1"),
    "Assign": ([drawn(3), drawn(4)], ((3,),), {}, "the value"),
    "SGD": ([drawn(3), drawn(4), drawn(1), drawn(3), drawn(1), drawn(3)], ((3,),), {}, "the gradient"),
    "DropOutGenMask": ([[256], torch.tensor([0.5])], ((16, torch.uint8),), {}, "the mask"),
    "RandomUniform": ([[4]], ((5,),), {}, "the output"),
    "KLDiv": ([drawn(3), drawn(4)], ((),), {}, "the target"),
    "L2Normalize": ([drawn(3)], ((3,),), {"axis": [1]}, "axis is 1"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name: str) -> None:
    inputs, sizes, attributes, words = REFUSED[name]
    check_refused(name, inputs, sizes, attributes, words)
