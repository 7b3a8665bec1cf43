"""Softmax and log-softmax against float64."""

import aclnn
import pytest
import torch
from oracle import check, compare, layouts, random


@pytest.mark.parametrize("function", [torch.softmax, torch.log_softmax])
@pytest.mark.parametrize(
    ("shape", "dim"),
    [((3, 7), 1), ((3, 7), 0), ((2, 3, 5), 1), ((2, 3, 4, 5), -2), ((6,), 0), ((), 0), ((0, 4), 1), ((1, 900), 1)],
)
def test_every_dimension(function, shape, dim):
    # the gradient is a difference of terms of the gradient's own size
    x = random(*shape, low=-6, high=6) if shape else torch.tensor(0.7, dtype=torch.float64)
    check(lambda x: function(x, dim), x, ulps=4, scale=0.5)


@pytest.mark.parametrize("function", [torch.softmax, torch.log_softmax])
def test_every_layout(function):
    for x in layouts(random(3, 4, 5)):
        check(lambda x: function(x, -1), x, ulps=4, scale=0.5)


@pytest.mark.parametrize("function", [torch.softmax, torch.log_softmax])
def test_large_and_masked_values(function):
    infinity = float("inf")
    check(
        lambda x: function(x, -1),
        torch.tensor([[6e4, 5.9e4, -6e4], [-infinity, 0.0, 1.0]], dtype=torch.float64),
        grad=False,
    )


@pytest.mark.parametrize("function", [torch.softmax, torch.log_softmax])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_result_in_fp32(function, dtype):
    x = random(3, 50).to(dtype)
    out = function(x.npu(), -1, dtype=torch.float32)
    assert out.dtype == torch.float32
    assert torch.allclose(out.cpu().double(), function(x.double(), -1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("dim", [0, 1])
def test_the_logarithm_of_a_likely_class(dtype, dim):
    x = torch.tensor([[9.0, 3.3], [4.1, 8.7]], dtype=torch.float64).to(dtype)
    exact = torch.log_softmax(x.double(), dim)
    error = (torch.log_softmax(x.npu(), dim).cpu().double() - exact).abs()
    assert (error <= 2 * torch.finfo(dtype).eps * exact.abs()).all()


def test_first_phase_refuses():
    zeros = torch.zeros(3, 4, device="npu")
    for name in ("aclnnSoftmax", "aclnnLogSoftmax"):
        assert aclnn.first_phase(name, zeros, 2, zeros)[0] == aclnn.INVALID_ARGUMENT
        assert "dim is 2" in aclnn.first_phase(name, zeros, 2, zeros)[1]
        assert "out has shape [3]" in aclnn.first_phase(name, zeros, 1, zeros[:, 0])[1]
        assert "self has dtype int64" in aclnn.first_phase(name, zeros.long(), 1, zeros)[1]
    for name in ("aclnnSoftmaxBackward", "aclnnLogSoftmaxBackward"):
        assert "gradOutput has shape [3]" in aclnn.first_phase(name, zeros[:, 0], zeros, 1, zeros)[1]


@pytest.mark.parametrize("name", ["aclnnSoftmax", "aclnnLogSoftmax"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_input_with_a_wide_output(name, dtype):
    x, out = random(3, 5).to(dtype), torch.zeros(3, 5, device="npu")
    aclnn.run(name, x.npu(), 1, out)
    exact = torch.softmax(x.double(), 1) if name == "aclnnSoftmax" else torch.log_softmax(x.double(), 1)
    compare(out, exact, torch.float32, ulps=4)
