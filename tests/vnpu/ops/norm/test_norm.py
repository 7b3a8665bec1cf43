"""Batch, layer and group norm against float64, and the pieces of batch norm over several devices."""

import aclnn
import pytest
import torch
from oracle import FLOATS, check, layouts, place, random
from torch.nn import functional

C = 3


@pytest.mark.parametrize("shape", [(8, C), (4, C, 5), (4, C, 3, 5), (2, C, 2, 3, 2)])
@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm_in_training(shape, affine):
    parameters = [random(C, seed=1), random(C, seed=2)] if affine else []
    check(
        lambda x, *p: functional.batch_norm(x, None, None, *p, training=True),
        random(*shape),
        *parameters,
        ulps=8,
        scale=2.0,
    )


@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm_in_evaluation(affine):
    parameters = [random(C, seed=1), random(C, seed=2)] if affine else []
    check(
        lambda x, mean, var, *p: functional.batch_norm(x, mean.detach(), var.detach(), *p),
        random(4, C, 5),
        random(C, seed=3),
        random(C, seed=4, low=0.5),
        *parameters,
        ulps=8,
    )


def test_batch_norm_reads_every_layout():
    for x in layouts(random(4, C, 3, 5)):
        if x.stride(-1) == 0:
            x = x + random(4, C, 3, 1)
        check(
            lambda x, w, b: functional.batch_norm(x, None, None, w, b, training=True),
            x,
            random(C),
            random(C),
            ulps=8,
            scale=2.0,
        )


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("statistics", [torch.float32, None])
def test_batch_norm_moves_its_statistics(dtype, statistics):
    x = random(6, C, 4).to(dtype)
    running = [random(C, seed=1).to(statistics or dtype), random(C, seed=2, low=0.5).to(statistics or dtype)]
    ours, exact = [t.clone().npu() for t in running], [t.double() for t in running]
    functional.batch_norm(x.npu(), *ours, training=True, momentum=0.3)
    functional.batch_norm(x.double(), *exact, training=True, momentum=0.3)
    for a, e in zip(ours, exact, strict=True):
        assert a.dtype == (statistics or dtype)
        assert torch.allclose(a.cpu().double(), e, rtol=4 * torch.finfo(a.dtype).eps, atol=1e-6)


def test_batch_norm_modules():
    for dtype in FLOATS:
        module = torch.nn.BatchNorm2d(C).npu()
        x = place(random(4, C, 5, 5).to(dtype)).requires_grad_()
        module(x).sum().backward()
        module.eval()
        assert module(x).dtype == dtype
        assert module.weight.grad.dtype == torch.float32
        assert int(module.num_batches_tracked) == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_means_of_many_narrow_values_are_those_of_fp32(dtype):
    """The weight's gradient for equal gradients is 0, or how far the mean is off times the number of values: half an
    ulp of a mean below 1 is what fp32 leaves, and as much its kernel."""
    x, count = (random(64, C, 64, 64, low=0.5, high=1.25)).to(dtype), 64 * 64 * 64
    module = torch.nn.BatchNorm2d(C).npu()
    module(x.npu()).backward(torch.ones_like(x).npu())
    exact = torch.nn.BatchNorm2d(C, dtype=torch.float64)
    exact(x.double()).backward(torch.ones_like(x).double())
    invstd = 1 / x.double().std(dim=(0, 2, 3))
    off = (module.weight.grad.cpu().double() - exact.weight.grad).abs()
    assert bool((off <= 2 * count * invstd * 2**-25).all()), off


