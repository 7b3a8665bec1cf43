"""Partial attention results brought together, against attention over all keys at once."""

import pytest
import torch
import torch_npu
from aclnn import INVALID_ARGUMENT, first_phase
from oracle import FLOATS, compare, random


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> list[torch.Tensor]:
    """Result, maximum and sum of [..., queries, width] in float64."""
    scores = q @ k.mT
    top = scores.amax(-1, keepdim=True)
    weight = (scores - top).exp()
    total = weight.sum(-1, keepdim=True)
    return [weight / total @ v, top, total]


def statistic(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float().expand(*tensor.shape[:-1], 8).contiguous().npu()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("layout", ["SBH", "TND"])
def test_ring_attention_update(dtype: torch.dtype, layout: str) -> None:
    batch = 2 if layout == "SBH" else 1
    q, k, v = random(batch, 3, 5, 4), random(batch, 3, 9, 4, seed=1), random(batch, 3, 9, 4, seed=2)
    parts = [attention(q, k[:, :, a:b], v[:, :, a:b]) for a, b in ((0, 6), (6, 9))]

    def placed(out: torch.Tensor) -> torch.Tensor:
        return out.permute(2, 0, 1, 3).flatten(2) if layout == "SBH" else out[0].transpose(0, 1).contiguous()

    def rows(tensor: torch.Tensor) -> torch.Tensor:
        return tensor if layout == "SBH" else tensor[0].transpose(0, 1).contiguous()

    rounded = [placed(part[0]).to(dtype) for part in parts]
    device = [(rounded[i].npu(), *(statistic(rows(t)) for t in parts[i][1:])) for i in range(2)]
    # the reference starts from the rounded parts, too
    top = torch.maximum(parts[0][1], parts[1][1])
    shares = [(part[1] - top).exp() * part[2] for part in parts]
    weights = [placed((share / sum(shares)).expand(*share.shape[:-1], 4)) for share in shares]
    expected = sum(r.double() * w for r, w in zip(rounded, weights, strict=True))
    lengths = None if layout == "SBH" else torch.tensor([5]).npu()
    out, maximum, total = torch_npu.npu_ring_attention_update(
        *device[0], *device[1], actual_seq_qlen=lengths, input_layout=layout
    )
    compare(out, expected, dtype, ulps=8)
    compare(maximum, statistic(rows(top)).cpu().double(), torch.float32)
    compare(total, statistic(rows(sum(shares))).cpu().double(), torch.float32, ulps=16)
    whole = attention(q, k, v)
    torch.testing.assert_close(out.cpu().double(), placed(whole[0]), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("update", [0, 1])
def test_attention_update(dtype: torch.dtype, update: int) -> None:
    lse = [random(6, seed=i).float() for i in range(3)]
    parts = [random(6, 8, seed=i + 5).to(dtype) for i in range(3)]
    out, total = torch_npu.npu_attention_update([t.npu() for t in lse], [t.npu() for t in parts], update)
    weight = torch.softmax(torch.stack(lse).double(), 0)
    compare(out, sum(w.unsqueeze(1) * p.double() for w, p in zip(weight, parts, strict=True)), dtype, ulps=4)
    if update:
        compare(total, torch.stack(lse).double().logsumexp(0), torch.float32, ulps=8)


def test_refusals() -> None:
    x, s = torch.ones(5, 2, 12, device="npu"), torch.ones(2, 3, 5, 8, device="npu")
    for layout, statistics, words in (("BSH", s, "allowed are SBH and TND"), ("SBH", s[:1], "does not belong")):
        status, message = first_phase(
            "aclnnRingAttentionUpdateV2",
            x,
            *(statistics,) * 2,
            x,
            *(statistics,) * 2,
            None,
            layout,
            "",
            x,
            *(statistics,) * 2,
        )
        assert status == INVALID_ARGUMENT and words in message, message
