"""Elementary functions, diagonals and running extremes that MindSpore calls by their type, against float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from aclop import check_refused, drawn, launch, near, ran

INSIDE = torch.linspace(-0.9, 0.9, 24).view(4, 6)
ABOVE = torch.linspace(1.2, 9, 24).view(4, 6)
G = drawn(4, 6)
I8, I16, I32, I64, BOOL, F64 = (
    *(torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.bool, torch.float64),
)

# The function, where it is taken, and its gradient's type, which is given the function's result where `by_result`.
FUNCTIONS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], torch.Tensor, str, bool]] = {
    "Acos": (torch.acos, INSIDE, "AcosGrad", False),
    "Acosh": (torch.acosh, ABOVE, "AcoshGrad", True),
    "Asin": (torch.asin, INSIDE, "AsinGrad", False),
    "Asinh": (torch.asinh, ABOVE - 5, "AsinhGrad", True),
    "Atan": (torch.atan, ABOVE - 5, "AtanGrad", False),
    "Inv": (torch.reciprocal, ABOVE, "InvGrad", True),
    "Reciprocal": (torch.reciprocal, ABOVE, "ReciprocalGrad", True),
    "Rsqrt": (torch.rsqrt, ABOVE, "RsqrtGrad", True),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_functions_and_their_gradients(name: str, dtype: torch.dtype) -> None:
    function, x, gradient, by_result = FUNCTIONS[name]
    x, slope = x.to(dtype), G.to(dtype)
    tolerance = 2e-6 if dtype == torch.float32 else 2e-3
    wide = x.double().requires_grad_()
    expected = function(wide)
    near(ran(name, [x], (*x.shape, dtype))[0], expected.detach(), tolerance)
    given = expected.detach().to(dtype) if by_result else x
    if by_result:  # what it is differentiated by is rounded, too
        result = given.double()
        slopes = {
            "AcoshGrad": 1 / result.sinh(),
            "AsinhGrad": 1 / result.cosh(),
            "RsqrtGrad": -(result**3) / 2,
        }
        exact = slope.double() * slopes.get(gradient, -(result**2))
    else:
        (exact,) = torch.autograd.grad(expected, wide, slope.double())
    near(ran(gradient, [given, slope], (*x.shape, dtype))[0], exact, tolerance)


@pytest.mark.parametrize("eps", [None, 0.1])
def test_logit(eps: float | None) -> None:
    x = torch.linspace(0.02, 0.98, 24).view(4, 6)
    wide = x.double().requires_grad_()
    expected = torch.logit(wide, eps)
    attributes = {} if eps is None else {"eps": eps}
    near(ran("CustLogit", [x], x.shape, **attributes)[0], expected.detach())
    (slope,) = torch.autograd.grad(expected, wide, G.double())
    near(ran("CustLogitGrad", [G, x], x.shape, **attributes)[0], slope)


WHOLE = torch.tensor([[7, -7, 12], [-9, 1, 30]])
OTHER = torch.tensor([3, -2, 8])
# The operands, and what is expected of them in float64 or whole numbers.
PAIRS: dict[str, tuple[torch.Tensor, torch.Tensor, Callable[[Any, Any], torch.Tensor]]] = {
    "BitwiseAnd": (WHOLE, OTHER, lambda x, y: x & y),
    "BitwiseOr": (WHOLE, OTHER, lambda x, y: x | y),
    "BitwiseXor": (WHOLE, OTHER, lambda x, y: x ^ y),
    "LeftShift": (WHOLE, OTHER.abs(), lambda x, y: x * 2**y),
    "RightShift": (WHOLE, OTHER.abs(), lambda x, y: (x.double() / 2.0**y).floor().long()),
    "TruncateDiv": (WHOLE, OTHER, lambda x, y: (x.double() / y).trunc().long()),
    "TruncateMod": (WHOLE, OTHER, lambda x, y: x - (x.double() / y).trunc().long() * y),
    "CustGcd": (WHOLE, OTHER, torch.gcd),
    "CustLcm": (WHOLE, OTHER, lambda x, y: (x * y).abs() // torch.gcd(x, y)),
    "CustHeaviside": (WHOLE - 7, OTHER, lambda x, y: torch.where(x == 0, y, (x > 0).long())),
    "SquaredDifference": (INSIDE, ABOVE[0], lambda x, y: (x - y) ** 2),
    "Xdivy": (INSIDE.clone().fill_diagonal_(0), ABOVE, lambda x, y: x / y),
    "Xlogy": (INSIDE, ABOVE[0], lambda x, y: x * y.log()),
    "CustHypot": (INSIDE, ABOVE, lambda x, y: (x * x + y * y).sqrt()),
}


@pytest.mark.parametrize("name", PAIRS)
def test_pairs(name: str) -> None:
    x, y, function = PAIRS[name]
    if x.is_floating_point():
        near(ran(name, [x, y], x.shape)[0], function(x.double(), y.double()))
        return
    for dtype in (I64, I32, I16):
        (found,) = ran(name, [x.to(dtype), y.to(dtype)], (*x.shape, dtype))
        assert found.tolist() == function(x, y).tolist()


def test_nothing_times_anything_is_nothing() -> None:
    zero, other = torch.zeros(3), torch.tensor([0.0, torch.nan, torch.inf])
    for name in ("Xdivy", "Xlogy"):
        assert ran(name, [zero, other], (3,))[0].tolist() == [0, 0, 0]


def test_truncated_division_of_floats() -> None:
    x, y = torch.tensor([7.5, -7.5]), torch.tensor([2.0, 2.0])
    assert ran("TruncateDiv", [x, y], (2,))[0].tolist() == [3, -3]
    assert ran("TruncateMod", [x, y], (2,))[0].tolist() == [1.5, -1.5]


def test_the_next_number_and_the_smallest_step() -> None:
    x, y = torch.tensor([1.0, 1.0, -3.0]), torch.tensor([2.0, 0.0, -3.0])
    assert ran("NextAfter", [x, y], (3,))[0].tolist() == [1 + 2.0**-23, 1 - 2.0**-24, -3]
    for dtype in (torch.float16, torch.float32, F64):
        assert (
            ran("CustEps", [torch.ones(2, dtype=dtype)], (2, dtype))[0].tolist()
            == [torch.finfo(dtype).eps] * 2
        )


def test_about_equal() -> None:
    x, y = torch.tensor([1.0, 1.0, 2.0]), torch.tensor([1.05, 1.2, 2.0])
    assert ran("ApproximateEqual", [x, y], (3, BOOL), tolerance=0.1)[0].tolist() == [1, 0, 1]
    assert ran("ApproximateEqual", [x, y], (3, BOOL))[0].tolist() == [0, 0, 1]


def packed(matrix: torch.Tensor, low: int, high: int, align: str, fill: float) -> torch.Tensor:
    """TensorFlow's matrix_diag_part, element by element."""
    above, below = align.split("_")
    rows, columns = matrix.shape[-2:]
    most = min(rows + min(high, 0), columns - max(low, 0))
    out = torch.full((*matrix.shape[:-2], high - low + 1, most), fill, dtype=torch.float64)
    for k in range(low, high + 1):
        length = min(rows + min(k, 0), columns - max(k, 0))
        side = above if k > 0 else below
        for i in range(length):
            to = i if side == "LEFT" else most - length + i
            out[..., high - k, to] = matrix[..., i - min(k, 0), i + max(k, 0)].double()
    return out


