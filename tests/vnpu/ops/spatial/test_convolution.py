"""Convolutions and their gradients against float64."""

import aclnn
import pytest
import torch
from oracle import check, layouts, random
from torch.nn import functional

CASES = {
    "plain": ((2, 3, 7, 6), (4, 3, 3, 2), {}),
    "stride": ((2, 3, 7, 6), (4, 3, 3, 3), {"stride": (2, 1), "padding": (1, 2)}),
    "dilation": ((1, 2, 9, 9), (3, 2, 3, 3), {"dilation": 2, "padding": 2}),
    "groups": ((2, 4, 5, 5), (6, 2, 3, 3), {"groups": 2, "padding": 1}),
    "depthwise": ((2, 4, 5, 5), (4, 1, 3, 3), {"groups": 4, "padding": 1}),
    "pointwise": ((2, 3, 4, 4), (5, 3, 1, 1), {}),
    "same": ((1, 2, 5, 6), (3, 2, 2, 4), {"padding": "same"}),
    "empty batch": ((0, 3, 5, 5), (4, 3, 3, 3), {}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("with_bias", [True, False])
def test_conv2d(case, with_bias):
    shape, weight, options = CASES[case]
    bias = [random(weight[0], seed=2)] if with_bias else []
    check(
        lambda x, w, *b: functional.conv2d(x, w, *b, **options), random(*shape), random(*weight, seed=1), *bias, ulps=4
    )


def test_conv1d_and_conv3d():
    check(
        lambda x, w, b: functional.conv1d(x, w, b, stride=2, padding=1),
        random(2, 3, 9),
        random(4, 3, 3, seed=1),
        random(4, seed=2),
        ulps=4,
    )
    check(
        lambda x, w, b: functional.conv3d(x, w, b, padding=1),
        random(1, 2, 4, 5, 3),
        random(3, 2, 3, 3, 3, seed=1),
        random(3, seed=2),
        ulps=4,
    )


@pytest.mark.parametrize(
    "options", [{}, {"stride": 2, "padding": 1, "output_padding": 1}, {"groups": 2, "stride": 2}, {"dilation": 2}]
)
def test_transposed(options):
    groups = options.get("groups", 1)
    check(
        lambda x, w, b: functional.conv_transpose2d(x, w, b, **options),
        random(2, 4, 4, 5),
        random(4, 3, 3, 3, seed=1),
        random(3 * groups, seed=2),
        ulps=4,
    )


def test_transposed_in_one_and_three_dimensions():
    check(lambda x, w: functional.conv_transpose1d(x, w, stride=2), random(2, 3, 5), random(3, 4, 3, seed=1), ulps=4)
    check(lambda x, w: functional.conv_transpose3d(x, w), random(1, 2, 3, 3, 2), random(2, 3, 2, 2, 2, seed=1), ulps=4)


def test_convolution_over_time():
    check(
        lambda x, w, b: torch.conv_tbc(x, w, b, 1), random(6, 2, 3), random(3, 3, 4, seed=1), random(4, seed=2), ulps=4
    )


def test_depthwise_by_its_own_name():
    x, w, b = random(2, 3, 6, 5).float(), random(6, 1, 3, 3, seed=1).float(), random(6, seed=2).float()
    expected = functional.conv2d(x.double(), w.double(), b.double(), stride=2, padding=1, groups=3)
    out = torch.zeros(expected.shape, device="npu")
    aclnn.run("aclnnConvDepthwise2d", x.npu(), w.npu(), [3, 3], b.npu(), [2, 2], [1, 1], [1, 1], out, 0)
    assert torch.allclose(out.cpu().double(), expected, atol=1e-5)


def test_every_layout():
    for x in layouts(random(2, 3, 5, 5)):
        check(lambda x, w: functional.conv2d(x, w, padding=1), x, random(4, 3, 3, 3, seed=1), ulps=4)
    for w in layouts(random(4, 3, 3, 3, seed=1)):
        check(lambda x, w: functional.conv2d(x, w, padding=1), random(2, 3, 5, 5), w, grad=False, ulps=4)


def test_single_gradients():
    x, w = random(2, 3, 5, 5).float().npu(), random(4, 3, 3, 3, seed=1).float().npu()
    for wanted in ((True, False), (False, True)):
        leaves = [t.clone().requires_grad_(yes) for t, yes in zip((x, w), wanted, strict=True)]
        functional.conv2d(*leaves).sum().backward()
        exact = [t.detach().cpu().double().requires_grad_(yes) for t, yes in zip((x, w), wanted, strict=True)]
        functional.conv2d(*exact).sum().backward()
        for ours, theirs in zip(leaves, exact, strict=True):
            assert (ours.grad is None) == (theirs.grad is None)
            if ours.grad is not None:
                assert torch.allclose(ours.grad.cpu().double(), theirs.grad, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sums_are_kept_in_fp32(dtype):
    ones = torch.ones(1, 4096, 1, 1, dtype=dtype, device="npu")
    assert functional.conv2d(ones, ones).item() == 4096


def test_padding_on_four_sides():
    # CANN's own form: top, bottom, left, right. torch_npu 2.13 does not send it.
    x, w = random(1, 2, 4, 5).float(), random(3, 2, 2, 2, seed=1).float()
    sides = [1, 0, 2, 1]
    padded = functional.pad(x.double(), (2, 1, 1, 0)).requires_grad_()
    expected = functional.conv2d(padded, w.double())
    out = torch.zeros(expected.shape, device="npu")
    shape = ([1, 1], sides, [1, 1], False, [0, 0], 1)
    aclnn.run("aclnnConvolution", x.npu(), w.npu(), None, *shape, out, 0)
    assert torch.allclose(out.cpu().double(), expected, atol=1e-5)
    grad = random(*expected.shape, seed=3)
    expected.backward(grad)
    gradient, nothing = torch.zeros(x.shape, device="npu"), torch.zeros(3, device="npu")
    aclnn.run(
        "aclnnConvolutionBackward",
        grad.float().npu(),
        x.npu(),
        w.npu(),
        [3],
        *shape,
        [True, False, True],
        0,
        gradient,
        None,
        nothing,
    )
    assert torch.allclose(gradient.cpu().double(), padded.grad[:, :, 1:, 2:-1], atol=1e-5)
    assert torch.allclose(nothing.cpu().double(), grad.sum((0, 2, 3)), atol=1e-5)


def test_transposed_padding_on_four_sides():
    x, w = random(1, 2, 4, 5).requires_grad_(), random(2, 3, 3, 3, seed=1).requires_grad_()
    expected = functional.conv_transpose2d(x, w)[:, :, 1:, 2:-1]  # top 1, bottom 0, left 2, right 1
    shape = ([1, 1], [1, 0, 2, 1], [1, 1], True, [0, 0], 1)
    image, window = (t.detach().float().npu() for t in (x, w))
    out = torch.zeros(expected.shape, device="npu")
    aclnn.run("aclnnConvolution", image, window, None, *shape, out, 0)
    assert torch.allclose(out.cpu().double(), expected, atol=1e-5)
    grad = random(*expected.shape, seed=3)
    expected.backward(grad)
    found = [torch.zeros_like(t) for t in (image, window, image.new_empty(3))]
    aclnn.run("aclnnConvolutionBackward", grad.float().npu(), image, window, [3], *shape, [True] * 3, 0, *found)
    for ours, theirs in zip(found, (x.grad, w.grad, grad.sum((0, 2, 3))), strict=True):
        assert torch.allclose(ours.cpu().double(), theirs, atol=1e-5)


@pytest.mark.parametrize("spatial", [1, 2, 3])
@pytest.mark.parametrize("transposed", [False, True])
def test_of_nothing_comes_nothing(spatial, transposed):
    """(ops-nn: aclnn_convolution.cpp, CheckShape, CheckEmptyTensor and ConvXdChecker)"""

    def status(x, w, out, padding=0):
        ones = [1] * spatial
        x, w, out = (torch.zeros(t, device="npu") for t in (x, w, out))
        return aclnn.first_phase(
            "aclnnConvolution", x, w, None, ones, [padding] * spatial, ones, transposed, [0] * spatial, 1, out, 0
        )

    plane = (4,) * (spatial - 1)
    x, w, out = (2, 3, *plane, 4), (3, 3, *(1 for _ in plane), 1), (2, 3, *plane, 4)
    assert status(x, w, out) == status((0, *x[1:]), w, (0, *out[1:])) == (0, "")
    window = (*w[:-1], 0)
    code, message = status(x, window, (*out[:-1], 3 if transposed else 5))
    assert code == aclnn.INVALID_ARGUMENT
    assert f"shape[{spatial + 1}] of filter must be greater than 0" in message
    code, message = status((2, 0, *x[2:]), (*((0, 3) if transposed else (3, 0)), *w[2:]), out)
    assert code == aclnn.INVALID_ARGUMENT
    if transposed:
        assert "shape[1] of this parameter must be greater than 0" in message
        return
    assert "output must be an empty tensor" in message
    padded = (2, 3, *(size + 2 for size in plane), 2)
    code, message = status((*x[:-1], 0), w, padded, padding=1)
    assert code == aclnn.INVALID_ARGUMENT
    assert "output must be an empty tensor" in message


def test_first_phase_refuses():
    def zeros(*shape, dtype=torch.float32):
        return torch.zeros(*shape, dtype=dtype, device="npu")

    def status(x, w, out, stride=(1, 1), groups=1, bias=None):
        return aclnn.first_phase(
            "aclnnConvolution", x, w, bias, list(stride), [0, 0], [1, 1], False, [0, 0], groups, out, 0
        )

    x, w, out = zeros(2, 3, 5, 5), zeros(4, 3, 3, 3), zeros(2, 4, 3, 3)
    assert status(x, w, out) == (0, "")
    for refused, text in (
        (status(x, w, zeros(2, 4, 3, 4)), "output has shape [2, 4, 3, 4], expected [2, 4, 3, 3]"),
        (status(x, zeros(4, 2, 3, 3), out), "does not fit the channels of input"),
        (status(x, w, out, stride=(0, 1)), "stride has the value 0, allowed is >= 1"),
        (status(x, w, out, stride=(1, 1, 1)), "stride has incorrect element nums 3. It should be 2"),
        (status(x, w, out, groups=0), "groups is 0"),
        (status(zeros(3, 5, 5), w, out), "input has 3 dimensions"),
        (status(zeros(2, 3, 2, 5), w, out), "does not fit into its dimension 2"),
        (status(x.int(), w, out), "input has dtype int32"),
        (status(x, w, out, bias=zeros(5)), "bias has 5 values, expected 4"),
    ):
        assert refused[0] == aclnn.INVALID_ARGUMENT
        assert text in refused[1]


@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_lengths_of_lists(spatial):
    """One number per dimension, and for some paddings two (ops-nn: aclnn_convolution.cpp, CheckParameterSizes, and
    convolution_backward_checker.cpp, CheckConvShape)."""

    def zeros(*shape):
        return torch.zeros(*shape, device="npu")

    def status(x, w, out, transposed, **lengths):
        stride, padding, dilation, more = (
            [value] * lengths.get(name, spatial)
            for name, value in (("stride", 1), ("padding", 0), ("dilation", 1), ("outputPadding", 0))
        )
        geometry = stride, padding, dilation, transposed, more, 1
        if backward:
            outputs = zeros(*x.shape), zeros(*w.shape), None
            return aclnn.first_phase(
                "aclnnConvolutionBackward", out, x, w, None, *geometry, [True, True, False], 0, *outputs
            )
        return aclnn.first_phase("aclnnConvolution", x, w, None, *geometry, out, 0)

    one, three = zeros(1, 1, *[3] * spatial), zeros(1, 1, *[1] * spatial)
    for backward in (False, True):
        for transposed in (False, True):
            call = (three, one, one, True) if transposed else (one, one, three, False)
            sides = spatial == 2 or (spatial == 1 and not transposed and not backward)
            assert status(*call) == (0, "")
            assert status(*call, padding=2 * spatial)[0] == (0 if sides else aclnn.INVALID_ARGUMENT)
            for name in ("stride", "padding", "dilation", "outputPadding"):
                unread = name == "outputPadding" and not transposed and not backward
                code, message = status(*call, **{name: spatial + 1 if spatial != 1 else 3})
                assert code == (0 if unread else aclnn.INVALID_ARGUMENT), message
                assert unread or f"{name} has incorrect element nums" in message, message


def test_padding_of_the_output():
    """(ops-nn: aclnn_convolution.cpp, CheckChannelAndGroups, and convolution_backward_checker.cpp, CheckConvParams)"""

    def status(spatial, stride, dilation, more, transposed=True, backward=True):
        x, w = torch.zeros(1, 1, *[2] * spatial).npu(), torch.zeros(1, 1, *[1] * spatial).npu()
        size = stride + 1 + more if transposed else 1 + 1 // stride
        out = torch.zeros(1, 1, *[size] * spatial).npu()
        geometry = *([value] * spatial for value in (stride, 0, dilation)), transposed, [more] * spatial, 1
        if backward:
            outputs = torch.zeros_like(x), torch.zeros_like(w), None
            return aclnn.first_phase(
                "aclnnConvolutionBackward", out, x, w, None, *geometry, [True, True, False], 0, *outputs
            )
        return aclnn.first_phase("aclnnConvolution", x, w, None, *geometry, out, 0)

    for spatial in (1, 2, 3):
        for backward in (False, True):
            code, message = status(spatial, 2, 1, 2, backward=backward)
            assert code == aclnn.INVALID_ARGUMENT and "must be less than both stride[0] and dilation[0]" in message
            assert status(spatial, 2, 1, 1, backward=backward) == (0, "")
        code, message = status(spatial, 1, 2, 1)  # less than the dilation alone
        assert (code == aclnn.INVALID_ARGUMENT) == (spatial == 3), message
        assert status(spatial, 1, 2, 1, backward=False) == (0, "")
        code, message = status(spatial, 2, 1, 1, transposed=False)
        assert code == aclnn.INVALID_ARGUMENT
        assert "when transposed=false, the value of outputPadding must be 0" in message
        assert status(spatial, 2, 1, 1, transposed=False, backward=False) == (0, "")


@pytest.mark.parametrize("empty", [2, 3, 4])
def test_gradients_of_nothing(empty):
    """Of an empty window or result there is no gradient of the input, unless that has no batch or no channels (ops-nn:
    convolution_backward_checker.cpp, CheckEmptyTensor)."""

    def status(batch, wanted):
        sizes = [1, 1, 1, 1, 1]
        sizes[empty] = 0
        x, w = torch.zeros(batch, 1, 1, 1, 1).npu(), torch.zeros(*sizes).npu()
        grad = torch.zeros(batch, *sizes[1:]).npu()
        outputs = torch.zeros_like(x) if wanted else None, torch.zeros_like(w), None
        return aclnn.first_phase(
            "aclnnConvolutionBackward",
            grad,
            x,
            w,
            None,
            [1] * 3,
            [0] * 3,
            [1] * 3,
            True,
            [0] * 3,
            1,
            [wanted, True, False],
            0,
            *outputs,
        )

    code, message = status(1, True)
    assert code == aclnn.INVALID_ARGUMENT and "its dimension 0 or 1 has to be 0" in message, message
    assert status(0, True) == (0, "")
    assert status(1, False) == (0, "")
