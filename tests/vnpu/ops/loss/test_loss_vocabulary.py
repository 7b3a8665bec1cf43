"""Cross-entropy over a vocabulary that is spread over devices."""

import pytest
import torch
import torch_npu
from aclnn import INVALID_ARGUMENT, first_phase
from oracle import compare, random

ROWS, WIDTH, VOCABULARY = 11, 6, 8
START, END = 5, 13


def reference(
    x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    logits = x.double() @ weight.double().t()
    top = logits.amax(1)
    below = logits - top.unsqueeze(1)
    here = (target >= START) & (target < END)
    own = torch.where(here, target - START, 0).long()
    predicted = torch.where(here, below[torch.arange(ROWS), own], 0.0)
    return top, below.exp().sum(1), predicted, here


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("index", [torch.int32, torch.int64])
@pytest.mark.parametrize("logits", [True, False])
def test_parts_of_a_device(dtype: torch.dtype, index: torch.dtype, logits: bool) -> None:
    x, weight = random(ROWS, WIDTH).to(dtype), random(VOCABULARY, WIDTH, seed=1).to(dtype)
    target = torch.randint(0, 20, (ROWS,), generator=torch.Generator().manual_seed(1)).to(index)
    top, total, predicted, here = reference(x, weight, target)
    assert 0 < int(here.sum()) < ROWS
    got = torch_npu.npu_fused_linear_online_max_sum(
        x.npu(), weight.npu(), target.npu(), START, END, return_logits=logits
    )
    for actual, expected in zip(got[:3], (top, total, predicted), strict=True):
        compare(actual, expected, torch.float32, ulps=16)
    bits = [int(byte) >> i & 1 for byte in got[3].cpu() for i in range(8)]
    assert bits == [int(not h) for h in here] + [1] * (16 - ROWS)
    assert got[4].dtype == index
    assert torch.equal(got[4].cpu(), torch.where(here, target - START, 0).to(index))
    if logits:
        compare(got[5], x.double() @ weight.double().t(), dtype)
    else:
        assert got[5] is None

    loss, softmax = torch_npu.npu_fused_cross_entropy_loss_with_max_sum(
        got[0], got[1], got[2], label_smoothing=0.0, vocab_parallel_logits=got[5]
    )
    compare(loss, total.log() - predicted, torch.float32, ulps=16)
    if logits:
        expected = (got[5].cpu().double() - top.unsqueeze(1)).exp() / total.unsqueeze(1)
        compare(softmax, expected, torch.float32, ulps=32)


@pytest.mark.parametrize("saved", [True, False])
def test_gradients_are_those_of_autograd(saved: bool) -> None:
    x, weight = random(ROWS, WIDTH).half(), random(VOCABULARY, WIDTH, seed=1).half()
    target = torch.randint(0, 20, (ROWS,), generator=torch.Generator().manual_seed(1))
    top, total, _, here = reference(x, weight, target)
    a, b = x.double().requires_grad_(), weight.double().requires_grad_()
    grad = random(ROWS, seed=4)
    logits = a @ b.t()
    chosen = torch.where(here, logits[torch.arange(ROWS), torch.where(here, target - START, 0)], 0.0)
    (logits.logsumexp(1) - chosen).backward(grad)
    softmax = torch.softmax(x.double() @ weight.double().t(), 1)
    byte = [sum(int(not h) << i for i, h in enumerate(here[k : k + 8].tolist())) for k in (0, 8)]
    keep = (
        {"softmax": softmax.float().npu()}
        if saved
        else {"logits_max": top.float().npu(), "sum_exp_logits": total.float().npu()}
    )
    x_grad, weight_grad = torch_npu.npu_fused_linear_cross_entropy_loss_with_max_sum_backward(
        grad.float().npu(),
        x.npu(),
        weight.npu(),
        torch.tensor(byte, dtype=torch.uint8).npu(),
        torch.where(here, target - START, 0).npu(),
        label_smoothing=0.0,
        **keep,
    )
    compare(x_grad, a.grad, torch.float16, ulps=4)
    compare(weight_grad, b.grad, torch.float16, ulps=4)


def test_refusals() -> None:
    x, weight = torch.ones(4, 6, device="npu").half(), torch.ones(3, 6, device="npu").half()
    target, statistic = torch.zeros(4, dtype=torch.int32, device="npu"), torch.ones(4, device="npu")
    mask = torch.zeros(1, dtype=torch.uint8, device="npu")
    rest = (statistic, statistic, statistic, mask, target, None)
    for end, words in ((9, "weight's 3 rows cannot hold"), (-1, "cannot hold")):
        status, message = first_phase("aclnnFusedLinearOnlineMaxSum", x, weight, target, 0, end, *rest)
        assert status == INVALID_ARGUMENT and words in message, message
