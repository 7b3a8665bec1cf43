"""Attention of prompts and of increments, against softmax written out in float64."""

from typing import Any

import pytest
import torch
import torch_npu
from aclnn import INVALID_ARGUMENT, first_phase, run
from oracle import compare, random

BATCH, HEADS, KEY_HEADS, WIDTH = 2, 4, 2, 16
SCALE = 0.3


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    left_out: torch.Tensor | None = None,
    pse: Any = 0.0,
    half: bool = False,
) -> torch.Tensor:
    """[heads, length, width] each. `half`: scores rounded as hardware's fast mode rounds them."""
    k, v = (t.double().repeat_interleave(HEADS // k.shape[0], 0) for t in (k, v))
    scores = q.double() @ k.mT
    scores = (scores.half().double() * SCALE).half().double() if half else scores * SCALE + pse
    if left_out is not None:
        scores = scores.masked_fill(left_out, -torch.inf)
    return torch.softmax(scores, -1).nan_to_num(0) @ v


def in_layout(tensor: torch.Tensor, layout: str) -> torch.Tensor:
    """From [batch, heads, length, width]."""
    if layout.startswith("BNSD"):
        return tensor
    tensor = tensor.transpose(1, 2).contiguous()
    return tensor if layout == "BSND" else tensor.flatten(2)


def operands(queries: int, keys: int, dtype: torch.dtype) -> list[torch.Tensor]:
    return [
        random(BATCH, HEADS, queries, WIDTH).to(dtype),
        random(BATCH, KEY_HEADS, keys, WIDTH, seed=1).to(dtype),
        random(BATCH, KEY_HEADS, keys, WIDTH, seed=2).to(dtype),
    ]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("layout", ["BSH", "BSND", "BNSD", "BNSD_BSND"])
@pytest.mark.parametrize("next_tokens", [None, 2])
def test_prompt_in_every_layout(dtype: torch.dtype, layout: str, next_tokens: int | None) -> None:
    """Beside a mask, a key further right than next_tokens counts as little: none by torch_npu's default."""
    q, k, v = operands(5, 7, dtype)
    mask = torch.rand(BATCH, 1, 5, 7, generator=torch.Generator().manual_seed(0)) < 0.3
    mask[..., 0] = False
    band = torch.ones(5, 7, dtype=torch.bool).triu(1 + (next_tokens or 0))
    expected = torch.stack(
        [attend(q[b], k[b], v[b], mask[b] | band, half=dtype == torch.float16) for b in range(BATCH)]
    )
    out = torch_npu.npu_prompt_flash_attention(
        *(in_layout(t, layout).npu() for t in (q, k, v)),
        atten_mask=mask.npu(),
        num_heads=HEADS,
        num_key_value_heads=KEY_HEADS,
        scale_value=SCALE,
        input_layout=layout,
        **({} if next_tokens is None else {"next_tokens": next_tokens}),
    )
    compare(out, in_layout(expected, "BSND" if layout == "BNSD_BSND" else layout), dtype)


@pytest.mark.parametrize("mode", [2, 3, 4])
def test_prompt_with_a_compressed_mask_and_lengths(mode: int) -> None:
    q, k, v = operands(6, 8, torch.float16)
    triangle = torch.ones(2048, 2048, dtype=torch.bool).triu(1)
    lengths, key_lengths = [6, 4], [8, 5]
    expected = torch.zeros(BATCH, HEADS, 6, WIDTH, dtype=torch.float64)
    for b, (n, m) in enumerate(zip(lengths, key_lengths, strict=True)):
        i, j = torch.arange(n).unsqueeze(1), torch.arange(m)
        shift = 0 if mode == 2 else m - n
        out = j > i + shift + (1 if mode == 4 else 0)
        if mode == 4:
            out |= j < i + shift - 2
        expected[b, :, :n] = attend(q[b, :, :n], k[b, :, :m], v[b, :, :m], out, half=True)
    out = torch_npu.npu_prompt_flash_attention(
        q.npu(),
        k.npu(),
        v.npu(),
        atten_mask=triangle.npu(),
        actual_seq_lengths=lengths,
        actual_seq_lengths_kv=key_lengths,
        num_heads=HEADS,
        num_key_value_heads=KEY_HEADS,
        scale_value=SCALE,
        input_layout="BNSD",
        sparse_mode=mode,
        pre_tokens=2,
        next_tokens=1,
    )
    compare(out, expected, torch.float16)


@pytest.mark.parametrize("inner_precise", [0, 1, 2, 3])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_fast_mode_rounds_the_scores_of_a_prompt(dtype: torch.dtype, inner_precise: int) -> None:
    """Large scores that lie close together show it."""
    q, k, v = operands(5, 7, dtype)
    q, k = q * 12, k[:, :, :1] * 12 + k / 16
    out = torch.empty_like(q, device="npu")
    run(
        "aclnnPromptFlashAttentionV3",
        q.npu(),
        k.npu(),
        v.npu(),
        None,
        None,
        None,
        None,
        None,
        None,
        None,
        None,
        None,
        HEADS,
        SCALE,
        7,
        7,
        "BNSD",
        KEY_HEADS,
        0,
        inner_precise,
        out,
    )
    fast, precise = (torch.stack([attend(q[b], k[b], v[b], half=half) for b in range(BATCH)]) for half in (True, False))
    assert (fast - precise).abs().max() > 0.05
    rounds = dtype == torch.float16 and inner_precise in (1, 3)
    compare(out, fast if rounds else precise, dtype)


def test_prompt_with_positions() -> None:
    q, k, v = operands(5, 7, torch.float16)
    pse = random(1, HEADS, 5, 7, seed=5).half()
    out = torch.empty_like(q, device="npu")
    run(
        "aclnnPromptFlashAttentionV3",
        q.npu(),
        k.npu(),
        v.npu(),
        pse.npu(),
        None,
        None,
        None,
        None,
        None,
        None,
        None,
        None,
        HEADS,
        SCALE,
        0,
        0,
        "BNSD",
        KEY_HEADS,
        0,
        0,
        out,
    )
    expected = torch.stack([attend(q[b], k[b], v[b], pse=pse[0].double()) for b in range(BATCH)])
    compare(out, expected, torch.float16)


@pytest.mark.parametrize("layout", ["BSH", "BSND", "BNSD"])
@pytest.mark.parametrize("listed", [False, True])
def test_increment(layout: str, listed: bool) -> None:
    q, k, v = operands(1, 9, torch.float16)
    lengths = [9, 4]
    expected = torch.stack([attend(q[b], k[b, :, :n], v[b, :, :n]) for b, n in enumerate(lengths)])
    caches = [in_layout(t, layout).npu() for t in (k, v)]
    split = [[c[b : b + 1].contiguous() for b in range(BATCH)] if listed else [c] for c in caches]
    out = torch.empty_like(in_layout(q, layout), device="npu")
    run(
        "aclnnIncreFlashAttentionV4",
        in_layout(q, layout).npu(),
        *split,
        None,
        None,
        lengths,
        *(None,) * 9,
        HEADS,
        SCALE,
        layout,
        KEY_HEADS,
        0,
        0,
        out,
    )
    compare(out, in_layout(expected, layout), torch.float16)


def test_increment_of_torch_npu_from_a_paged_cache() -> None:
    q, k, v = operands(1, 32, torch.float16)
    lengths, table = [31, 17], torch.tensor([[3, 0], [1, 2]], dtype=torch.int32)
    caches = []
    for t in (k, v):
        cache = torch.zeros(4, 16, KEY_HEADS * WIDTH, dtype=torch.float16)
        for b in range(BATCH):
            cache[table[b].long()] = in_layout(t, "BSH")[b].view(2, 16, -1)
        caches.append(cache.npu())
    out = torch_npu.npu_incre_flash_attention(
        in_layout(q, "BSH").npu(),
        *caches,
        actual_seq_lengths=lengths,
        block_table=table.npu(),
        num_heads=HEADS,
        num_key_value_heads=KEY_HEADS,
        scale_value=SCALE,
        input_layout="BSH",
        block_size=16,
    )
    expected = torch.stack([attend(q[b], k[b, :, :n], v[b, :, :n]) for b, n in enumerate(lengths)])
    compare(out, in_layout(expected, "BSH"), torch.float16)


def test_refusals() -> None:
    x = torch.ones(1, 2, 4, 8, device="npu").half()
    nothing = (None,) * 5
    for layout, heads, lengths, words in (
        ("TND", 2, None, 'inputLayout is "TND"'),
        ("BNSD", 3, None, "numHeads is 3"),
        ("BNSD", 2, [9], "actualSeqLengths has the value 9"),
    ):
        status, message = first_phase(
            "aclnnPromptFlashAttentionV3",
            x,
            x,
            x,
            None,
            None,
            lengths,
            None,
            *nothing,
            heads,
            1.0,
            0,
            0,
            layout,
            2,
            0,
            0,
            x,
        )
        assert status == INVALID_ARGUMENT and words in message, message
