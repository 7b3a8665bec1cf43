"""Rows of a table, and its gradient."""

import aclnn
import forked
import pytest
import torch
from oracle import check, layouts, random
from torch.nn import functional

INDICES = torch.tensor([[1, 4, 0], [4, 4, 2]])


@pytest.mark.parametrize("indices", [INDICES, torch.tensor(3), torch.zeros(0, 2, dtype=torch.int64), torch.arange(5)])
@pytest.mark.parametrize("options", [{}, {"padding_idx": 4}, {"scale_grad_by_freq": True}])
def test_embedding(indices, options):
    check(lambda w: functional.embedding(indices.to(w.device), w, **options), random(5, 6), ulps=4)


def test_every_layout():
    for weight in layouts(random(5, 6)):
        check(lambda w: functional.embedding(INDICES.to(w.device), w), weight, dtypes=[torch.float32, torch.float16])
    for indices in layouts(INDICES):
        check(lambda w, i: functional.embedding(i, w), random(5, 6), indices)


def test_int32_indices_and_other_tables():
    for dtype in (torch.int64, torch.int32, torch.int8, torch.bool, torch.float64):
        table = torch.arange(10).reshape(5, 2).to(dtype)
        out = functional.embedding(INDICES.int().npu(), table.npu())
        assert torch.equal(out.cpu(), table[INDICES])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_gradients_add_up_in_fp32(dtype):
    weight = torch.zeros(2, 1, dtype=dtype, device="npu", requires_grad=True)
    functional.embedding(torch.zeros(4096, dtype=torch.int64, device="npu"), weight).sum().backward()
    assert weight.grad.tolist() == [[4096], [0]]


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 4])
def test_bags(mode, padding):
    indices, offsets = torch.tensor([1, 4, 0, 4, 2, 2]), torch.tensor([0, 3, 4])

    def bags(w):
        return functional.embedding_bag(indices.to(w.device), w, offsets.to(w.device), mode=mode, padding_idx=padding)

    check(bags, random(5, 6), grad=False, ulps=4)


@pytest.mark.parametrize("p", [1.0, 2.0])
def test_renormalisation(p):
    check(
        lambda w: functional.embedding(INDICES.to(w.device), w, max_norm=1.5, norm_type=p),
        random(5, 6),
        grad=False,
        ulps=4,
    )


def test_first_phase_refuses():
    weight, indices = torch.zeros(5, 2, device="npu"), INDICES.npu()
    for arguments, text in (
        ((weight, indices, torch.zeros(2, 3, 3, device="npu")), "out has shape [2, 3, 3], expected [2, 3, 2]"),
        (
            (weight, indices.float(), torch.zeros(2, 3, 2, device="npu")),
            "indices has dtype float32, allowed are int32, int64",
        ),
        ((weight[0], indices, torch.zeros(2, 3, 2, device="npu")), "weight has 1 dimensions"),
    ):
        status, message = aclnn.first_phase("aclnnEmbedding", *arguments)
        assert status == aclnn.INVALID_ARGUMENT
        assert text in message


def test_bags_refuse():
    """(ops-nn: aclnn_embedding_bag.cpp, CheckDtypeValid and CheckShape)"""
    weight, out = torch.zeros(5, 2, device="npu"), torch.zeros(2, 2, device="npu")
    indices, offsets = torch.tensor([1, 0, 2]).npu(), torch.tensor([0, 2]).npu()
    count = torch.zeros(2, dtype=torch.int64, device="npu")

    def status(indices, offsets, mode=0, weights=None):
        return aclnn.first_phase(
            "aclnnEmbeddingBag",
            weight,
            indices,
            offsets,
            False,
            mode,
            False,
            weights,
            False,
            -1,
            out,
            torch.zeros_like(indices).long(),
            count,
            count,
        )

    code, message = status(indices.short(), offsets.char())
    assert code == aclnn.INVALID_ARGUMENT and "must has one dtype in [int32, int64]" in message
    assert status(indices.short(), offsets) == status(indices.int(), offsets.char()) == (0, "")
    ones = torch.ones(3, device="npu")
    for weights, mode in ((ones, 1), (ones[:2], 0)):
        code, message = status(indices, offsets, mode, weights)
        assert code == aclnn.INVALID_ARGUMENT and "only supported with mode='sum'" in message
    assert status(indices, offsets, 0, ones) == (0, "")


NO_ROWS = """
import torch
bag = torch.nn.functional.embedding_bag
nothing = torch.tensor([], dtype=torch.int64).npu()
assert bag(nothing, torch.zeros(0, 5).npu(), nothing[:0].new_zeros(2)).tolist() == [[0] * 5] * 2
bag(torch.tensor([3, 1]).npu(), torch.zeros(0, 5).npu(), torch.tensor([0, 1]).npu())
torch.npu.synchronize()
"""


def test_bags_of_a_table_without_columns():
    """Hardware starts no kernel (ops-nn: aclnn_embedding_bag.cpp), and ATen's has no place to begin."""
    table, index, first = torch.zeros(3, 0).npu(), torch.tensor([2, 1]).npu(), torch.tensor([0, 1]).npu()
    bags = functional.embedding_bag(index, table, first, mode="sum", per_sample_weights=torch.ones(2).npu())
    assert bags.cpu().shape == (2, 0)


def test_bags_of_a_table_without_rows():
    """In a process of its own, which the error costs its NPU. Hardware starts no kernel (ops-nn:
    aclnn_embedding_bag.cpp)."""
    child = forked.python(NO_ROWS)
    assert child.returncode != 0
    assert "aclnnEmbeddingBag failed" in child.stderr
    assert "index 3 is out of bounds for dimension 0 of the table, which has 0 rows" in child.stderr
    assert "hardware hides this" in child.stderr
