"""Old operators by which MindSpore takes tensors apart, steps its rarer optimizers, pools and resizes, against float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from aclop import check_refused, drawn, near, ran

X = drawn(2, 6, 4)
IMAGE = drawn(2, 3, 5, 7)


def test_parts() -> None:
    for found, part in zip(
        ran("Split", [[-2], X], *[(2, 2, 4)] * 3, num_split=3), X.split(2, 1), strict=True
    ):
        near(found, part)
    for found, part in zip(ran("Unpack", [X], *[(2, 6)] * 4, axis=-1, num=4), X.unbind(-1), strict=True):
        near(found, part)


@pytest.mark.parametrize("k", [-1, 0, 2])
def test_diagonals(k: int) -> None:
    matrix = drawn(2, 3, 4)
    values = matrix.diagonal(k, -2, -1).contiguous() + 1
    expected = matrix.clone()
    expected.diagonal(k, -2, -1).copy_(values)
    near(ran("MatrixSetDiagV3", [matrix, values, [k]], (2, 3, 4), align="RIGHT_LEFT")[0], expected)
    (made,) = ran("MatrixDiagV3", [values, [k], [3], [4], torch.tensor([9.0])], (2, 3, 4), align="RIGHT_LEFT")
    near(made, torch.full((2, 3, 4), 9.0).diagonal_scatter(values, k, -2, -1))


def test_values_come_in_the_order_of_their_first() -> None:
    x = torch.tensor([5, 2, 5, 9, 2, 1])
    values, places = ran("Unique", [x], (6, torch.int64), (6, torch.int64))
    assert values[:4].tolist() == [5, 2, 9, 1] and places.tolist() == [0, 1, 0, 2, 1, 3]


def test_values_that_come_first_and_what_fills_the_rest() -> None:
    y, places = ran(
        "UniqueWithPad", [torch.tensor([5, 2, 5, 9, 2]), torch.tensor(-1)], *[(5, torch.int64)] * 2
    )
    assert y.tolist() == [5, 2, 9, -1, -1] and places.tolist() == [0, 1, 0, 2, 1]


def test_zeros_behind_one_element() -> None:
    x = drawn(2, 3, 1)
    (y,) = ran("CustPadding", [x], (2, 3, 4), pad_dim_size=4)
    assert torch.equal(y, F.pad(x.double(), (0, 3)))


def test_boxes_are_selected_by_truths_or_bytes() -> None:
    boxes = torch.tensor([[0.0, 0, 9, 9, 0.9], [1, 1, 10, 10, 0.8], [20, 20, 30, 30, 0.7]])
    for dtype in (torch.uint8, torch.bool):
        found = ran("NMSWithMask", [boxes], (3, 5), (3, torch.int32), (3, dtype), iou_threshold=0.5)
        assert found[2].tolist() == [1, 0, 1]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_the_number_of_elements(dtype: torch.dtype) -> None:
    assert [ran("Size", [x], (1, dtype))[0].item() for x in (X, drawn(3, 0), drawn(1)[0])] == [48, 0, 1]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("exclusive", [False, True])
def test_products(reverse: bool, exclusive: bool) -> None:
    (found,) = ran("Cumprod", [X, [1]], X.shape, reverse=reverse, exclusive=exclusive)
    wide = X.double().flip(1) if reverse else X.double()
    rows = [wide[:, : i + (0 if exclusive else 1)].prod(1) for i in range(6)]
    expected = torch.stack(rows, 1)
    near(found, expected.flip(1) if reverse else expected)


def ftrl(x: list[torch.Tensor]) -> list[torch.Tensor]:
    var, accum, linear, g, rate, l1, l2, power = x
    after = accum + g * g
    linear = linear + g - (after**-power - accum**-power) / rate * var
    shrunk = (linear.sign() * l1 - linear) / (after**-power / rate + 2 * l2)
    return [torch.where(linear.abs() > l1, shrunk, torch.zeros(())), after, linear]


def adadelta(x: list[torch.Tensor]) -> list[torch.Tensor]:
    var, accum, moved, rate, rho, epsilon, g = x
    parameter = torch.nn.Parameter(var.clone())
    step = torch.optim.Adadelta([parameter], float(rate), float(rho), float(epsilon))
    step.state[parameter] = {
        "step": torch.tensor(1.0),
        "square_avg": accum.clone(),
        "acc_delta": moved.clone(),
    }
    parameter.grad = g
    step.step()
    return [parameter.detach(), step.state[parameter]["square_avg"], step.state[parameter]["acc_delta"]]


def proximal(x: list[torch.Tensor]) -> list[torch.Tensor]:
    var, accum, rate, l1, l2, g = x
    after = accum + g * g
    rate = rate / after.sqrt()
    return [F.softshrink((var - rate * g) / rate, float(l1)) * rate / (1 + rate * l2), after]


def adamax(x: list[torch.Tensor]) -> list[torch.Tensor]:
    var, m, v, power, rate, b1, b2, epsilon, g = x
    m, v = b1 * m + (1 - b1) * g, torch.maximum(b2 * v, g.abs())
    return [var - rate / (1 - power) * m / (v + epsilon), m, v]


# What a call brings after the variable, and what is left of its first operands.
STEPS: dict[str, tuple[list[Any], Callable[[list[torch.Tensor]], list[torch.Tensor]]]] = {
    "ApplyFtrl": (["moment", "moment", "gradient", 0.1, 0.3, 0.2, -0.5], ftrl),
    "ApplyAdadeltaD": (["moment", "moment", 0.5, 0.9, 1e-4, "gradient"], adadelta),
    "ApplyProximalAdagradD": (["moment", 0.5, 0.2, 0.3, "gradient"], proximal),
    "ApplyAdaMaxD": (["moment", "moment", 0.9, 0.1, 0.9, 0.99, 1e-6, "gradient"], adamax),
}


@pytest.mark.parametrize("name", STEPS)
def test_steps_of_optimizers(name: str) -> None:
    rest, expected = STEPS[name]
    made = {"moment": lambda: drawn(40).abs() + 0.1, "gradient": lambda: drawn(40)}
    operands = [drawn(40), *(made[each]() if isinstance(each, str) else torch.tensor(each) for each in rest)]
    wide = expected([each.double() for each in operands])
    ran(name, operands, *[(40,)] * len(wide))
    for found, value in zip(ran.operands, wide, strict=False):  # type: ignore[attr-defined]
        near(found.double(), value, 1e-5)


@pytest.mark.parametrize("decay", [True, False])
@pytest.mark.parametrize("numbers", [(), (5,), (3, 5)])
def test_a_step_of_adam_into_outputs(decay: bool, numbers: tuple[int, ...]) -> None:
    """The numbers may be tensors: the operator is what MindSpore makes of a network's products and sums."""
    g, v, m, var = (drawn(3, 5) for _ in range(4))
    rest = [drawn(*numbers).abs() for _ in range(7 if decay else 6)]
    name = "AdamApplyOneWithDecay" if decay else "AdamApplyOne"
    rate, b1, left1, b2, left2, *last = (each.double() for each in rest)
    wide_m = b1 * m.double() + left1 * g.double()
    wide_v = b2 * v.double().abs() + left2 * g.double() ** 2
    step = wide_m / (last[-1] + wide_v.sqrt()) + (last[0] * var.double() if decay else 0)
    found = ran(name, [g, v.abs(), m, var, *rest], *[(3, 5)] * 3)
    for each, expected in zip(found, (wide_v, wide_m, var.double() - rate * step), strict=True):
        near(each, expected, 1e-5)