@pytest.mark.parametrize(
    ("shape", "normalized"), [((4, 6), (6,)), ((2, 3, 6), (6,)), ((2, 3, 6), (3, 6)), ((5,), (5,)), ((0, 6), (6,))]
)
@pytest.mark.parametrize("affine", [True, False])
def test_layer_norm(shape, normalized, affine):
    parameters = [random(*normalized, seed=1), random(*normalized, seed=2)] if affine else []
    check(
        lambda x, *p: functional.layer_norm(x, normalized, *p),
        random(*shape),
        *parameters,
        ulps=8,
        scale=2.0,
        grad=shape[0] != 0,
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("parameters", [torch.float32, None])
def test_gradients_of_a_layer_norm_over_many_rows(dtype, parameters):
    """Summed in fp32 and rounded once, also where ATen's CPU kernel sums in the input's dtype."""
    rows, width = 65_536, 16
    x, grad = random(rows, width).to(dtype), random(rows, width, seed=1).to(dtype)
    module = torch.nn.LayerNorm(width, dtype=parameters or dtype).npu()
    module(x.npu()).backward(grad.npu())
    exact = torch.nn.LayerNorm(width, dtype=torch.float64)
    exact(x.double()).backward(grad.double())
    for ours, theirs in ((module.weight.grad, exact.weight.grad), (module.bias.grad, exact.bias.grad)):
        ulp = torch.finfo(dtype).eps * theirs.abs().max()
        assert (ours.cpu().double() - theirs).abs().max() <= 2 * ulp
    x = torch.randn(4096, 64, dtype=dtype).npu()
    module = torch.nn.LayerNorm(64, dtype=parameters or dtype).npu()
    module(x).backward(torch.ones_like(x))
    assert module.bias.grad.tolist() == [4096.0] * 64


def test_layer_norm_with_fp32_parameters_and_in_every_layout():
    for x in layouts(random(4, 6)):
        if x.stride(-1) == 0:
            continue
        check(
            lambda x, w, b: functional.layer_norm(x, (6,), w, b),
            x,
            random(6, seed=1),
            random(6, seed=2),
            ulps=8,
            scale=2.0,
        )
    for dtype in (torch.float16, torch.bfloat16):
        x = random(4, 6).to(dtype)
        weight = random(6, seed=1).float()
        out = functional.layer_norm(x.npu(), (6,), weight.npu())
        exact = functional.layer_norm(x.double(), (6,), weight.double())
        assert out.dtype == dtype
        assert torch.allclose(out.cpu().double(), exact, rtol=2 * torch.finfo(dtype).eps, atol=torch.finfo(dtype).eps)


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("affine", [True, False])
def test_group_norm(groups, affine):
    parameters = [random(4, seed=1), random(4, seed=2)] if affine else []
    # mean and rstd travel from forward to backward in the input's dtype, as torch_npu allocates them
    check(lambda x, *p: functional.group_norm(x, groups, *p), random(3, 4, 2, 3), *parameters, ulps=16, scale=2.0)


# --- batch norm over several devices -------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_synchronised_statistics_equal_those_of_the_whole_batch(dtype):
    eps, momentum = 1e-5, 0.1
    parts = [random(n, C, 4, seed=n).to(dtype) for n in (2, 5)]
    whole = torch.cat(parts).double()
    stats = [torch.batch_norm_stats(part.npu(), eps) for part in parts]
    counts = torch.tensor([p.numel() // C for p in parts], dtype=torch.float32, device="npu")
    running = torch.zeros(C, device="npu"), torch.ones(C, device="npu")
    mean, invstd = torch.batch_norm_gather_stats_with_counts(
        parts[0].npu(),
        torch.stack([s[0] for s in stats]),
        torch.stack([s[1] for s in stats]),
        *running,
        momentum,
        eps,
        counts,
    )
    var = whole.var((0, 2), correction=0)
    for ours, exact in (
        (mean, whole.mean((0, 2))),
        (invstd, (var + eps).rsqrt()),
        (running[0], momentum * whole.mean((0, 2))),
        (running[1], 1 - momentum + momentum * whole.var((0, 2))),
    ):
        assert torch.allclose(ours.cpu().double(), exact, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_synchronised_forward_and_backward(dtype):
    eps = 1e-5
    x, grad = random(4, C, 5).to(dtype), random(4, C, 5, seed=1).to(dtype)
    weight, bias = random(C, seed=2).float(), random(C, seed=3).float()
    leaf = x.double().requires_grad_()
    w, b = weight.double().requires_grad_(), bias.double().requires_grad_()
    exact = functional.batch_norm(leaf, None, None, w, b, training=True, eps=eps)
    exact.backward(grad.double())
    x, grad, weight, bias = (t.npu() for t in (x, grad, weight, bias))
    mean, invstd = torch.batch_norm_stats(x, eps)
    tolerance = {"rtol": 8 * torch.finfo(dtype).eps, "atol": 8 * torch.finfo(dtype).eps}
    out = torch.batch_norm_elemt(x, weight, bias, mean, invstd, eps)
    assert torch.allclose(out.cpu().double(), exact, **tolerance)
    sum_dy, sum_dy_xmu, grad_weight, grad_bias = torch.batch_norm_backward_reduce(
        grad, x, mean, invstd, weight, True, True, True
    )
    assert torch.allclose(grad_weight.cpu().double(), w.grad, **tolerance)
    assert torch.allclose(grad_bias.cpu().double(), b.grad, **tolerance)
    counts = torch.tensor([8, 12], dtype=torch.int32, device="npu")  # two devices' shares of 20
    grad_input = torch.batch_norm_backward_elemt(grad, x, mean, invstd, weight, sum_dy, sum_dy_xmu, counts)
    assert torch.allclose(grad_input.cpu().double(), leaf.grad, **tolerance)


def test_statistics_from_sums():
    parts = [random(n, C, 2, 2, seed=n).float() for n in (2, 5)]
    whole = torch.cat(parts).double()
    totals, squares, counts = (torch.zeros(*s, device="npu") for s in ((2, C), (2, C), (2,)))
    for i, part in enumerate(parts):
        aclnn.run("aclnnBatchNormReduce", part.npu(), totals[i], squares[i])
        counts[i] = part.numel() // C
    mean, invstd, running_mean, running_var = torch.zeros(4, C, device="npu")
    running_var.fill_(1)
    aclnn.run(
        "aclnnSyncBatchNormGatherStats", totals, squares, counts, running_mean, running_var, 0.1, 1e-5, mean, invstd
    )
    for ours, exact in (
        (mean, whole.mean((0, 2, 3))),
        (invstd, (whole.var((0, 2, 3), correction=0) + 1e-5).rsqrt()),
        (running_mean, 0.1 * whole.mean((0, 2, 3))),
        (running_var, 0.9 + 0.1 * whole.var((0, 2, 3))),
    ):
        assert torch.allclose(ours.cpu().double(), exact, rtol=1e-5, atol=1e-6)


def test_fast_layer_norm_is_layer_norm():
    x, out = random(4, 6).float(), torch.zeros(4, 6, device="npu")
    mean, rstd = torch.zeros(2, 4, 1, device="npu")
    aclnn.run("aclnnFastLayerNorm", x.npu(), [6], None, None, 1e-5, out, mean, rstd)
    assert torch.allclose(out.cpu().double(), functional.layer_norm(x.double(), (6,)), atol=1e-5)
    assert torch.allclose(mean.cpu().double(), x.double().mean(1, keepdim=True), atol=1e-6)


def test_first_phase_refuses():
    def zeros(*shape, dtype=torch.float32):
        return torch.zeros(*shape, dtype=dtype, device="npu")

    ok = zeros(C)

    def batch(weight=ok, mean=ok, output=(2, C), training=True):
        return aclnn.first_phase(
            "aclnnBatchNorm",
            zeros(2, C),
            weight,
            None,
            mean,
            mean,
            training,
            0.1,
            1e-5,
            zeros(*output),
            zeros(C),
            zeros(C),
        )

    assert batch() == (0, "")
    for refused, code, text in (
        (batch(weight=zeros(4)), aclnn.INVALID_ARGUMENT, "weight has shape [4], expected [3]"),
        (batch(output=(2, 4)), aclnn.INVALID_ARGUMENT, "output has shape [2, 4], expected [2, 3]"),
        (batch(mean=None, training=False), aclnn.NULL_ARGUMENT, "runningMean and runningVar are null"),
        (
            aclnn.first_phase("aclnnLayerNorm", zeros(2, 3), [4], None, None, 1e-5, zeros(2, 3), None, None),
            aclnn.INVALID_ARGUMENT,
            "normalizedShape is [4], expected the last sizes of input",
        ),
        (
            aclnn.first_phase(
                "aclnnGroupNorm", zeros(2, 3), None, None, 2, 3, 1, 2, 1e-5, zeros(2, 3), zeros(2, 2), zeros(2, 2)
            ),
            aclnn.INVALID_ARGUMENT,
            "group is 2, expected a divisor of C",
        ),
    ):
        assert refused[0] == code
        assert text in refused[1]
