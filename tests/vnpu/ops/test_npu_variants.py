"""Variants of operators that models for inference call: clipped SwiGLU, rotary embedding by name, and gradients."""

import pytest
import torch
import torch_npu
from aclnn import INVALID_ARGUMENT, first_phase, run
from oracle import FLOATS, check, compare, random


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(("sizes", "dim"), [((4, 8), -1), ((2, 6, 3), 1)])
def test_clipped_swiglu(dtype: torch.dtype, interleaved: bool, sizes: tuple[int, ...], dim: int) -> None:
    x = random(*sizes, low=-4, high=4).to(dtype)
    wide = x.double().movedim(dim, -1)
    gate, value = (wide[..., ::2], wide[..., 1::2]) if interleaved else wide.chunk(2, -1)
    gate, value = gate.clamp(max=1.5), value.clamp(-1.5, 1.5)
    expected = (gate * torch.sigmoid(1.7 * gate) * (value + 0.5)).movedim(-1, dim)
    out = torch.empty(expected.shape, dtype=dtype, device="npu")
    run("aclnnClippedSwiglu", x.npu(), None, dim, 1.7, 1.5, 0.5, interleaved, out)
    compare(out, expected, dtype, ulps=4)


def test_clipped_swiglu_of_groups_leaves_the_other_rows() -> None:
    x = random(6, 8).float()
    out = torch.full((6, 4), 7.0, device="npu")
    run("aclnnClippedSwiglu", x.npu(), torch.tensor([1, 3]).npu(), -1, 1.0, 7.0, 1.0, False, out)
    gate, value = x.double().chunk(2, -1)
    compare(out[:4], (gate * torch.sigmoid(gate) * (value + 1))[:4], torch.float32, ulps=8)
    assert bool((out[4:] == 7).all())


def rotate(x: torch.Tensor, mode: str) -> torch.Tensor:
    if mode == "interleave":
        return torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    first, second = x.chunk(2, -1)
    return torch.cat((-second, first), -1)


@pytest.mark.parametrize("mode", ["half", "interleave"])
def test_rotary_of_query_and_key(mode: str) -> None:
    query, key = random(2, 5, 3, 128), random(2, 5, 1, 128, seed=1)
    cos, sin = random(2, 5, 1, 128, seed=2), random(2, 5, 1, 128, seed=3)
    device = [t.float().npu() for t in (query, key, cos, sin)]
    run("aclnnApplyRotaryPosEmbV2", *device, 1, mode)
    compare(device[0], query * cos + rotate(query, mode) * sin, torch.float32, ulps=8)
    compare(device[1], key * cos + rotate(key, mode) * sin, torch.float32, ulps=8)
    status, message = first_phase("aclnnApplyRotaryPosEmbV2", *device, 1, "third")
    assert status == INVALID_ARGUMENT and 'rotaryMode is "third"' in message, message


@pytest.mark.parametrize("eps", [None, 0.2])
def test_logit_has_a_gradient(eps: float | None) -> None:
    check(lambda x: torch.logit(x, eps), random(3, 4, low=0.1, high=0.9), ulps=8)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum", "batchmean"])
@pytest.mark.parametrize("log", [False, True])
def test_kl_divergence_has_a_gradient_in_its_target(reduction: str, log: bool) -> None:
    check(
        lambda x, t: torch.nn.functional.kl_div(x, t, reduction=reduction, log_target=log),
        random(3, 4),
        random(3, 4, low=0.2, high=1, seed=1),
        dtypes=FLOATS[:1],
        ulps=16,
    )


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("repeats", [torch.tensor([2]), torch.tensor([1, 0, 3])])
def test_repeat_interleave_has_a_gradient(axis: int, repeats: torch.Tensor) -> None:
    x = random(3, 3, 3)
    check(lambda x: torch.repeat_interleave(x, repeats.to(x.device), dim=axis), x, ulps=8)


@pytest.mark.parametrize("first", [False, True])
def test_confusion_transpose(first: bool) -> None:
    x = random(2, 3, 4).float()
    if first:
        expected, shape = x.permute(2, 0, 1).reshape(4, 6), [4, 6]
        perm = [2, 0, 1]
    else:
        expected, shape = x.reshape(6, 4).permute(1, 0), [6, 4]
        perm = [1, 0]
    out = torch.empty(expected.shape, device="npu")  # torch_npu takes its legacy path on this chip
    run("aclnnConfusionTranspose", x.npu(), perm, shape, first, out)
    assert torch.equal(out.cpu(), expected)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_hardtanh_of_integers(dtype: torch.dtype) -> None:
    x = torch.arange(-5, 6, dtype=dtype)
    assert torch.equal(torch.nn.functional.hardtanh(x.npu(), -2, 3).cpu(), x.clamp(-2, 3))


def test_products_over_nothing_are_zeros() -> None:
    for a, b in (((5, 5, 0), (0, 5)), ((2, 0), (0, 3)), ((0,), (0,)), ((4, 2, 0), (4, 0, 3))):
        expected = torch.zeros(a) @ torch.zeros(b)
        got = torch.zeros(a).npu() @ torch.zeros(b).npu()
        assert torch.equal(got.cpu(), expected) and got.shape == expected.shape


def test_multilabel_margin_of_one_label() -> None:
    loss = torch.nn.functional.multilabel_margin_loss(torch.tensor(0.3).npu(), torch.tensor(0).npu())
    assert loss.item() == torch.nn.functional.multilabel_margin_loss(torch.tensor(0.3), torch.tensor(0)).item()


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.0, float("inf")])
def test_distances_have_gradients(p: float) -> None:
    check(
        lambda a, b: torch.cdist(a, b, p, "donot_use_mm_for_euclid_dist"),
        random(2, 4, 3),
        random(2, 5, 3, seed=1),
        dtypes=FLOATS[:1],
        ulps=32,
    )


def test_distances_of_batches_that_broadcast_have_gradients() -> None:
    check(lambda a, b: torch.cdist(a, b, 3.0), random(1, 4, 3), random(2, 5, 3, seed=1), dtypes=FLOATS[:1], ulps=32)


@pytest.mark.parametrize("triangle", [False, True])
def test_scaled_masked_softmax_of_torch_npu(triangle: bool) -> None:
    """Its legacy path; test_softmax_masked.py has the operator of CANN."""
    mask = torch.rand(2, 1, 32, 32, generator=torch.Generator().manual_seed(3)) < 0.4

    def reference(x: torch.Tensor) -> torch.Tensor:
        out = torch.ones(32, 32, dtype=torch.bool).triu(1) if triangle else mask
        return torch.softmax((x * 0.7).masked_fill(out, -10000), -1)

    check(
        lambda x: torch_npu.npu_scaled_masked_softmax(x, mask.npu(), 0.7, triangle),
        random(2, 3, 32, 32),
        reference=reference,
        dtypes=FLOATS[:2],
        ulps=8,
    )