def test_normalized_images_and_neighbours() -> None:
    gamma, beta = drawn(3), drawn(3)
    y, mean, variance = ran("InstanceNorm", [IMAGE, gamma, beta], IMAGE.shape, (6,), (6,), epsilon=1e-5)
    near(y, F.instance_norm(IMAGE.double(), weight=gamma.double(), bias=beta.double(), eps=1e-5))
    near(mean, IMAGE.double().mean((2, 3)).flatten())
    near(variance, IMAGE.double().var((2, 3), correction=0).flatten())
    (y,) = ran("LRN", [IMAGE], IMAGE.shape, depth_radius=1, alpha=0.5, beta=0.75, bias=2.0)
    near(y, F.local_response_norm(IMAGE.double(), 3, alpha=1.5, beta=0.75, k=2.0))
    one, other = ran("SquareSumAll", [X, IMAGE], (), ())
    near(one, X.double().square().sum())
    near(other, IMAGE.double().square().sum())


def test_maxima_in_volumes_and_their_gradient() -> None:
    x = drawn(2, 3, 1, 8, 8)
    how: dict[str, Any] = {"ksize": [1, 3, 3], "strides": [1, 2, 2], "pads": [0, 1, 1], "dilation": [1, 1, 1]}
    wide = x.double().requires_grad_()
    expected, where = F.max_pool3d(wide, (1, 3, 3), (1, 2, 2), (0, 1, 1), return_indices=True)
    y, places = ran("CustMaxPool3DWithArgmax", [x], expected.shape, (*expected.shape, torch.int64), **how)
    near(y, expected.detach())
    assert torch.equal(places.long(), where)
    slope = drawn(*expected.shape)
    expected.backward(slope.double())
    assert wide.grad is not None
    near(ran("CustMaxPool3DGradWithArgmax", [x, slope, where], x.shape, **how)[0], wide.grad)
    (y,) = ran("CustAdaptiveAvgPool2D", [IMAGE], (2, 3, 2, 3), output_size=[2, 3])
    near(y, F.adaptive_avg_pool2d(IMAGE.double(), (2, 3)))


