"""reduce/reduce.cpp: sums, extremes, moments, norms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from aclnn import INVALID_ARGUMENT, first_phase, refused, run
from oracle import DEVICE, check, compare, layouts, random

REDUCTIONS: list[Callable[..., Any]] = [
    torch.sum,
    torch.mean,
    torch.amax,
    torch.amin,
    torch.std,
    torch.var,
    torch.logsumexp,
    torch.linalg.vector_norm,
    torch.nansum,
]
# All values differ, also when rounded to bfloat16: no ties between the dtypes.
DISTINCT = (torch.arange(24).double() * 5 % 24 / 8 - 1.5).view(2, 3, 4)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_over_dimensions(reduction: Callable[..., Any]) -> None:
    options = {"ulps": 4}
    for dim in (0, -1, (0, 2), (0, 1, 2)):
        for keepdim in (False, True):
            check(lambda x: reduction(x, dim=dim, keepdim=keepdim), DISTINCT, **options)
    for view in layouts(DISTINCT):
        check(lambda x: reduction(x, dim=1), view, dtypes=[torch.float32], grad=False, **options)


@pytest.mark.parametrize(
    "reduction", [torch.sum, torch.mean, torch.std, torch.var, torch.max, torch.min, torch.prod, torch.norm]
)
def test_over_everything(reduction: Callable[..., Any]) -> None:
    check(reduction, DISTINCT, ulps=8)
    if reduction not in (torch.std, torch.var):
        check(reduction, random(), ulps=4)


def test_nothing_to_reduce() -> None:
    empty = random(0, 3)
    check(torch.sum, empty)
    check(lambda x: x.sum(0), empty)
    check(lambda x: x.sum(1), empty)
    check(torch.mean, empty, grad=False)
    check(torch.prod, empty, grad=False)
    check(lambda x: x.any(), empty, grad=False)
    check(lambda x: x.all(), empty, grad=False)
    check(lambda x: x.amax(1), empty)
    check(lambda x: torch.linalg.vector_norm(x), empty, grad=False)


def test_many_values_accumulate_in_float32() -> None:
    """Ten thousand halves of 0.1: a half-precision accumulator would stop at 256 (float16)."""
    x = torch.full((10000,), 0.1, dtype=torch.float64)
    check(torch.sum, x, grad=False)
    check(torch.mean, x, grad=False)
    check(lambda t: t.cumsum(0), x, grad=False)
    check(torch.linalg.vector_norm, x, dtypes=[torch.float16, torch.bfloat16], grad=False)
    check(lambda t: t.std(correction=0), random(5000), grad=False)


def test_result_dtypes() -> None:
    ints = torch.tensor([[1, 2], [3, 4]], dtype=torch.int32)
    check(torch.sum, ints, grad=False)
    check(lambda x: x.sum(0), ints > 1, grad=False)
    check(lambda x: x.prod(), ints, grad=False)
    check(lambda x: x.sum(dtype=torch.float32), DISTINCT, dtypes=[torch.float16])
    check(lambda x: x.mean(dtype=torch.float32), ints, grad=False, reference=lambda x: x.double().mean().float())
    assert ints.to(DEVICE).sum().dtype == torch.int64


@pytest.mark.parametrize("order", [0, 1, 2, 3, 0.5, float("inf"), -float("inf")])
def test_norms(order: float) -> None:
    check(lambda x: torch.linalg.vector_norm(x, order), DISTINCT + 0.01, ulps=8, grad=order not in (0, 0.5))
    check(lambda x: torch.linalg.vector_norm(x, order, dim=1, keepdim=True), DISTINCT + 0.01, grad=False, ulps=8)
    check(lambda x: torch.norm(x, order, dim=1), DISTINCT + 0.01, grad=False, ulps=8)


def test_products() -> None:
    x = random(3, 4, low=0.5, high=1.5)
    check(lambda t: t.prod(1), x, ulps=8)
    check(lambda t: t.prod(0, keepdim=True), x, grad=False, ulps=4)
    check(lambda t: t.prod(0), torch.tensor([[2, 3], [4, 5]]), grad=False)


def test_extremes_and_where_they_are() -> None:
    for function in (torch.max, torch.min, torch.median, torch.nanmedian):
        for dim in (0, 1, -1):
            check(lambda x: tuple(function(x, dim)), DISTINCT)
            check(lambda x: tuple(function(x, dim, keepdim=True)), DISTINCT, grad=False)
        for view in layouts(DISTINCT):
            if 0 not in view.stride():
                check(lambda x: tuple(function(x, 1)), view, grad=False)
    for function in (torch.argmax, torch.argmin):
        check(function, DISTINCT, grad=False)
        check(lambda x: function(x, 1), DISTINCT, grad=False)
        check(lambda x: function(x, -1, keepdim=True), DISTINCT, grad=False)
        check(function, random(), grad=False)
    check(torch.median, DISTINCT.flatten()[:7])
    check(torch.nanmedian, DISTINCT.flatten()[:7])
    check(lambda x: tuple(torch.kthvalue(x, 2, 1)), DISTINCT)
    check(lambda x: tuple(torch.aminmax(x)), DISTINCT, grad=False)
    check(lambda x: tuple(torch.aminmax(x, dim=1)), DISTINCT, grad=False)
    check(lambda x: x.max(0).values, DISTINCT > 0, grad=False)
    check(torch.max, (DISTINCT * 8).int(), grad=False)


def test_the_first_of_equal_values_is_found() -> None:
    x = torch.tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 0.0]], dtype=torch.float64)
    check(lambda t: (t.argmax(1), t.max(1).indices, t.argmin(0)), x, grad=False)


def test_not_a_number_wins() -> None:
    x = torch.tensor([1.0, float("nan"), 3.0], dtype=torch.float64)
    check(lambda t: (t.max(), t.min(), t.amax(0), t.sum(), t.nansum(), t.argmax()), x, grad=False)
    check(lambda t: torch.nanmedian(t), x, grad=False)


def test_moments() -> None:
    for correction in (0, 1, 2):
        # aclnnVarMean has no bfloat16 on 910B (aclnn_var_mean.cpp).
        two = {"dtypes": (torch.float32, torch.float16)}
        check(lambda x: torch.std_mean(x, dim=1, correction=correction), DISTINCT, ulps=4, **two)
        check(lambda x: torch.var_mean(x, dim=(0, 2), correction=correction, keepdim=True), DISTINCT, ulps=4, **two)
        check(lambda x: (x.var(1, correction=correction), x.std(1, correction=correction)), DISTINCT, ulps=4)


def test_truth() -> None:
    x = torch.tensor([[0.0, 1.0], [0.0, 0.0]], dtype=torch.float64)
    for view in layouts(x):
        check(lambda t: (t.any(), t.all(), t.any(0), t.all(1), t.any(1, keepdim=True)), view, grad=False)
    check(lambda t: (t.any(), t.all(1)), x > 0, grad=False)
    check(lambda t: (t.any(0), t.all(1)), x.int(), grad=False)
    check(lambda t: t.all(1), x.to(torch.uint8), grad=False)


def test_counts() -> None:
    values = torch.tensor([1, 3, 1, 0, 5])
    check(torch.bincount, values, grad=False)
    check(lambda v: torch.bincount(v, minlength=9), values, grad=False)
    check(
        lambda v, w: torch.bincount(v, w),
        values,
        random(5),
        dtypes=[torch.float32],
        grad=False,
        reference=lambda v, w: torch.bincount(v, w),
    )
    check(lambda x: torch.histc(x, 5, -1, 1), DISTINCT, dtypes=[torch.float32], grad=False)
    check(lambda x: torch.histc(x, 4), DISTINCT, dtypes=[torch.float32], grad=False)


def test_trace_and_renorm() -> None:
    check(torch.trace, random(3, 4), dtypes=[torch.float32, torch.float16])
    check(lambda x: torch.renorm(x, 2, 0, 1.0), random(3, 4), ulps=4, grad=False)
    check(lambda x: x.renorm_(1, 1, 0.5), random(3, 4), ulps=4, grad=False)


def test_renorm_of_how_many_are_not_zero() -> None:
    """torch refuses p = 0 on the CPU; the reference is that of op-plugin's tests."""
    x = random(3, 4)
    x[0, 1:] = 0

    def reference(x: torch.Tensor) -> torch.Tensor:
        count = (x != 0).sum(1, keepdim=True).double()
        return x * torch.where(count > 2, 2 / count, 1.0)

    check(lambda x: torch.renorm(x, 0, 0, 2.0), x, reference=reference, ulps=4, grad=False)
    check(lambda x: x.renorm_(0, 0, 2.0), x, reference=reference, ulps=4, grad=False)
    out = torch.empty(2, 2, device=DEVICE)
    assert first_phase("aclnnRenorm", out, 0, 0, 1.0, out)[0] == 0
    assert first_phase("aclnnRenorm", out, -1, 0, 1.0, out)[0] == INVALID_ARGUMENT


