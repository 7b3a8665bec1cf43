"""movement/pad.cpp: constant, reflected, replicated borders."""

from __future__ import annotations

import pytest
import torch
from aclnn import INVALID_ARGUMENT, first_phase, refused
from oracle import DEVICE, check, compare, layouts, random
from torch.nn.functional import pad


@pytest.mark.parametrize(
    "padding", [(1, 2), (0, 0, 2, 1), (1, 1, 1, 1), (-1, 2), (-1, -1, 0, 3), (1, 0, 0, 0, 2, 2), (-2, -2)]
)
def test_constant(padding: tuple[int, ...]) -> None:
    check(lambda x: pad(x, padding, value=0.5), random(2, 3, 4))
    check(lambda x: pad(x, padding), (random(2, 3, 4) * 9).int(), grad=False)
    for view in layouts(random(2, 3, 4)):
        check(lambda x: pad(x, padding, value=-1), view, dtypes=[torch.float32], grad=False)
    check(lambda x: pad(x, (1, 1), value=True), random(3) > 0, grad=False)
    check(lambda x: pad(x, (1, 1)), random(0))


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
@pytest.mark.parametrize(
    ("shape", "padding"),
    [
        ((2, 3, 5), (2, 1)),
        ((3, 5), (1, 3)),
        ((2, 3, 4, 5), (1, 2, 3, 1)),
        ((3, 4, 5), (0, 2, 1, 0)),
        ((1, 2, 3, 4, 5), (1, 2, 3, 1, 2, 1)),
    ],
)
def test_borders(mode: str, shape: tuple[int, ...], padding: tuple[int, ...]) -> None:
    check(lambda x: pad(x, padding, mode=mode), random(*shape), ulps=4)
    for view in layouts(random(*shape)):
        check(lambda x: pad(x, padding, mode=mode), view, dtypes=[torch.float32], grad=False)


def test_integers() -> None:
    x = torch.arange(12).view(1, 3, 4) * 2**60
    check(lambda t: pad(t, (2, 1), mode="reflect"), x, grad=False)
    check(lambda t: pad(t, (2, 1), mode="reflect"), (x >> 58).int(), grad=False)


def test_refused() -> None:
    x = torch.ones(1, 2, 3, device=DEVICE)
    assert "allowed is less than 3, the size of dim 2" in refused("aclnnReflectionPad1d", x, [3, 0], x)
    assert "expected [1, 2, 6]" in refused("aclnnReplicationPad1d", x, [1, 2], x)
    assert "padding has 4 values, expected 2" in refused("aclnnReflectionPad1d", x, [1, 1, 1, 1], x)
    assert "leaves nothing of dim 2" in refused("aclnnConstantPadNd", x, [-2, -2], 0.0, x)


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_integers_in_channels_last_order(mode):
    """The shape of the result, contiguous, is the C API's; ATen would lay it out as the operand is."""
    x = torch.arange(2 * 3 * 4 * 4).reshape(2, 3, 4, 4)
    last = x.npu().movedim(1, -1).clone(memory_format=torch.contiguous_format).movedim(-1, 1)
    expected = torch.nn.functional.pad(x.double(), (1, 2, 0, 1), mode=mode).long()
    assert torch.equal(torch.nn.functional.pad(last, (1, 2, 0, 1), mode=mode).cpu(), expected)


@pytest.mark.parametrize("kind", ["Reflection", "Replication"])
@pytest.mark.parametrize("sides", [1, 2, 3])
def test_only_a_batch_may_be_empty(kind: str, sides: int) -> None:
    """(ops-math: aclnn_reflection_pad1d.cpp and its neighbours)"""
    name, spatial, padding = f"aclnn{kind}Pad{sides}d", (3,) * sides, [1] * (2 * sides)
    for before, status in (((0, 2), 0), ((2, 0), INVALID_ARGUMENT), ((2,), 0), ((0,), INVALID_ARGUMENT)):
        x = torch.ones(*before, *spatial, device=DEVICE)
        out = torch.ones(*before, *(5 for _ in spatial), device=DEVICE)
        code, message = first_phase(name, x, padding, out)
        assert code == status
        assert "only its batch may be empty" in message or status == 0


@pytest.mark.parametrize("mode", ["replicate", "reflect"])
def test_gradients_of_many_elements_are_summed_wide(mode: str) -> None:
    sides = (500, 500) if mode == "replicate" else (15, 15)
    x, dtype = random(2, 4, 16).to(torch.bfloat16), torch.bfloat16
    grad = random(2, 4, 16 + sum(sides), seed=1).to(dtype)
    found, exact = x.npu().requires_grad_(), x.double().requires_grad_()
    pad(found, sides, mode=mode).backward(grad.npu())
    pad(exact, sides, mode=mode).backward(grad.double())
    assert exact.grad is not None
    compare(found.grad, exact.grad, dtype, ulps=1)
