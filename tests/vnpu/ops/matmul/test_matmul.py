"""Matrix products against float64, in every layout and dtype, and the precision of their sums."""

import aclnn
import pytest
import torch
from oracle import FLOATS, check, layouts, random

SHAPES = [
    ((3, 4), (4, 5)),
    ((4,), (4,)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((2, 3, 4), (4, 5)),
    ((2, 3, 4), (4,)),
    ((4,), (2, 4, 5)),
    ((2, 3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (5, 4, 6)),
    ((2, 2, 3, 4), (2, 2, 4, 5)),
    ((0, 4), (4, 5)),
    ((3, 0), (0, 5)),
    ((2, 0, 4), (4, 5)),
    ((0, 3, 4), (0, 4, 5)),
]


@pytest.mark.parametrize(("a", "b"), SHAPES)
def test_matmul_broadcasts_as_torch_does(a, b):
    check(torch.matmul, random(*a), random(*b, seed=1))


@pytest.mark.parametrize("function", [torch.mm, torch.matmul])
def test_matmul_reads_every_layout(function):
    for a in layouts(random(3, 4)):
        for b in layouts(random(4, 5, seed=1)):
            check(function, a, b, grad=False)


def test_bmm_reads_every_layout():
    for a in layouts(random(2, 3, 4)):
        check(torch.bmm, a, random(2, 4, 5, seed=1))
        check(torch.matmul, a, random(2, 4, 5, seed=1), grad=False)


@pytest.mark.parametrize("dtype", FLOATS)
def test_products_are_written_into_a_view(dtype):
    a, b = random(2, 3, 4).to(dtype), random(2, 4, 5, seed=1).to(dtype)
    for function, x, y, shape in (
        (torch.mm, a[0], b[0], (3, 5)),
        (torch.matmul, a, b, (2, 3, 5)),
        (torch.bmm, a, b, (2, 3, 5)),
        (torch.mv, a[0], b[0, :, 0], (3,)),
    ):
        storage = torch.zeros(*shape, 2, dtype=dtype, device="npu")
        function(x.npu(), y.npu(), out=storage[..., 1])
        expected = function(x.double(), y.double()).to(dtype)
        assert torch.allclose(
            storage[..., 1].cpu().double(), expected.double(), rtol=4 * torch.finfo(dtype).eps, atol=1e-6
        )
        assert not storage[..., 0].cpu().any()


@pytest.mark.parametrize("bias", [(5,), (1, 5), (3, 1), (3, 5), (1,), ()])
def test_addmm_broadcasts_its_addend(bias):
    check(
        lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=-2),
        random(*bias, seed=2),
        random(3, 4),
        random(4, 5, seed=1),
    )


def test_linear_layers():
    check(torch.nn.functional.linear, random(2, 3, 4), random(5, 4, seed=1), random(5, seed=2))
    check(torch.nn.functional.linear, random(3, 4), random(5, 4, seed=1))


def test_products_with_an_addend():
    matrices = random(3, 2, 4), random(3, 4, 5, seed=1)
    check(lambda c, a, b: torch.baddbmm(c, a, b, beta=0.5, alpha=3), random(3, 2, 5, seed=2), *matrices)
    check(lambda c, a, b: torch.baddbmm(c, a, b, beta=2), random(2, 1, seed=2), *matrices)
    check(lambda c, a, b: torch.addbmm(c, a, b, beta=0.5, alpha=3), random(2, 5, seed=2), *matrices, ulps=4)
    check(lambda c, a, b: torch.addmv(c, a, b, beta=0.5, alpha=3), random(2, seed=2), random(2, 4), random(4, seed=1))
    check(lambda c, a, b: torch.addr(c, a, b, beta=0.5, alpha=3), random(2, 4, seed=2), random(2), random(4, seed=1))
    check(torch.mv, random(2, 4), random(4, seed=1))
    check(torch.dot, random(7), random(7, seed=1), scale=7.0)  # of the sum of absolute values, which may cancel


@pytest.mark.parametrize("dtype", [torch.int32, torch.int8, torch.uint8])
def test_dot_of_integers(dtype):
    x, y = torch.tensor([1, 2, 3], dtype=dtype), torch.tensor([5, 7, 9], dtype=dtype)
    assert torch.dot(x.npu(), y.npu()).item() == 46
    status, message = aclnn.first_phase("aclnnDot", x.npu(), y.float().npu(), torch.empty((), dtype=dtype).npu())
    assert status == aclnn.INVALID_ARGUMENT
    assert "to have same dtype" in message


@pytest.mark.parametrize(("one", "other"), [(1, 4), (4, 1), (1, 1)])
def test_one_matrix_beside_a_batch(one, other):
    a, b = random(one, 3, 5), random(other, 5, 6, seed=1)
    out = torch.empty(max(one, other), 3, 6, device="npu")
    aclnn.run("aclnnBatchMatMul", a.float().npu(), b.float().npu(), out, 1)
    torch.testing.assert_close(out.cpu().double(), a @ b, rtol=1e-5, atol=1e-5)
    status, message = aclnn.first_phase(
        "aclnnBatchMatMul", torch.ones(2, 3, 5).npu(), torch.ones(3, 5, 6).npu(), out, 1
    )
    assert status == aclnn.INVALID_ARGUMENT
    assert "mat2 has 3 matrices, expected 2" in message


def test_products_in_place():
    check(
        lambda c, a, b: c.clone().addmm_(a, b, beta=0.5, alpha=3),
        random(3, 5, seed=2),
        random(3, 4),
        random(4, 5, seed=1),
    )
    check(lambda c, a, b: c.clone().addmv_(a, b, alpha=3), random(3, seed=2), random(3, 4), random(4, seed=1))
    check(lambda c, a, b: c.clone().addr_(a, b, alpha=3), random(3, 4, seed=2), random(3), random(4, seed=1))
    check(
        lambda c, a, b: c.clone().baddbmm_(a, b, alpha=3),
        random(2, 3, 5, seed=2),
        random(2, 3, 4),
        random(2, 4, 5, seed=1),
    )


def test_beta_zero_ignores_the_addend():
    nothing = torch.full((3, 5), float("nan"), dtype=torch.float64)
    check(lambda c, a, b: torch.addmm(c, a, b, beta=0), nothing, random(3, 4), random(4, 5, seed=1), grad=False)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sums_are_kept_in_fp32(dtype):
    # A sum in fp16 would stay at 2048, in bf16 at 256: the next 1 is below half a unit.
    ones = torch.ones(1, 4096, dtype=dtype, device="npu")
    assert torch.mm(ones, ones.mT).item() == 4096
    assert torch.matmul(ones[0], ones[0]).item() == 4096
    assert torch.baddbmm(ones.new_zeros(1, 1, 1), ones[None], ones[None].mT).item() == 4096


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sum_and_addend_are_rounded_once(dtype):
    # The product, 1 + eps / 2, would round to 1 before the addend brings the second half.
    half = torch.finfo(dtype).eps / 2
    a = torch.tensor([[1.0, half]], dtype=dtype, device="npu")
    b = torch.ones(2, 1, dtype=dtype, device="npu")
    addend = torch.full((1, 1), half, dtype=dtype, device="npu")
    assert torch.addmm(addend, a, b).item() == 1 + 2 * half


def test_first_phase_refuses():
    def zeros(*shape, dtype=torch.float32):
        return torch.zeros(*shape, dtype=dtype, device="npu")

    for arguments, text in (
        ((zeros(3, 4), zeros(5, 6), zeros(3, 6), 0), "mat2 has size 5 in dimension 0, expected 4"),
        ((zeros(3, 4), zeros(4, 6), zeros(3, 5), 0), "out has shape [3, 5], expected [3, 6]"),
        (
            (zeros(2, 3, 4), zeros(4, 6), zeros(3, 6), 0),
            "The self tensor cannot be larger than 2 dimensions. [parameter self has 3",
        ),
        ((zeros(3, 4, dtype=torch.int32), zeros(4, 6), zeros(3, 6), 0), "self has dtype int32"),
    ):
        status, message = aclnn.first_phase("aclnnMm", *arguments)
        assert status == aclnn.INVALID_ARGUMENT
        assert text in message
    status, message = aclnn.first_phase("aclnnMm", None, zeros(4, 6), zeros(3, 6), 0)
    assert status == aclnn.NULL_ARGUMENT
    assert "self" in message
    status, message = aclnn.first_phase("aclnnMatmul", zeros(2, 3, 4), zeros(3, 4, 5), zeros(3, 3, 5), 0)
    assert status == aclnn.INVALID_ARGUMENT
    assert "do not broadcast" in message
    status, message = aclnn.first_phase("aclnnAddmm", zeros(7), zeros(3, 4), zeros(4, 6), 1, 1, zeros(3, 6), 0)
    assert status == aclnn.INVALID_ARGUMENT
    assert "self" in message
    assert "broadcast" in message
    status, message = aclnn.first_phase("aclnnBatchMatMul", zeros(2, 3, 4), zeros(3, 4, 5), zeros(2, 3, 5), 0)
    assert status == aclnn.INVALID_ARGUMENT
    assert "mat2 has 3 matrices, expected 2" in message