def test_renorm_to_what_is_no_number() -> None:
    """CANN refuses a negative limit only (ops-nn: aclnn_renorm.cpp)."""
    x = torch.ones(2, 3, device=DEVICE)
    assert torch.renorm(x, 2, 0, float("nan")).isnan().all()
    assert torch.renorm(x, float("nan"), 0, 1.0).isnan().all()
    assert torch.equal(torch.renorm(x, 2, 0, float("inf")), x)
    assert first_phase("aclnnRenorm", x, 2, 0, -1.0, x)[0] == INVALID_ARGUMENT


def test_by_c_name() -> None:
    x = DISTINCT.float().to(DEVICE)
    low, high = torch.empty(2, 4, device=DEVICE), torch.empty(2, 4, device=DEVICE)
    run("aclnnAminmax", x, [1], False, low, high)
    compare(low, DISTINCT.amin(1), torch.float32)
    compare(high, DISTINCT.amax(1), torch.float32)
    run("aclnnAminmaxDim", x, 0, False, low.resize_(3, 4), high.resize_(3, 4))
    compare(low, DISTINCT.amin(0), torch.float32)
    compare(high, DISTINCT.amax(0), torch.float32)
    run("aclnnAminmaxAll", x, low.resize_(()), high.resize_(()))
    compare(low, DISTINCT.amin(), torch.float32)
    compare(high, DISTINCT.amax(), torch.float32)
    run("aclnnNorm", x, 3.0, [0, 2], False, low.resize_(3))
    compare(low, torch.linalg.vector_norm(DISTINCT, 3, (0, 2)), torch.float32, ulps=8)
    out, where = torch.empty(2, 4, device=DEVICE), torch.empty(2, 4, dtype=torch.int32, device=DEVICE)
    run("aclnnMaxDim", x, 1, False, out, where)  # CANN's own indices are int32
    assert torch.equal(where.cpu(), DISTINCT.argmax(1).int())