@pytest.mark.parametrize("size", [(9, 4), (5, 7), (1, 1)])
def test_other_sizes(size: tuple[int, int]) -> None:
    x, out = IMAGE.double(), (2, 3, *size)
    near(ran("ResizeNearestNeighborV2", [IMAGE, list(size)], out)[0], F.interpolate(x, size))
    (y,) = ran("ResizeNearestNeighborV2", [IMAGE, list(size)], out, half_pixel_centers=True)
    near(y, F.interpolate(x, size, mode="nearest-exact"))
    (y,) = ran("ResizeBilinearV2", [IMAGE, list(size)], out, half_pixel_centers=True)
    near(y, F.interpolate(x, size, mode="bilinear"))
    (y,) = ran("ResizeBilinearV2", [IMAGE, list(size)], out, align_corners=True)
    near(y, F.interpolate(x, size, mode="bilinear", align_corners=True))
    # Neither: the first pixels lie on each other.
    (y,) = ran("ResizeBilinearV2", [IMAGE, list(size)], out)
    rows, columns = ([min(i * n / m, n - 1) for i in range(m)] for n, m in zip((5, 7), size, strict=True))
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            a, b = int(row), int(column)
            corner = x[..., a : a + 2, b : b + 2]
            corner = F.pad(corner, (0, 2 - corner.shape[3], 0, 2 - corner.shape[2]), "replicate")
            u, v = row - a, column - b
            weights = torch.tensor(
                [[(1 - u) * (1 - v), (1 - u) * v], [u * (1 - v), u * v]], dtype=torch.float64
            )
            near(y[..., i, j], (corner * weights).sum((2, 3)))


# Operator: inputs, outputs, attributes and words of its refusal.
REFUSED: dict[str, tuple[list[Any], list[tuple[int, ...]], dict[str, Any], str]] = {
    "Split": ([[1], X], [(2, 3, 4)] * 2, {"num_split": 4}, "num_split is 4"),
    "Unpack": ([X], [(2, 6)] * 3, {"axis": 2, "num": 4}, "there are 3 outputs"),
    "MatrixDiagV3": ([drawn(3), [3], [3], [3], drawn(1)], [(3, 3)], {}, "k is 3"),
    "MatrixSetDiagV3": ([drawn(3, 3), drawn(2), [0]], [(3, 3)], {}, "the diagonal is"),
    "Unique": ([drawn(3)], [(3,), (3,)], {}, "the places is"),
    "CustPadding": ([drawn(2, 2)], [(2, 4)], {"pad_dim_size": 4}, "a last dimension of 1"),
    "UniqueWithPad": ([drawn(2), torch.tensor(0)], [(2,), (2,)], {}, "the places is"),
    "Size": ([X], [(2,)], {}, "expected one int32 or int64"),
    "Cumprod": ([X, [3]], [(2, 6, 4)], {}, "axis is 3"),
    "ApplyFtrl": ([drawn(3)] * 2 + [drawn(2), drawn(3)] + [drawn(1)] * 4, [(3,)], {}, "a moment is"),
    "AdamApplyOne": ([drawn(3, 5)] * 4 + [drawn(2)] * 6, [(3, 5)] * 3, {}, "does not become"),
    "AdamApplyOneWithDecay": ([drawn(3)] * 3 + [drawn(2)] + [drawn(1)] * 7, [(3,)] * 3, {}, "a moment or the variable"),
    "InstanceNorm": ([IMAGE, drawn(4), drawn(3)], [(2, 3, 5, 7), (6,), (6,)], {}, "gamma or beta is"),
    "ResizeBilinearV2": ([IMAGE, [2, 0]], [(2, 3, 2, 1)], {}, "2 positive values"),
    "ResizeNearestNeighborV2": (
        [IMAGE, [2, 2]], [(2, 3, 2, 2)], {"align_corners": True, "half_pixel_centers": True}, "both true",
    ),
    "CustMaxPool3DWithArgmax": ([drawn(1, 1, 1, 4, 4)], [(1, 1, 1, 2, 2)] * 2, {"ksize": [2, 2]}, "2 values"),
    "CustAdaptiveAvgPool2D": ([IMAGE], [(2, 3, 2, 2)], {"output_size": [2]}, "1 values"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    inputs, sizes, attributes, words = REFUSED[name]
    check_refused(name, inputs, sizes, attributes, words)
