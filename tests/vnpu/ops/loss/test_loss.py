"""Losses and their gradients against float64."""

import aclnn
import pytest
import torch
from oracle import check, layouts, random
from torch.nn import functional

REDUCTIONS = ["none", "mean", "sum"]
CLASSES = torch.tensor([1, 0, 3, 2, 3])


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ignored", [-100, 3])
def test_cross_entropy(reduction, weighted, ignored):
    weight = [random(4, low=0.5, seed=1)] if weighted else []

    def loss(x, *w):
        w = [one.detach() for one in w]
        return functional.cross_entropy(x, CLASSES.to(x.device), *w, reduction=reduction, ignore_index=ignored)

    check(loss, random(5, 4), *weight, ulps=8)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_nll_of_images_and_of_one_sample(reduction):
    images = torch.randint(4, (2, 3, 5), generator=torch.Generator().manual_seed(0))
    images[0, 0, 0] = -100
    check(lambda x: functional.nll_loss(x, images.to(x.device), reduction=reduction), random(2, 4, 3, 5), ulps=4)
    check(
        lambda x, w: functional.nll_loss(x, images.to(x.device), w.detach(), reduction=reduction),
        random(2, 4, 3, 5),
        random(4, low=0.5),
        ulps=4,
    )
    check(lambda x: functional.nll_loss(x, torch.tensor(2).to(x.device), reduction=reduction), random(4))


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_nll_of_images_with_a_class_left_out(reduction):
    images = torch.randint(4, (2, 3, 5), generator=torch.Generator().manual_seed(0))

    def loss(x):
        return functional.nll_loss(x, images.to(x.device), ignore_index=2, reduction=reduction)

    check(loss, random(2, 4, 3, 5), ulps=4)


def test_label_smoothing_and_probabilities():
    check(lambda x: functional.cross_entropy(x, CLASSES.to(x.device), label_smoothing=0.1), random(5, 4), ulps=8)
    check(lambda x, p: functional.cross_entropy(x, p.detach().softmax(-1)), random(5, 4), random(5, 4, seed=1), ulps=8)


def test_nll_reads_every_layout():
    for x in layouts(random(5, 4)):
        check(lambda x: functional.nll_loss(x, CLASSES.to(x.device)), x)


def test_classes_of_other_dtypes():
    x, out, total = random(5, 4).float(), torch.zeros((), device="npu"), torch.zeros((), device="npu")
    expected = functional.nll_loss(x.double(), CLASSES)
    weight = torch.ones(4, device="npu")
    for dtype in (torch.int32, torch.uint8):
        aclnn.run("aclnnNLLLoss", x.npu(), CLASSES.to(dtype).npu(), weight, 1, -100, out, total)
        assert abs(out.item() - expected.item()) < 1e-6
        assert total.item() == 5


POINTWISE = {
    "l1": functional.l1_loss,
    "mse": functional.mse_loss,
    "smooth_l1": functional.smooth_l1_loss,
    "smooth_l1 beta": lambda x, y, **o: functional.smooth_l1_loss(x, y, beta=0.3, **o),
    "huber": lambda x, y, **o: functional.huber_loss(x, y, delta=0.7, **o),
    "soft_margin": lambda x, y, **o: functional.soft_margin_loss(x, y.detach().sign(), **o),
    "kl": lambda x, y, **o: functional.kl_div(x, y.detach().abs(), **o),
    "kl of logarithms": lambda x, y, **o: functional.kl_div(x, y.detach(), log_target=True, **o),
    "bce": lambda x, y, **o: functional.binary_cross_entropy(x.sigmoid(), y.detach().sigmoid(), **o),
    "bce of logits": lambda x, y, **o: functional.binary_cross_entropy_with_logits(x, y.detach().sigmoid(), **o),
}


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", POINTWISE)
def test_pointwise(name, reduction):
    check(lambda x, y: POINTWISE[name](x, y, reduction=reduction), random(3, 5), random(3, 5, seed=1), ulps=8)


