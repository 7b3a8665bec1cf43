"""movement/creation.cpp and movement/copy.cpp: ranges, identities, triangles, fills, copies, casts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from aclnn import refused, run
from oracle import DEVICE, FLOATS, check, compare, layouts, place, random


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int32, torch.int64])
@pytest.mark.parametrize(
    "make",
    [
        lambda **kw: torch.arange(7, **kw),
        lambda **kw: torch.arange(2, 17, 3, **kw),
        lambda **kw: torch.arange(9, -4, -2, **kw),
        lambda **kw: torch.arange(0, **kw),
        lambda **kw: torch.eye(3, 5, **kw),
        lambda **kw: torch.eye(4, **kw),
        lambda **kw: torch.zeros(3, 2, **kw),
        lambda **kw: torch.ones(3, 2, **kw),
        lambda **kw: torch.full((3, 2), 7, **kw),
    ],
)
def test_created(make: Callable[..., torch.Tensor], dtype: torch.dtype) -> None:
    expected = make(dtype=torch.float64 if dtype.is_floating_point else dtype)
    compare(make(dtype=dtype, device=DEVICE), expected, dtype)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize(("start", "end", "step"), [(0, 3.1, 1), (2.9, 17.1, 3.0), (9.5, -4.5, -2), (1.5, 1.9, 1)])
def test_ranges_of_fractions_have_torch_s_count(start: float, end: float, step: float, dtype: torch.dtype) -> None:
    expected = torch.arange(start, end, step, dtype=dtype)
    actual = torch.arange(start, end, step, dtype=dtype, device=DEVICE)
    assert torch.equal(actual.cpu(), expected)


@pytest.mark.parametrize("dtype", FLOATS)
def test_steps_are_rounded_once(dtype: torch.dtype) -> None:
    once = {"ulps": 0.51, "scale": 0.0} if dtype != torch.float32 else {"ulps": 2.0, "scale": 1.0}
    for low, high, steps in ((0.0, 1.0, 11), (-3.0, 4.0, 100), (2.0, 2.0, 1), (1.0, 0.0, 0)):
        compare(
            torch.linspace(low, high, steps, dtype=dtype, device=DEVICE),
            torch.linspace(low, high, steps, dtype=torch.float64),
            dtype,
            **once,
        )
    compare(
        torch.arange(0, 3, 0.1, dtype=dtype, device=DEVICE), torch.arange(0, 3, 0.1, dtype=torch.float64), dtype, **once
    )
    logs = torch.logspace(-1, 1, 9, base=2.0, dtype=dtype, device=DEVICE)
    compare(logs, torch.logspace(-1, 1, 9, base=2.0, dtype=torch.float64), dtype)


def test_range_is_closed() -> None:
    out = torch.empty(5, device=DEVICE)
    run("aclnnRange", 1.0, 3.0, 0.5, out)
    assert out.tolist() == [1.0, 1.5, 2.0, 2.5, 3.0]


@pytest.mark.parametrize("diagonal", [-1, 0, 2])
def test_triangles(diagonal: int) -> None:
    for view in layouts(random(2, 3, 4)):
        check(lambda x: (torch.tril(x, diagonal), torch.triu(x, diagonal)), view)
        if 0 not in view.stride():
            check(lambda x: x.tril_(diagonal), view, grad=False)
            check(lambda x: x.triu_(diagonal), view, grad=False)
    check(lambda x: torch.triu(x, diagonal), torch.ones(4, 4, dtype=torch.bool), grad=False)


def test_one_hot() -> None:
    classes = torch.tensor([[0, 2], [3, 1]])
    check(lambda c: torch.nn.functional.one_hot(c, 5), classes, grad=False)
    on, off = torch.tensor([2.0], device=DEVICE), torch.tensor([-1.0], device=DEVICE)
    out = torch.empty(2, 3, 2, device=DEVICE)
    run("aclnnOneHot", torch.tensor([[0, 2], [7, 1]], device=DEVICE), 3, on, off, 1, out)
    expected = torch.full((2, 3, 2), -1.0)
    expected[0, 0, 0] = expected[0, 2, 1] = expected[1, 1, 1] = 2.0  # class 7 is none of three
    assert torch.equal(out.cpu(), expected)
    first = torch.empty(3, 2, 2, device=DEVICE)
    run("aclnnOneHot", torch.tensor([[0, 2], [7, 1]], device=DEVICE), 3, on, off, 0, first)
    assert torch.equal(first.cpu(), out.cpu().transpose(0, 1))


def test_fill_diagonal() -> None:
    check(lambda x: x.fill_diagonal_(3), random(4, 4), grad=False)
    check(lambda x: x.fill_diagonal_(3, wrap=True), random(7, 3), grad=False)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int32, torch.int64, torch.uint8, torch.bool])
def test_fills(dtype: torch.dtype) -> None:
    for view in layouts(torch.zeros(3, 4, dtype=dtype)):
        if 0 in view.stride():
            continue
        x = place(view)
        assert x.fill_(1).cpu().eq(1).all()
        assert x.zero_().cpu().eq(0).all()
        assert x.fill_(torch.ones((), dtype=dtype, device=DEVICE)).cpu().eq(1).all()
    assert torch.empty(0, 3, dtype=dtype, device=DEVICE).fill_(1).shape == (0, 3)
    run("aclnnInplaceOne", x.zero_())
    assert x.cpu().eq(1).all()


def test_a_fill_past_the_range_is_infinite() -> None:
    x = torch.zeros(2, dtype=torch.float16, device=DEVICE)
    run("aclnnInplaceFillScalar", x, -1e9)
    assert x.tolist() == [-float("inf")] * 2


@pytest.mark.parametrize("source", [*FLOATS, torch.int32, torch.int64, torch.uint8, torch.bool])
@pytest.mark.parametrize("target", [*FLOATS, torch.int32, torch.int64, torch.uint8, torch.bool])
def test_casts(source: torch.dtype, target: torch.dtype) -> None:
    x = torch.tensor([[0.0, 1.0, 2.75], [3.5, 100.25, 7.0]]).to(source)
    for view in layouts(x):
        assert torch.equal(place(view).to(target).cpu(), view.to(target))
        out = torch.empty(2, 3, dtype=target, device=DEVICE)
        run("aclnnCast", place(view), target, out)
        assert torch.equal(out.cpu(), view.to(target))


def test_copies() -> None:
    for view in layouts(random(3, 4).float()):
        x = place(view)
        assert torch.equal(x.cpu(), view)
        assert torch.equal(x.contiguous().cpu(), view)
        assert torch.equal(x.clone().cpu(), view)
        y = torch.zeros(4, 3, device=DEVICE).t()
        assert torch.equal(y.copy_(x).cpu(), view)
        assert torch.equal(y.copy_(x[0]).cpu(), view[0].expand(3, 4))
    check(lambda x: x.t().clone(), random(3, 4))
    check(lambda x: x.expand(2, 3, 4).contiguous(), random(3, 4))
    check(lambda x: torch.zeros(2, 3, 4, dtype=x.dtype, device=x.device).copy_(x), random(3, 4))


def test_to_another_dtype_and_back_has_a_gradient() -> None:
    x = random(3, 4).float()
    a = x.to(DEVICE).requires_grad_()
    (a.half() * 3).float().sum().backward()
    assert a.grad is not None
    assert torch.equal(a.grad.cpu(), torch.full((3, 4), 3.0))


def test_refused() -> None:
    out = torch.empty(5, device=DEVICE)
    assert "out has shape [5], expected [3]" in refused("aclnnArange", 0, 3, 1, out)
    assert "step is 0" in refused("aclnnArange", 0, 3, 0, out)
    assert "does not lead from start 3 to end 0" in refused("aclnnArange", 3, 0, 1, out)
    assert "expected [4]" in refused("aclnnLinspace", 0, 3, 4, out)
    whole = torch.empty(5, dtype=torch.int32, device=DEVICE)
    assert "parameter end is 10000000000, which out" in refused("aclnnLinspace", 0, 1e10, 5, whole)
    assert "expected [2, 3]" in refused("aclnnEye", 2, 3, out)
    assert "has 1 dimensions, allowed are 2 and more" in refused("aclnnTriu", out, 0, out)
    assert "does not broadcast to [5]" in refused("aclnnInplaceCopy", out, torch.ones(3, device=DEVICE))
    assert "expected [5]" in refused("aclnnCast", out, torch.int32, torch.empty(4, dtype=torch.int32, device=DEVICE))
    assert "selfRef has 1 dimensions" in refused("aclnnInplaceFillDiagonal", out, 1, False)
