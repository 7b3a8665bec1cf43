"""Attention over the blocks that a mask gives each block of queries, and its gradient, against autograd in float64."""

from typing import Any

import pytest
import torch
import torch_npu
from aclnn import INVALID_ARGUMENT, SIGNATURES, first_phase
from oracle import compare, random

HEADS, GROUPS, WIDTH, SCALE, BLOCK = 4, 2, 64, 0.2, [16, 128]
QUERIES, KEYS = [20, 33], [150, 256]
PART_REFUSED = 561103


def packed(t: torch.Tensor, lengths: list[int]) -> torch.Tensor:
    """[batch, heads, length, width] as one sequence behind the other."""
    return torch.cat([t[b, :, :n].transpose(0, 1) for b, n in enumerate(lengths)])


def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, blocks: torch.Tensor, lengths: list[int], key_lengths: list[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Result and logarithms of sums, [batch, heads, length, ...]; zeros beyond the lengths and where nothing is seen."""
    outs, sums = [], []
    for b, (n, m) in enumerate(zip(lengths, key_lengths, strict=True)):
        key, value = (t[b, :, :m].repeat_interleave(HEADS // GROUPS, 0) for t in (k, v))
        rows, columns = torch.arange(n) // BLOCK[0], torch.arange(m) // BLOCK[1]
        seen = blocks[b][:, rows][:, :, columns] != 0
        scores = (q[b, :, :n] @ key.mT * SCALE).masked_fill(~seen, -torch.inf)
        weights = scores.masked_fill(~seen.any(-1, keepdim=True), 0).softmax(-1) * seen.any(-1, keepdim=True)
        behind = q.shape[2] - n
        outs.append(torch.nn.functional.pad(weights @ value, (0, 0, 0, behind)))
        sums.append(torch.nn.functional.pad(scores.logsumexp(-1, keepdim=True), (0, 0, 0, behind)))
    return torch.stack(outs), torch.stack(sums)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("layout", ["TND", "BNSD"])
@pytest.mark.parametrize("with_lengths", [False, True])
def test_block_sparse_attention(dtype: torch.dtype, layout: str, with_lengths: bool) -> None:
    if layout == "TND" and not with_lengths:
        pytest.skip("TND needs lengths")
    lengths, key_lengths = (QUERIES, KEYS) if with_lengths else ([33, 33], [256, 256])
    shapes = ((2, HEADS, 33, WIDTH), (2, GROUPS, 256, WIDTH), (2, GROUPS, 256, WIDTH))
    rounded = [random(*shape, low=-1, high=1, seed=i).to(dtype) for i, shape in enumerate(shapes)]
    exact = [t.double().requires_grad_() for t in rounded]
    blocks = (random(2, HEADS, 3, 2, seed=7) > -0.5).to(torch.int8)
    blocks[:, :, 0, 0] = 1
    blocks[0, 1, 1] = 0  # a block of queries that sees nothing
    expected, sums = attention(*exact, blocks, lengths, key_lengths)

    def placed(t: torch.Tensor, own: list[int]) -> torch.Tensor:
        return t if layout == "BNSD" else packed(t, own)

    operands = [placed(t, own).npu() for t, own in zip(rounded, (lengths, key_lengths, key_lengths), strict=True)]
    options: dict[str, Any] = {
        "q_input_layout": layout,
        "kv_input_layout": layout,
        "num_key_value_heads": GROUPS,
        "scale_value": SCALE,
        "actual_seq_lengths": lengths if with_lengths else None,
        "actual_seq_lengths_kv": key_lengths if with_lengths else None,
    }
    out, lse = torch_npu.npu_block_sparse_attention(
        *operands, blocks.npu(), BLOCK, inner_precise=0, softmax_lse_flag=1, **options
    )
    compare(out, placed(expected, lengths), dtype, ulps=4)
    known = packed(sums, lengths).detach()
    found_sums = lse if layout == "TND" else packed(lse.cpu(), lengths).npu()
    compare(found_sums[known.isfinite().npu()], known[known.isfinite()], torch.float32, ulps=64)
    grad = random(*expected.shape, seed=9).to(dtype)
    wanted = torch.autograd.grad(expected, exact, grad.double())
    found = torch_npu.npu_block_sparse_attention_backward(
        placed(grad, lengths).npu(),
        *operands,
        out,
        lse,
        blocks.npu(),
        BLOCK,
        **{
            key: options[key]
            for key in (
                "actual_seq_lengths",
                "actual_seq_lengths_kv",
                "q_input_layout",
                "kv_input_layout",
                "num_key_value_heads",
                "scale_value",
            )
        },
    )
    for a, e, own in zip(found, wanted, (lengths, key_lengths, key_lengths), strict=True):
        compare(a, placed(e, own), dtype, ulps=16, scale=1.0)


@pytest.mark.parametrize(
    ("changed", "code", "words"),
    [
        ({"kvInputLayout": "TND"}, INVALID_ARGUMENT, "both the same"),
        ({"blockShapeOptional": [16]}, INVALID_ARGUMENT, "has 1 values"),
        ({"numKeyValueHeads": 3}, INVALID_ARGUMENT, "numKeyValueHeads is 3"),
        ({"actualSeqLengthsOptional": [20]}, INVALID_ARGUMENT, "given together"),
        ({"maskType": 1}, INVALID_ARGUMENT, "maskType is 1"),
        ({"blockShapeOptional": [16, 256]}, INVALID_ARGUMENT, "blockSparseMaskOptional has shape"),
        ({"blockShapeOptional": [16, 130]}, PART_REFUSED, "multiple of 128 keys"),
    ],
)
def test_refusals(changed: dict[str, Any], code: int, words: str) -> None:
    name = "aclnnBlockSparseAttention"
    q, k = torch.ones(1, HEADS, 20, WIDTH).half().npu(), torch.ones(1, GROUPS, 256, WIDTH).half().npu()
    call: dict[str, Any] = {
        "query": q,
        "key": k,
        "value": k,
        "blockSparseMaskOptional": torch.ones(1, HEADS, 2, 2, dtype=torch.int8).npu(),
        "blockShapeOptional": BLOCK,
        "qInputLayout": "BNSD",
        "kvInputLayout": "BNSD",
        "numKeyValueHeads": GROUPS,
        "scaleValue": 1.0,
        "attentionOut": q,
    }
    params = SIGNATURES[name]["params"]

    def arguments(**given: Any) -> list[Any]:
        return [{**call, **given}.get(param, 0 if kind == "int64_t" else None) for kind, param, _ in params]

    assert first_phase(name, *arguments()) == (0, "")
    status, message = first_phase(name, *arguments(**changed))
    assert status == code and words in message, message