@pytest.mark.parametrize("name", POINTWISE)
def test_pointwise_in_every_layout_and_size(name):
    for x in layouts(random(3, 4)):
        check(lambda x, y: POINTWISE[name](x, y), x, random(3, 4, seed=1), dtypes=[torch.float32], ulps=8)
    check(lambda x, y: POINTWISE[name](x, y, reduction="sum"), random(0, 4), random(0, 4), dtypes=[torch.float32])
    check(lambda x, y: POINTWISE[name](x, y), random(1), random(1, seed=1), ulps=8)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_weighted_binary_cross_entropy(reduction):
    def probabilities(x, y, w):
        return functional.binary_cross_entropy(x.sigmoid(), y.detach().sigmoid(), w.detach(), reduction=reduction)

    def logits(x, y, w, p):
        return functional.binary_cross_entropy_with_logits(
            x, y.detach().sigmoid(), weight=w.detach(), pos_weight=p.detach(), reduction=reduction
        )

    check(probabilities, random(3, 5), random(3, 5, seed=1), random(3, 5, low=0.5, seed=2), ulps=8)
    check(logits, random(3, 5), random(3, 5, seed=1), random(3, 5, low=0.5, seed=2), random(5, low=0.5, seed=3), ulps=8)


def test_kl_div_of_batches_and_of_zeros():
    check(
        lambda x, y: functional.kl_div(x, y.detach().abs(), reduction="batchmean"),
        random(4, 5),
        random(4, 5, seed=1),
        ulps=8,
    )
    hot = torch.eye(4, dtype=torch.float64)
    check(lambda x: functional.kl_div(x, hot.to(x.device, x.dtype), reduction="none"), random(4, 4))


def test_sequences_without_alignment():
    targets = torch.tensor([[1, 2, 2, 0], [3, 1, 0, 0]])
    lengths, sizes = torch.tensor([7, 5]), torch.tensor([3, 2])

    def loss(x, **options):
        return functional.ctc_loss(x.log_softmax(-1), targets.to(x.device), lengths, sizes, **options)

    for reduction in REDUCTIONS:
        check(lambda x, r=reduction: loss(x, reduction=r), random(7, 2, 5), dtypes=[torch.float32], ulps=64, scale=1.0)
    check(lambda x: loss(x, blank=4), random(7, 2, 5), dtypes=[torch.float32], ulps=64, scale=1.0)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_margins_of_labels(reduction):
    labels = torch.tensor([[3, 0, -1, 1], [1, -1, 0, 2]])
    check(
        lambda x: functional.multilabel_margin_loss(x, labels.to(x.device), reduction=reduction),
        random(2, 4),
        grad=False,
    )


def test_first_phase_refuses():
    def zeros(*shape, dtype=torch.float32):
        return torch.zeros(shape, dtype=dtype, device="npu")

    def nll(target=(5,), weight=(4,), reduction=1, out=(), dtype=torch.int64):
        return aclnn.first_phase(
            "aclnnNLLLoss",
            zeros(5, 4),
            zeros(*target, dtype=dtype),
            zeros(*weight),
            reduction,
            -100,
            zeros(*out),
            zeros(),
        )

    assert nll() == (0, "")
    for refused, text in (
        (nll(target=(4,)), "target has shape [4], expected [5]"),
        (nll(weight=(5,)), "weight has shape [5], expected [4]"),
        (nll(reduction=3), "reduction is 3, allowed is 0 to 2"),
        (nll(reduction=0), "out has shape [], expected [5]"),
        (nll(dtype=torch.float32), "target has dtype float32"),
        (aclnn.first_phase("aclnnMseLoss", zeros(3), zeros(4), 0, zeros(3)), "does not broadcast"),
        (aclnn.first_phase("aclnnMseLoss", zeros(3), zeros(3), 0, zeros(4)), "out has shape [4], expected [3]"),
        (aclnn.first_phase("aclnnL1Loss", zeros(3), zeros(3), 4, zeros()), "reduction is 4"),
    ):
        assert refused[0] == aclnn.INVALID_ARGUMENT
        assert text in refused[1]


