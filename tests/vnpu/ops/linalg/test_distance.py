"""Distances between rows."""

import aclnn
import pytest
import torch
from oracle import check, layouts, random


@pytest.mark.parametrize("p", [0.5, 1.0, 2.0, 3.0, float("inf")])
def test_cdist(p):
    grad = p == 3.0  # torch_npu takes its legacy path for the gradients of the others
    check(lambda a, b: torch.cdist(a, b, p), random(5, 4), random(3, 4, seed=1), grad=grad, ulps=16, scale=1.0)
    check(lambda a, b: torch.cdist(a, b, p), random(2, 5, 4), random(2, 3, 4, seed=1), grad=grad, ulps=16, scale=1.0)


@pytest.mark.parametrize("p", [1.0, 2.0])
def test_gradient(p):
    a, b, grad = random(2, 5, 4), random(2, 3, 4, seed=1), random(2, 5, 3, seed=2)
    leaf = a.clone().requires_grad_()
    distances = torch.cdist(leaf, b, p, compute_mode="donot_use_mm_for_euclid_dist")
    distances.backward(grad)
    out = torch.zeros(2, 5, 4, device="npu")
    inputs = (t.detach().float().npu() for t in (grad, a, b, distances))
    aclnn.run("aclnnCdistBackward", *inputs, p, out)
    assert torch.allclose(out.cpu().double(), leaf.grad, atol=1e-5)


@pytest.mark.parametrize("p", [0.5, 1.0, 2.0, 3.0, float("inf")])
def test_pairs(p):
    check(lambda a: torch.pdist(a, p), random(5, 4), dtypes=[torch.float32, torch.float16], grad=False, ulps=16)
    check(lambda a: torch.pdist(a, p), random(1, 4), dtypes=[torch.float32], grad=False)


def test_number_of_differing_values_and_layouts():
    x = random(5, 4).round()
    check(lambda a, b: torch.cdist(a, b, 0.0), x, x.flip(0), grad=False)
    for a in layouts(random(5, 4)):
        check(torch.cdist, a, random(3, 4, seed=1), grad=False, ulps=8)


def test_rows_far_from_the_origin_keep_their_digits():
    a = 4096 + torch.arange(40.0, dtype=torch.float64).reshape(10, 4)
    check(torch.cdist, a, a + 1, dtypes=[torch.float32], grad=False)


def test_first_phase_refuses():
    def zeros(*shape):
        return torch.zeros(*shape, device="npu")

    for arguments, text in (
        ((zeros(5, 4), zeros(3, 5), 2.0, 0, zeros(5, 3)), "x2 has rows of 5 values, expected 4"),
        ((zeros(5, 4), zeros(3, 4), -1.0, 0, zeros(5, 3)), "p is -1"),
        ((zeros(5, 4), zeros(3, 4), 2.0, 0, zeros(5, 4)), "out has shape [5, 4], expected [5, 3]"),
    ):
        status, message = aclnn.first_phase("aclnnCdist", *arguments)
        assert status == aclnn.INVALID_ARGUMENT
        assert text in message