@pytest.mark.parametrize("align", ["LEFT_RIGHT", "RIGHT_LEFT", "LEFT_LEFT", "RIGHT_RIGHT"])
@pytest.mark.parametrize("ends", [(0, 0), (-1, 2), (1, 2), (-2, -1)])
@pytest.mark.parametrize("shape", [(2, 3, 4), (4, 3)])
def test_bands(align: str, ends: tuple[int, int], shape: tuple[int, ...]) -> None:
    matrix, k = drawn(*shape), list(ends)
    band = packed(matrix, *ends, align, 9.0)
    (found,) = ran("MatrixDiagPartV3", [matrix, k, torch.tensor(9.0)], band.shape, align=align)
    near(found, band)
    inside = torch.ones(shape, dtype=torch.bool).triu(ends[0]).tril(ends[1])
    rows = [[shape[-2]], [shape[-1]], torch.tensor(5.0)]
    (made,) = ran("MatrixDiagV3", [band.float(), k, *rows], shape, align=align)
    near(made, torch.where(inside, matrix, 5.0))
    (changed,) = ran("MatrixSetDiagV3", [matrix, -band.float(), k], shape, align=align)
    near(changed, torch.where(inside, -matrix, matrix))


def test_diagonals() -> None:
    x = drawn(3, 4, 5)
    (found,) = ran("CustDiagonal", [x], (4, 3), offset=-1, dim1=2, dim2=0)
    near(found, x.diagonal(-1, 2, 0))
    square = drawn(2, 3, 2, 3)
    near(ran("DiagPart", [square], (2, 3))[0], torch.einsum("ijij->ij", square))
    rows = drawn(2, 3)
    near(
        ran("MatrixDiagD", [rows, torch.eye(3).expand(2, 3, 3).contiguous()], (2, 3, 3))[0], rows.diag_embed()
    )


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("exclusive", [False, True])
def test_running_exponentials(reverse: bool, exclusive: bool) -> None:
    x = drawn(3, 5)
    (found,) = ran("CumulativeLogsumexp", [x, [1]], x.shape, reverse=reverse, exclusive=exclusive)
    wide = x.double().flip(1) if reverse else x.double()
    columns = [wide[:, : i + (0 if exclusive else 1)].exp().sum(1).log() for i in range(5)]
    expected = torch.stack(columns, 1).clamp(min=float(torch.finfo(torch.float32).min))
    near(found, expected.flip(1) if reverse else expected)


