"""Floyd attention and its gradient, against einsum and autograd in float64."""

import pytest
import torch
import torch_npu
from aclnn import INVALID_ARGUMENT, first_phase
from oracle import compare, random

BATCH, HEADS, N, M, K, WIDTH, SCALE = 1, 2, 16, 128, 128, 32, 0.2
FIRST, SECOND = (BATCH, HEADS, N, K, WIDTH), (BATCH, HEADS, K, M, WIDTH)
SHAPES = ((BATCH, HEADS, N, M, WIDTH), FIRST, FIRST, SECOND, SECOND)
PART_REFUSED = 561103


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("masked", [False, True])
def test_floyd_attention(dtype: torch.dtype, masked: bool) -> None:
    rounded = [random(*shape, low=-1, high=1, seed=i).to(dtype) for i, shape in enumerate(SHAPES)]
    q, k1, v1, k2, v2 = exact = [t.double().requires_grad_() for t in rounded]
    mask = random(BATCH, 1, N, 1, K) > 0.5 if masked else None
    scores = SCALE * (torch.einsum("bhnmd,bhnkd->bhnmk", q, k1) + torch.einsum("bhnmd,bhkmd->bhnmk", q, k2))
    if mask is not None:
        scores = scores.masked_fill(mask, -torch.inf)
    weights = scores.softmax(-1)
    expected = torch.einsum("bhnmk,bhnkd->bhnmd", weights, v1) + torch.einsum("bhnmk,bhkmd->bhnmd", weights, v2)
    on_npu = [t.npu().requires_grad_() for t in rounded]
    on_mask = None if mask is None else mask.npu()
    found = torch_npu.npu_fused_floyd_attention(*on_npu, atten_mask=on_mask, scale_value=SCALE)
    maximum, total, out = sorted(found, key=lambda t: t.shape[-1] != 8)
    top = scores.amax(-1, keepdim=True)
    compare(out, expected, dtype, ulps=8)
    compare(maximum, top.expand(*top.shape[:-1], 8), torch.float32, ulps=64)
    compare(total, (scores - top).exp().sum(-1, keepdim=True).expand(*top.shape[:-1], 8), torch.float32, ulps=64)
    grad = random(*expected.shape, seed=9).to(dtype)
    wanted = torch.autograd.grad(expected, exact, grad.double())
    gradients = torch_npu.npu_fused_floyd_attention_backward(
        grad.npu(),
        *(t.detach() for t in on_npu),
        out.detach(),
        maximum.detach(),
        total.detach(),
        atten_mask=on_mask,
        scale_value=SCALE,
    )
    for a, e in zip(gradients, wanted, strict=True):
        compare(a, e, dtype, ulps=16, scale=1.0)


def test_refusals() -> None:
    operands = [torch.ones(shape).half().npu() for shape in SHAPES]
    statistic = torch.ones(BATCH, HEADS, N, M, 8, device="npu")
    right = [*operands, None, 1.0, statistic, statistic, operands[0]]
    assert first_phase("aclnnFusedFloydAttention", *right) == (0, "")
    mask = torch.zeros(BATCH, 1, N, 1, K + 1, dtype=torch.bool, device="npu")
    for place, wrong, words in ((3, operands[1], "key2 has shape"), (5, mask, "attenMaskOptional has shape")):
        status, message = first_phase("aclnnFusedFloydAttention", *right[:place], wrong, *right[place + 1 :])
        assert status == INVALID_ARGUMENT and words in message, message
    small = [t[:, :, :8] for t in operands[:3]]
    few = [*small, *operands[3:], None, 1.0, statistic[:, :, :8], statistic[:, :, :8], small[0]]
    status, message = first_phase("aclnnFusedFloydAttention", *few)
    assert status == PART_REFUSED and "multiples of 16" in message, message