def test_refused() -> None:
    x, out = torch.ones(2, 3, device=DEVICE), torch.empty(2, device=DEVICE)
    assert "out has shape [2], expected [3]" in refused("aclnnReduceSum", x, [0], False, torch.float32, out)
    assert "dim is 2" in refused("aclnnReduceSum", x, [2], False, torch.float32, out)
    assert "allowed are floating-point" in refused("aclnnMean", x.int(), [1], False, torch.int32, out.int())
    assert "nothing to choose from" in refused(
        "aclnnArgMax", x[:0], 0, False, torch.empty(3, dtype=torch.int64, device=DEVICE)
    )
    assert "k is 4, allowed is [1, 3]" in refused("aclnnKthvalue", x, 4, 1, False, out, out.long())
    assert "self has dtype int32" in refused("aclnnStd", x.int(), [1], 1, False, out)
    assert "maxNorm is -1" in refused("aclnnRenorm", x, 2.0, 0, -1.0, x)
    with pytest.raises(RuntimeError):
        torch.empty(0, device=DEVICE).max()


@pytest.mark.parametrize("keep", [False, True])
def test_variance_into_an_output_with_gaps(keep: bool) -> None:
    x = random(3, 4).float()
    room = torch.full((3, 2), 9.0, device=DEVICE)
    out = room[:, :1] if keep else room[:, 0]
    run("aclnnVarCorrection", x.to(DEVICE), [1], 1, keep, out)
    assert torch.allclose(room[:, 0].cpu(), x.var(1)) and room[:, 1].tolist() == [9.0, 9.0, 9.0]


@pytest.mark.parametrize("name", ["aclnnReduceSum", "aclnnMean"])
def test_a_result_wider_than_the_dtype_that_it_is_computed_in(name: str) -> None:
    x, out = random(3, 4).float(), torch.empty(3, device="npu")
    run(name, x.npu(), [1], False, torch.float16, out)
    exact = x.double().sum(1) if name == "aclnnReduceSum" else x.double().mean(1)
    assert torch.equal(out.cpu(), exact.half().float())