def test_running_minima_and_the_least() -> None:
    x = torch.tensor([[3.0, 1.0, 1.0, 4.0], [2.0, 5.0, -1.0, 0.0]])
    least, where = ran("Cummin", [x], x.shape, (2, 4, I32), axis=-1)
    assert least.tolist() == [[3, 1, 1, 1], [2, 2, -1, -1]]
    assert x.gather(1, where.long()).tolist() == least.tolist()
    assert ran("ArgMin", [x, [1]], (2, I64))[0].tolist() == [1, 2]


def test_sizes_and_parts_of_complex_numbers() -> None:
    assert ran("Shape", [drawn(3, 0, 5)], (3, I64))[0].tolist() == [3, 0, 5]
    z = torch.complex(drawn(2, 3), drawn(2, 3))
    near(ran("CustReal", [z], (2, 3))[0], z.real)
    for name in ("CustImag", "Imag"):
        near(ran(name, [z], (2, 3))[0], z.imag)
    near(ran("Angle", [z], (2, 3))[0], torch.atan2(z.imag.double(), z.real.double()))
    out = torch.zeros(2, 3, dtype=torch.complex64).npu()
    assert launch("Complex", [z.real.contiguous().npu(), z.imag.contiguous().npu()], [out]) == (0, "")
    assert torch.equal(out.cpu(), z)
    # Descriptors have sizes of 1 that the program's tensors do not have.
    one = torch.zeros((), dtype=torch.complex64).npu()
    assert launch("Complex", [torch.tensor(2.0).npu(), torch.tensor([3.0]).npu()], [one]) == (0, "")
    assert one.item() == 2 + 3j


def test_powers_of_a_base() -> None:
    one, four = torch.tensor(1.0), torch.tensor(4.0)
    near(ran("CustLogSpace", [one, four], (7,), steps=7, base=2)[0], 2 ** torch.linspace(1, 4, 7).double())


def test_the_gradient_of_a_slice_and_what_is_put_together() -> None:
    slope = drawn(2, 3)
    (found,) = ran("CustSliceGrad", [slope, drawn(3, 5), [1, 2], [2, -1]], (3, 5))
    expected = torch.zeros(3, 5)
    expected[1:, 2:] = slope
    near(found, expected)
    rows = [drawn(1, 3), drawn(1, 3)]
    parts = [drawn(2, 3), drawn(2, 1)]
    near(ran("Concat", [[-1], *parts], (2, 4), N=2)[0], torch.cat(parts, 1))
    near(ran("ParallelConcat", rows, (2, 3), shape=[2, 3], N=2)[0], torch.cat(rows))


@pytest.mark.parametrize("accumulate", [0, 1])
def test_putting_at_places(accumulate: int) -> None:
    x, values = drawn(3, 4), drawn(3)
    places = [torch.tensor([0, 2, 0], dtype=I32), torch.tensor([1, 3, 1 + 1 - accumulate], dtype=I32)]
    (found,) = ran("CustIndexPut", [x, values, *places], (3, 4), accumulate=accumulate)
    expected = x.double().clone()
    for value, i, j in zip(values.tolist(), *(place.tolist() for place in places), strict=True):
        expected[i, j] = value + (expected[i, j] if accumulate else 0)
    near(found, expected)


@pytest.mark.parametrize("mode", ["valid", "same", "full"])
@pytest.mark.parametrize("lengths", [(6, 3), (6, 4), (3, 6), (4, 7), (5, 5)])
def test_sequences_at_each_distance(mode: str, lengths: tuple[int, int]) -> None:
    a, v = drawn(lengths[0]), drawn(lengths[1])
    expected = torch.from_numpy(np.correlate(a.double().numpy(), v.double().numpy(), mode))
    near(ran("CustCorrelate", [a, v], expected.shape, mode=mode)[0], expected)


def test_a_factor_of_another_dtype() -> None:
    x, y, z = drawn(3), drawn(3), drawn(3)
    near(ran("Addcmul", [x, y, z, torch.tensor(3)], (3,))[0], x.double() + 3 * y.double() * z.double())
    near(ran("Addcdiv", [x, y, z, torch.tensor(3)], (3,))[0], x.double() + 3 * y.double() / z.double(), 1e-5)


@pytest.mark.parametrize("axes", [[1], [0, -1], []])
def test_products_over_dimensions(axes: list[int]) -> None:
    x = drawn(2, 3, 4)
    kept = [i for i in range(3) if axes and i not in axes and i - 3 not in axes]
    expected = x.double().permute(*kept, *(i for i in range(3) if i not in kept)).flatten(len(kept)).prod(-1)
    near(ran("ReduceProd", [x, axes], expected.shape)[0], expected)


