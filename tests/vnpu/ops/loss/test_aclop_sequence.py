"""loss/sequence.cpp: the operators of CTC loss that torch_npu calls by name where it has them compiled."""

from __future__ import annotations

import pytest
import torch
from aclop import by_name, launch
from oracle import check, compare, random
from torch.nn import functional

pytestmark = pytest.mark.usefixtures("compiled")
FLOAT = [torch.float32]


@pytest.mark.parametrize("batched", [True, False])
def test_ctc_loss(batched: bool) -> None:
    x = random(7, 2, 5) if batched else random(7, 5)
    targets = torch.tensor([[1, 2, 3], [4, 4, 0]]) if batched else torch.tensor([1, 2, 3])
    lengths = (torch.tensor([7, 6]), torch.tensor([3, 2])) if batched else (torch.tensor(7), torch.tensor(3))
    before = by_name("CTCLossV2")
    check(
        lambda x, t: functional.ctc_loss(x.log_softmax(-1), t, *lengths), x, targets, dtypes=FLOAT, grad=False, ulps=16
    )
    assert by_name("CTCLossV2") > before, "torch_npu took another path"


def test_gradient_of_ctc_loss() -> None:
    """By name: which path the gradient takes depends on the thread."""
    log_probs = random(7, 2, 5).log_softmax(-1).requires_grad_()
    targets, lengths, used = torch.tensor([[1, 2, 3], [4, 4, 0]]), torch.tensor([7, 6]), torch.tensor([3, 2])
    loss, alpha = torch.ops.aten._ctc_loss(log_probs, targets, lengths, used)
    grad = random(2, seed=3)
    (expected,) = torch.autograd.grad(loss, log_probs, grad.to(loss.dtype))
    operands = [t.detach().float().npu() for t in (grad, log_probs, loss, alpha)]
    out = torch.empty(7, 2, 5, device="npu")
    integers = [t.npu() for t in (targets, lengths, used)]
    inputs = [operands[0], operands[1], *integers, operands[2], operands[3]]
    assert launch("CTCLossV2Grad", inputs, [out], blank=0) == (0, "")
    compare(out, expected, torch.float32, ulps=16)
