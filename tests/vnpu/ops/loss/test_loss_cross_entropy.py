"""torch_npu's fused cross entropy."""

import aclnn
import pytest
import torch
import torch_npu
from oracle import check, random
from torch.nn import functional

TARGET = torch.tensor([1, 0, 3, 2, 3])


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize(("ignored", "smoothing"), [(-100, 0.0), (3, 0.0), (3, 0.2)])
@pytest.mark.parametrize("weighted", [False, True])
def test_loss_and_gradient(reduction, ignored, smoothing, weighted):
    weight = random(4, low=0.5, seed=1).float() if weighted else None

    def ours(x):
        w = None if weight is None else weight.npu()
        loss = torch_npu.npu_cross_entropy_loss(
            x, TARGET.npu(), w, reduction=reduction, ignore_index=ignored, label_smoothing=smoothing
        )[0]
        return loss.reshape(() if reduction != "none" else (5,))

    def exact(x):
        w = None if weight is None else weight.double()
        return functional.cross_entropy(
            x, TARGET, w, reduction=reduction, ignore_index=ignored, label_smoothing=smoothing
        )

    check(ours, random(5, 4), reference=exact, dtypes=[torch.float32], ulps=16)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_logits(dtype):
    x = random(5, 40).to(dtype)
    loss, log_prob = torch_npu.npu_cross_entropy_loss(x.npu(), TARGET.npu())[:2]
    assert abs(loss.item() - functional.cross_entropy(x.double(), TARGET).item()) < 8 * torch.finfo(dtype).eps
    assert torch.allclose(log_prob.cpu().double(), x.double().log_softmax(-1), rtol=torch.finfo(dtype).eps)


def test_first_phase_refuses():
    x, target, one = torch.zeros(5, 4, device="npu"), TARGET.npu(), torch.zeros(1, device="npu")

    def status(smoothing=0.0, reduction="mean", scale=0.0, loss=one):
        return aclnn.first_phase(
            "aclnnCrossEntropyLoss", x, target, None, reduction, -100, smoothing, scale, False, loss, x, None, None
        )

    assert status() == (0, "")
    for refused, text in (
        (status(smoothing=2.0), "labelSmoothing is 2, allowed is 0 to 1"),
        (status(reduction="max"), 'reductionOptional is "max"'),
        (status(scale=0.1), "lseSquareScaleForZloss is 0.1, allowed is 0"),
        (status(reduction="none"), "lossOut has shape [1], expected [5]"),
    ):
        assert refused[0] == aclnn.INVALID_ARGUMENT
        assert text in refused[1]
