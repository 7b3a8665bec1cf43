"""Fused attention with a learned sink and with rotary parts that lie elsewhere, against torch's gradients in float64."""

from typing import Any

import pytest
import torch
import torch_npu
from aclnn import INVALID_ARGUMENT, NULL_ARGUMENT, SIGNATURES, first_phase, maximum_workspace
from oracle import FLOATS, compare, random

HEADS, KEY_HEADS, WIDTH, SCALE = 4, 2, 16, 0.3


def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sink: torch.Tensor | None, left_out: torch.Tensor
) -> torch.Tensor:
    """[..., heads, length, width] each."""
    k, v = (t.repeat_interleave(q.shape[-3] // t.shape[-3], -3) for t in (k, v))
    scores = (q @ k.mT * SCALE).masked_fill(left_out, -torch.inf)
    if sink is not None:
        column = sink.view(-1, 1, 1).expand(*scores.shape[:-1], 1)
        scores, v = torch.cat([scores, column], -1), torch.cat([v, torch.zeros_like(v[..., :1, :])], -2)
    return scores.softmax(-1) @ v


def leaves(*shapes: tuple[int, ...], dtype: torch.dtype) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Random tensors on the NPU and as float64, both with gradients."""
    rounded = [random(*shape, low=-1, high=1, seed=i).to(dtype) for i, shape in enumerate(shapes)]
    return [t.npu().requires_grad_() for t in rounded], [t.double().requires_grad_() for t in rounded]


def triangle() -> torch.Tensor:
    return torch.ones(2048, 2048, dtype=torch.bool).triu(1).npu()


def causal(queries: int, keys: int) -> torch.Tensor:
    return torch.ones(queries, keys, dtype=torch.bool).triu(1 + keys - queries)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("layout", ["BNSD", "BSND", "SBH"])
@pytest.mark.parametrize("version", ["", "_v2"])
def test_a_sink(dtype: torch.dtype, layout: str, version: str) -> None:
    (q, k, v), exact = leaves((2, HEADS, 5, WIDTH), *[(2, KEY_HEADS, 7, WIDTH)] * 2, dtype=dtype)
    sink = random(HEADS, seed=9).float()
    on_npu, exact_sink = sink.npu().requires_grad_(), sink.double().requires_grad_()
    expected = attention(*exact, exact_sink, causal(5, 7))

    def placed(t: torch.Tensor) -> torch.Tensor:
        if layout == "SBH":
            return t.permute(2, 0, 1, 3).flatten(2)
        return t if layout == "BNSD" else t.transpose(1, 2)

    out = getattr(torch_npu, f"npu_fusion_attention{version}")(
        *map(placed, (q, k, v)), HEADS, layout, scale=SCALE, atten_mask=triangle(), sparse_mode=3, sink=on_npu
    )[0]
    compare(out, placed(expected), dtype, ulps=4)
    grad = random(*expected.shape, seed=5).to(dtype)
    # A mask that lets one key through leaves no gradient: sizes of one cancel.
    found = torch.autograd.grad(out, (q, k, v, on_npu), placed(grad.npu()))
    wanted = torch.autograd.grad(expected, (*exact, exact_sink), grad.double())
    for a, e in zip(found[:3], wanted[:3], strict=True):
        compare(a, e, dtype, ulps=8, scale=1.0)
    compare(found[3], wanted[3], torch.float32, ulps=64 if dtype == torch.float32 else 2**18, scale=1.0)


@pytest.mark.parametrize("with_sink", [False, True])
@pytest.mark.parametrize("like_input", ["", "TND"])
def test_rotary_parts_of_sequences(with_sink: bool, like_input: str) -> None:
    """Two sequences one behind the other, of 3 and 5 queries."""
    ends, key_ends, dtype = [3, 8], [4, 10], torch.bfloat16
    if like_input and not with_sink:
        pytest.skip("torch_npu asks for another layout of the statistics beside a sink only")
    (q, k, v, q_rope, k_rope), exact = leaves(
        (8, HEADS, 32), (10, KEY_HEADS, 32), (10, KEY_HEADS, 32), (8, HEADS, 16), (10, KEY_HEADS, 16), dtype=dtype
    )
    sink = random(HEADS, seed=9).float()
    on_npu, exact_sink = sink.npu().requires_grad_(), sink.double().requires_grad_()
    parts = []
    for start, end, key_start, key_end in ((0, 3, 0, 4), (3, 8, 4, 10)):
        rows = [t[start:end] for t in (exact[0], exact[3])]
        keys = [t[key_start:key_end] for t in (exact[1], exact[4])]
        whole = [torch.cat(pair, -1).transpose(0, 1) for pair in (rows, keys)]
        value = exact[2][key_start:key_end].transpose(0, 1)
        left_out = causal(end - start, key_end - key_start)
        parts.append(attention(*whole, value, exact_sink if with_sink else None, left_out).transpose(0, 1))
    expected = torch.cat(parts)
    out = torch_npu.npu_fusion_attention_v2(
        q,
        k,
        v,
        HEADS,
        "TND",
        query_rope=q_rope,
        key_rope=k_rope,
        scale=SCALE,
        atten_mask=triangle(),
        sparse_mode=3,
        actual_seq_qlen=ends,
        actual_seq_kvlen=key_ends,
        sink=on_npu if with_sink else None,
        softmax_layout=like_input,
    )[0]
    compare(out, expected, dtype, ulps=4)
    grad = random(*expected.shape, seed=5).to(dtype)
    inputs = (q, k, v, q_rope, k_rope)
    found = torch.autograd.grad(out, inputs, grad.npu())
    wanted = torch.autograd.grad(expected, exact, grad.double())
    for a, e in zip(found, wanted, strict=True):
        compare(a, e, dtype, ulps=8, scale=1.0)


def arguments(name: str, **given: Any) -> list[Any]:
    """A call without a mask of one sequence; what is not named is null or what it is by default."""

    def f(*shape: int) -> torch.Tensor:
        return torch.ones(shape, dtype=torch.bfloat16, device="npu")

    statistic = torch.ones(8, HEADS, 8, device="npu")
    call: dict[str, Any] = {
        "query": f(8, HEADS, 32),
        "key": f(10, KEY_HEADS, 32),
        "keyIn": f(10, KEY_HEADS, 32),
        "value": f(10, KEY_HEADS, 32),
        "dy": f(8, HEADS, 32),
        "attentionInOptional": f(8, HEADS, 32),
        "softmaxMaxOptional": statistic,
        "softmaxSumOptional": statistic,
        "softmaxMaxOut": statistic,
        "softmaxSumOut": statistic,
        "attentionOutOut": f(8, HEADS, 32),
        "dqOut": f(8, HEADS, 32),
        "dkOut": f(10, KEY_HEADS, 32),
        "dvOut": f(10, KEY_HEADS, 32),
        "scaleValue": 1.0,
        "keepProb": 1.0,
        "preTokens": 2**31 - 1,
        "nextTokens": 2**31 - 1,
        "headNum": HEADS,
        "inputLayout": "TND",
        "actualSeqQLenOptional": [8],
        "actualSeqKvLenOptional": [10],
        "pseType": 1,
        "softmaxOutLayout": "",
        "softmaxInLayout": "",
        **given,
    }
    return [call.get(param, 0 if kind == "int64_t" else None) for kind, param, _ in SIGNATURES[name]["params"]]


NAMES = ["aclnnFlashAttentionVarLenScoreV5", "aclnnFlashAttentionUnpaddingScoreGradV5"]


@pytest.mark.parametrize("name", NAMES)
def test_refusals(name: str) -> None:
    def f(*shape: int) -> torch.Tensor:
        return torch.ones(shape, dtype=torch.bfloat16, device="npu")

    key = "key" if name == NAMES[0] else "keyIn"
    ropes = {"queryRope": f(8, HEADS, 16), f"{key}Rope": f(10, KEY_HEADS, 16)}
    results = {"dqRopeOut": f(8, HEADS, 16), "dkRopeOut": f(10, KEY_HEADS, 16)}
    mask = torch.zeros(8, 10, dtype=torch.bool, device="npu")
    assert first_phase(name, *arguments(name)) == (0, "")
    assert first_phase(name, *arguments(name, attenMaskOptional=mask, **ropes, **results)) == (0, "")
    for changed, code, words in (
        ({"queryRope": ropes["queryRope"]}, NULL_ARGUMENT, "given together"),
        (ropes, NULL_ARGUMENT, "only support query_rope and key_rope when attentionMask is given"),
        ({**ropes, "attenMaskOptional": mask, "keepProb": 0.5}, INVALID_ARGUMENT, "keepProb is 0.5"),
        ({"sinkOptional": torch.ones(3).npu(), "sinkInOptional": torch.ones(3).npu()}, INVALID_ARGUMENT, "shape [3]"),
    ):
        status, message = first_phase(name, *arguments(name, **changed))
        assert status == code and words in message, message
        assert maximum_workspace(name, *arguments(name, **changed))[0] == code
    assert maximum_workspace(name, *arguments(name)) == (0, "")