@pytest.mark.parametrize("by_choice", [0, 1])
def test_routing_with_room_for_some(by_choice: int) -> None:
    """Places from 1 on; a dropped token gets its expert's place 0."""
    experts = torch.tensor([[[0, 1], [1, 2], [1, 0], [1, 2]], [[2, 2], [2, 1], [0, 1], [2, 0]]], dtype=I32)
    dispatch, combine = ran(
        "CustTopKRouter", [experts, [2], [3], [by_choice]], (2, 3, 2, I32), (2, 4, 2, I32)
    )
    for batch, rows in enumerate(experts.tolist()):
        order = [(t, j) for t in range(4) for j in range(2)]
        taken: dict[int, list[int]] = {e: [] for e in range(3)}
        for t, j in sorted(order, key=lambda at: (at[1], at[0])) if by_choice else order:
            of = taken[rows[t][j]]
            fits = len(of) < 2
            if fits:
                of.append(t + 1)
            assert combine[batch, t, j] == rows[t][j] * 3 + (len(of) if fits else 0)
        assert dispatch[batch].tolist() == [[*of, 0, 0][:2] for of in taken.values()]


def test_padding_goes_around() -> None:
    x, slope = drawn(2, 4), drawn(2, 9)
    wide = x.double().requires_grad_()
    expected = torch.nn.functional.pad(wide[None], (3, 2), mode="circular")[0]
    near(ran("PadV3", [x, [0, 0, 3, 2]], (2, 9), mode="circular")[0], expected.detach())
    expected.backward(slope.double())
    near(ran("PadV3Grad", [slope, [0, 0, 3, 2]], (2, 4), mode="circular")[0], wide.grad)


# Operator: inputs, the output's sizes, attributes; words of the message.
REFUSED: dict[str, tuple[list[Any], tuple[Any, ...], dict[str, Any], str]] = {
    "Acos": ([torch.ones(2, dtype=I32)], (2, I32), {}, "no dtype"),
    "AcosGrad": ([drawn(2), drawn(3)], (2,), {}, "an input is"),
    "CustLogit": ([drawn(2)], (3,), {}, "the output is"),
    "BitwiseAnd": ([drawn(2), drawn(2)], (2,), {}, "no dtype"),
    "TruncateDiv": ([drawn(2), drawn(3)], (3,), {}, "do not broadcast"),
    "Xdivy": ([drawn(2), drawn(1)], (3,), {}, "do not broadcast"),
    "ApproximateEqual": ([drawn(2), drawn(2)], (2,), {}, "the output is"),
    "MatrixDiagPartV3": ([drawn(3, 4), [1, 0], drawn(1)], (2, 3), {}, "k is 1, 0"),
    "MatrixDiagV3": ([drawn(3), [0], [3], [3], drawn(1)], (3, 3), {"align": "LEFT"}, "attribute align"),
    "CustDiagonal": ([drawn(3, 4)], (3,), {"dim1": 1, "dim2": -1}, "dim1 and dim2"),
    "DiagPart": ([drawn(3, 4)], (3,), {}, "the same sizes twice"),
    "CumulativeLogsumexp": ([drawn(3), [1]], (3,), {}, "axis is 1"),
    "CustIndexPut": ([drawn(3), drawn(1), torch.tensor([0.5])], (3,), {}, "no dtype"),
    "CustLogSpace": ([drawn(1), drawn(1)], (3,), {"steps": 4}, "expected 4 elements"),
    "CustSliceGrad": ([drawn(2, 3), drawn(3, 5), [2, 2], [2, 3]], (3, 5), {}, "lies outside dim 0"),
    "ParallelConcat": ([drawn(1, 3), drawn(1, 3)], (2, 2), {"N": 2}, "expected 6 elements"),
    "CustCorrelate": ([drawn(3), drawn(2)], (2,), {"mode": "half"}, "attribute mode"),
    "CustTopKRouter": ([torch.zeros(1, 2, 1, dtype=I32), [2], [3], [2]], (1, 3, 2, I32), {}, "drop_type 2"),
    "Concat": ([[0], drawn(2, 3), drawn(2, 1)], (4, 3), {"N": 2}, "expected [any, 3]"),
    "Complex": ([drawn(3), drawn(3)], (3,), {}, "no dtype"),
    "CustReal": ([drawn(3)], (3,), {}, "no dtype"),
    "Imag": ([drawn(3)], (3,), {}, "no dtype"),
    "Shape": ([drawn(3)], (2, I64), {}, "expected 1 elements"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    inputs, size, attributes, words = REFUSED[name]
    check_refused(name, inputs, [size], attributes, words)