def test_distances_of_integers():
    """In 64 bits, past what a float holds; they have no mean."""
    x, y = torch.tensor([2**53 + 1, 3, -4]), torch.tensor([0, 5, 5])
    expected = (x - y).abs()
    out, total = (torch.zeros(3, dtype=torch.int64, device="npu"), torch.zeros((), dtype=torch.int64, device="npu"))
    aclnn.run("aclnnL1Loss", x.npu(), y.npu(), 0, out)
    aclnn.run("aclnnL1Loss", x.npu(), y.npu(), 2, total)
    assert out.tolist() == expected.tolist()
    assert total.item() == expected.sum().item()
    real, mean = torch.tensor([0.5, 5.0, 5.0]).npu(), torch.zeros((), device="npu")
    aclnn.run("aclnnL1Loss", x[[1, 1, 2]].npu(), real, 1, mean)
    assert mean.item() == pytest.approx((2.5 + 2 + 9) / 3)
    for self, target, reduction, result in ((x.npu(), y.npu(), 1, mean), (x.npu(), real, 0, torch.zeros(3).npu())):
        status, message = aclnn.first_phase("aclnnL1Loss", self, target, reduction, result)
        assert status == aclnn.INVALID_ARGUMENT
        assert "should be either floating point" in message


def test_ctc_loss_refuses_labels_that_are_not_those_of_the_sequences():
    """(ops-nn: aclnn_ctc_loss.cpp, CheckTargetAndOutShapeParameterValue, and aclnn_ctc_loss_backward.cpp)"""

    def status(*shape, lengths=(3, 2)):
        targets = torch.ones(shape, dtype=torch.int64, device="npu")
        steps, alpha = torch.zeros(5, 2, 4, device="npu"), torch.zeros(2, 5, 8, device="npu")
        loss = torch.zeros(2, device="npu")
        shared = (targets, [5, 5], list(lengths))
        forward = aclnn.first_phase("aclnnCtcLoss", steps, *shared, 0, False, loss, alpha)
        backward = aclnn.first_phase("aclnnCtcLossBackward", loss, steps, *shared, loss, alpha, 0, False, steps.clone())
        return forward, backward

    assert status(2, 3) == status(2, 4) == status(5) == ((0, ""), (0, ""))
    for shape, text in (
        ((0, 3), "expected [2, ...], one row for each sequence"),
        ((3, 3), "expected [2, ...], one row for each sequence"),
        ((2, 2), "asks for 3 labels, targets has 2"),
        ((6,), "asks for 5 labels, targets has 6"),
        ((1, 2, 3), "targets has 3 dimensions"),
    ):
        for code, message in status(*shape):
            assert code == aclnn.INVALID_ARGUMENT
            assert text in message
    assert status(2, 3, lengths=(3, 0)) == ((0, ""), (0, ""))
    for code, message in status(2, 3, lengths=(3, -1)):
        assert code == aclnn.INVALID_ARGUMENT and "targetLengths has the value -1" in message


def test_ctc_loss_with_more_room_than_states():
    """CANN aligns what passes from forward to backward."""
    probs = random(4, 2, 5).float().log_softmax(-1)
    targets, steps, sizes = torch.tensor([[1, 2], [3, 3]]), [4, 4], [2, 2]
    loss, gradient = torch.zeros(2, device="npu"), torch.zeros(4, 2, 5, device="npu")
    room = torch.zeros(2, 6, 8, device="npu")
    call = (probs.npu(), targets.npu(), steps, sizes)
    aclnn.run("aclnnCtcLoss", *call, 0, False, loss, room)
    aclnn.run("aclnnCtcLossBackward", torch.ones(2, device="npu"), *call, loss, room, 0, False, gradient)
    leaf = probs.double().requires_grad_()
    expected = functional.ctc_loss(leaf, targets, tuple(steps), tuple(sizes), reduction="none")
    expected.sum().backward()
    assert torch.allclose(loss.cpu().double(), expected, rtol=1e-5)
    assert torch.allclose(gradient.cpu().double(), leaf.grad, atol=1e-5)
