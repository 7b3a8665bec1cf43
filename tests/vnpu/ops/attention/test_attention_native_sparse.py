"""Native sparse attention: compression, attention over compressed keys and over chosen blocks, against loops in float64."""

from typing import Any

import pytest
import torch
import torch_npu
from aclnn import INVALID_ARGUMENT, first_phase
from oracle import compare, random

HALVES = [torch.float16, torch.bfloat16]
BLOCK, STRIDE = 32, 16
PART_REFUSED = 561103


def spans(ends: list[int]) -> list[tuple[int, int]]:
    return list(zip([0, *ends[:-1]], ends, strict=True))


def compressed(x: torch.Tensor, weight: torch.Tensor, ends: list[int]) -> torch.Tensor:
    rows = [
        (x[at : at + BLOCK] * weight.unsqueeze(-1)).sum(0)
        for start, end in spans(ends)
        for at in range(start, end - BLOCK + 1, STRIDE)
    ]
    return torch.stack(rows) if rows else x.new_zeros(0, *x.shape[1:])


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("ends", [[64], [5, 85, 85, 117], [31]])
def test_compression_and_its_gradient(dtype: torch.dtype, ends: list[int]) -> None:
    x = random(ends[-1], 3, 16, low=-1, high=1).to(dtype)
    weight = random(BLOCK, 3, low=-1, high=1, seed=1).to(dtype)
    exact = [t.double().requires_grad_() for t in (x, weight)]
    expected = compressed(*exact, ends)
    out = torch_npu.npu_nsa_compress(x.npu(), weight.npu(), BLOCK, STRIDE, actual_seq_len=ends)
    compare(out, expected, dtype, ulps=4)
    grad = random(*expected.shape, seed=2).to(dtype)
    found = torch_npu.npu_nsa_compress_grad(grad.npu(), x.npu(), weight.npu(), BLOCK, STRIDE, actual_seq_len=ends)
    wanted: Any = [torch.zeros_like(t) for t in exact]  # without a window
    if expected.requires_grad:
        wanted = torch.autograd.grad(expected, exact, grad.double())
    for a, e in zip(found, wanted, strict=True):
        compare(a, e, dtype, ulps=4)


@pytest.mark.parametrize("dtype", HALVES)
def test_compression_of_the_last_tokens(dtype: torch.dtype) -> None:
    """A sequence whose last token fills a window writes one row of the cache, others none."""
    pages = random(6, 32, 2, 16, low=-1, high=1).to(dtype)
    weight = random(BLOCK, 2, seed=1).to(dtype)
    table = torch.tensor([[4, 0, 1], [5, 2, 0], [3, 0, 0]], dtype=torch.int32)
    lengths, slots = [80, 64, 40], torch.tensor([3, 0, 1], dtype=torch.int32)
    cache = random(5, 2, 16, seed=2).to(dtype)
    expected = cache.double()
    for b, length in enumerate(lengths[:2]):
        tokens = pages[table[b].long()].flatten(0, 1)[length - BLOCK : length].double()
        expected[slots[b]] = (tokens * weight.double().unsqueeze(-1)).sum(0)
    on_npu = cache.npu()
    torch_npu.npu_nsa_compress_infer(
        pages.npu(),
        weight.npu(),
        slots.npu(),
        BLOCK,
        STRIDE,
        32,
        block_table=table.npu(),
        actual_seq_len=lengths,
        cache=on_npu,
    )
    compare(on_npu, expected, dtype, ulps=4)
    together = torch.cat([pages[table[b].long()].flatten(0, 1)[:n] for b, n in enumerate(lengths)])
    behind = cache.npu()
    torch_npu.npu_nsa_compress_infer(
        together.npu(), weight.npu(), slots.npu(), BLOCK, STRIDE, 32, actual_seq_len=lengths, cache=behind
    )
    compare(behind, expected, dtype, ulps=4)


def importance(weights: torch.Tensor, blocks: int, chosen: int) -> torch.Tensor:
    """[heads of a group, keys] to [blocks]."""
    sums = torch.zeros(blocks, dtype=torch.float64)
    for j in range(1, blocks + 1):
        for m in range(chosen // STRIDE):
            for n in range(BLOCK // STRIDE):
                at = chosen // STRIDE * j - m - n
                if 0 <= at < weights.shape[1]:
                    sums[j - 1] += weights[:, at].sum()
    return sums


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("masked", [False, True])
def test_attention_over_compressed_keys(dtype: torch.dtype, masked: bool) -> None:
    ends, key_ends, block_ends, chosen, count = [4, 7], [9, 21], [3, 6], 64, 2
    heads, groups = 4, 2
    q = random(7, heads, 16, low=-2, high=2).to(dtype)
    k = random(21, groups, 16, low=-2, high=2, seed=1).to(dtype)
    v = random(21, groups, 8, low=-1, high=1, seed=2).to(dtype)
    mask = torch.ones(4, 12, dtype=torch.bool).triu(6) if masked else None
    always = torch.eye(4, 3, dtype=torch.bool) if masked else None
    expected, indices, maxima, sums = [], [], [], []
    for (start, end), (key_start, key_end), (first, last) in zip(
        spans(ends), spans(key_ends), spans(block_ends), strict=True
    ):
        for row in range(end - start):
            key, value = (t[key_start:key_end].repeat_interleave(heads // groups, 1).double() for t in (k, v))
            scores = torch.einsum("hd,khd->hk", q[start + row].double(), key) * 0.3
            if mask is not None:
                scores = scores.masked_fill(mask[row, : key_end - key_start], -torch.inf)
            weights = scores.softmax(-1)
            expected.append(torch.einsum("hk,khd->hd", weights, value))
            maxima.append(scores.amax(-1, keepdim=True))
            sums.append((scores - maxima[-1]).exp().sum(-1, keepdim=True))
            for group in range(groups):
                own = importance(weights[group * 2 : group * 2 + 2], last - first, chosen)
                if always is not None:
                    own[always[row]] = 1e9
                indices.append(own.sort(descending=True, stable=True)[1][:count])
    out, chosen_blocks, maximum, total = torch_npu.npu_nsa_compress_attention(
        q.npu(),
        k.npu(),
        v.npu(),
        0.3,
        heads,
        BLOCK,
        STRIDE,
        chosen,
        count,
        atten_mask=None if mask is None else mask.npu(),
        topk_mask=None if always is None else always.npu(),
        actual_seq_qlen=ends,
        actual_cmp_seq_kvlen=key_ends,
        actual_sel_seq_kvlen=block_ends,
    )
    compare(out, torch.stack(expected), dtype, ulps=4)
    assert chosen_blocks.tolist() == torch.stack(indices).view(7, groups, count).tolist()
    compare(maximum, torch.stack(maxima).expand(7, heads, 8), torch.float32, ulps=16)
    compare(total, torch.stack(sums).expand(7, heads, 8), torch.float32, ulps=16)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("masked", [False, True])
def test_attention_over_chosen_blocks(dtype: torch.dtype, masked: bool) -> None:
    ends, key_ends, size, heads, groups = [3, 8], [64, 112], 16, 4, 2
    shapes = ((8, heads, 24), (112, groups, 24), (112, groups, 16))
    rounded = [random(*shape, low=-1, high=1, seed=i).to(dtype) for i, shape in enumerate(shapes)]
    exact = [t.double().requires_grad_() for t in rounded]
    generator = torch.Generator().manual_seed(3)
    indices = torch.stack(
        [torch.randperm(4 if token < 3 else 3, generator=generator)[:2] for token in range(8) for _ in range(groups)]
    ).view(8, groups, 2)
    if masked:
        indices[..., 0] = 0  # a query sees its own position at least
        indices[..., 1] = 2
    rows = []
    for (start, end), (key_start, _) in zip(spans(ends), spans(key_ends), strict=True):
        for token in range(start, end):
            for group in range(groups):
                at = torch.cat([torch.arange(i * size, (i + 1) * size) for i in indices[token, group].tolist()])
                if masked:
                    at = at[at <= token - start]
                key, value = (t[key_start + at, group] for t in exact[1:])
                scores = exact[0][token, group * 2 : group * 2 + 2] @ key.mT * 0.3
                rows.append(scores.softmax(-1) @ value)
    expected = torch.cat(rows).view(8, heads, 16)
    mask = torch.ones(2048, 2048, dtype=torch.bool).triu(1).npu() if masked else None
    on_npu = [t.npu() for t in rounded]
    options: dict[str, Any] = {"atten_mask": mask, "actual_seq_qlen": ends, "actual_seq_kvlen": key_ends}
    out, maximum, total = torch_npu.npu_nsa_select_attention(
        *on_npu, indices.int().npu(), 0.3, heads, size, 2, **options
    )
    compare(out, expected, dtype, ulps=4)
    grad = random(*expected.shape, seed=5).to(dtype)
    found = torch_npu.npu_nsa_select_attention_grad(
        grad.npu(), *on_npu, out, maximum, total, indices.int().npu(), 0.3, heads, size, 2, **options
    )
    wanted = torch.autograd.grad(expected, exact, grad.double())
    for a, e in zip(found, wanted, strict=True):
        compare(a, e, dtype, ulps=8, scale=1.0)


@pytest.mark.parametrize("dtype", HALVES)
def test_weights_of_chosen_blocks_are_rounded_before_the_values(dtype: torch.dtype) -> None:
    """As CANN's kernel does (nsa_selected_attention_kernel.h): where values cancel, that is seen."""
    key, value = torch.zeros(32, 1, 16), torch.ones(32, 1, 16)
    key[:, 0, 0] = torch.linspace(3, -3, 32)
    total = 0.0
    for i, weight in enumerate(key[:, 0, 0].to(dtype).double().softmax(0).tolist()):
        value[i] = -1 if total > 0 else 1
        total += weight * value[i, 0, 0].item()
    query = torch.zeros(1, 1, 16)
    query[..., 0] = 1
    q, k, v = (t.to(dtype) for t in (query, key, value))
    weights = k[:, 0, 0].double().softmax(0)
    expected, unrounded = ((w.double() * v[:, 0, 0].double()).sum() for w in (weights.to(dtype), weights))
    assert abs(expected - unrounded) > 4 * torch.finfo(dtype).eps * abs(expected)
    indices = torch.tensor([[[0, 1]]], dtype=torch.int32)
    found = torch_npu.npu_nsa_select_attention(
        q.npu(), k.npu(), v.npu(), indices.npu(), 1.0, 1, 16, 2, actual_seq_qlen=[1], actual_seq_kvlen=[32]
    )[0]
    compare(found, expected.expand(1, 1, 16), dtype, ulps=1)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("layout", ["TND", "BSND"])
def test_increments_over_compressed_keys(dtype: torch.dtype, layout: str) -> None:
    heads, groups, page, chosen, count = 4, 2, 16, 64, 4
    lengths = [26, 40]
    table = torch.tensor([[4, 0, 3], [5, 2, 1]], dtype=torch.int32)
    q = random(2, heads, 16, low=-2, high=2).to(dtype)
    k, v = (random(6, page, groups * 16, low=-2, high=2, seed=i).to(dtype) for i in (1, 2))
    expected, indices = [], []
    for b, length in enumerate(lengths):
        key, value = (t[table[b].long()].view(-1, groups, 16)[:length].double() for t in (k, v))
        blocks = -(-((length - 1) * STRIDE + BLOCK) // chosen)
        for group in range(groups):
            weights = (q[b, group * 2 : group * 2 + 2].double() @ key[:, group].mT * 0.3).softmax(-1)
            expected.append(weights @ value[:, group])
            own = importance(weights, blocks, chosen)
            best = own[1:-2].sort(descending=True, stable=True)[1][: count - 3] + 1
            indices.append([0, blocks - 2, blocks - 1, *best.tolist()])
    placed = q if layout == "TND" else q.unsqueeze(1)
    out, chosen_blocks = torch_npu.npu_nsa_compress_attention_infer(
        placed.npu(),
        k.npu(),
        v.npu(),
        0.3,
        heads,
        groups,
        chosen,
        count,
        page,
        BLOCK,
        STRIDE,
        layout=layout,
        block_table=table.npu(),
        actual_cmp_seq_kvlen=lengths,
    )
    compare(out, torch.cat(expected).view(placed.shape), dtype, ulps=4)
    assert chosen_blocks.flatten().tolist() == [i for row in indices for i in row]


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("layout", ["TND", "BSND", "BSH"])
def test_increments_over_chosen_blocks(dtype: torch.dtype, layout: str) -> None:
    """The last block may be part of one; a negative index ends the list."""
    heads, groups, page, size = 4, 2, 32, 16
    lengths = [70, 96]
    table = torch.tensor([[4, 0, 3], [5, 2, 1]], dtype=torch.int32)
    q = random(2, heads, 16, low=-2, high=2).to(dtype)
    k, v = (random(6, page, groups * 16, low=-2, high=2, seed=i).to(dtype) for i in (1, 2))
    indices = torch.tensor([[[4, 0, -1], [1, 2, 3]], [[5, 3, 1], [0, -1, -1]]], dtype=torch.int32)
    expected = []
    for b, length in enumerate(lengths):
        key, value = (t[table[b].long()].view(-1, groups, 16).double() for t in (k, v))
        for group in range(groups):
            named = [i for i in indices[b, group].tolist() if i >= 0]
            at = torch.cat([torch.arange(i * size, min((i + 1) * size, length)) for i in named])
            weights = (q[b, group * 2 : group * 2 + 2].double() @ key[at, group].mT * 0.3).softmax(-1)
            expected.append(weights @ value[at, group])
    placed = {"TND": q, "BSND": q.unsqueeze(1), "BSH": q.view(2, 1, -1)}[layout]
    if layout == "BSND":
        k, v = (t.unflatten(2, (groups, 16)) for t in (k, v))
    out = torch_npu.npu_nsa_select_attention_infer(
        placed.npu(),
        k.npu(),
        v.npu(),
        indices.npu(),
        0.3,
        heads,
        groups,
        size,
        3,
        page,
        layout=layout,
        block_table=table.npu(),
        actual_seq_qlen=[1, 1],
        actual_seq_kvlen=lengths,
    )
    compare(out, torch.cat(expected).view(placed.shape), dtype, ulps=4)


def test_refusals() -> None:
    x, weight = torch.ones(64, 2, 16).half().npu(), torch.ones(32, 2).half().npu()
    out = torch.empty(3, 2, 16).half().npu()
    right = [x, weight, [64], "TND", 32, 16, 0, out]
    assert first_phase("aclnnNsaCompress", *right) == (0, "")
    for place, value, code, words in (
        (2, [63], INVALID_ARGUMENT, "must grow to 64"),
        (3, "BSND", INVALID_ARGUMENT, "allowed is TND"),
        (5, 8, PART_REFUSED, "compressStride 8"),
        (6, 1, INVALID_ARGUMENT, "actSeqLenType is 1"),
        (7, out[:2], INVALID_ARGUMENT, "output has shape [2, 2, 16]"),
    ):
        status, message = first_phase("aclnnNsaCompress", *right[:place], value, *right[place + 1 :])
        assert status == code and words in message, message
    cache = torch.empty(4, 2, 32).half().npu()[..., ::2]
    slots = torch.zeros(1, dtype=torch.int32).npu()
    for gaps, code in ((cache, INVALID_ARGUMENT), (cache.contiguous(), 0)):
        status, message = first_phase(
            "aclnnNsaCompressWithCache", x, weight, slots, [64], None, "TND", 32, 16, 1, 32, gaps
        )
        assert status == code, message
    q, k = torch.ones(4, 2, 16).half().npu(), torch.ones(64, 1, 16).half().npu()
    statistic, indices = torch.ones(4, 2, 8).npu(), torch.zeros(4, 1, 2, dtype=torch.int32).npu()
    for size, ends, mode, code, words in (
        (16, [64], 2, 0, ""),
        (24, [64], 2, PART_REFUSED, "selectedBlockSize is 24"),
        (16, [60], 2, INVALID_ARGUMENT, "must grow to 64"),
        (16, [64], 1, INVALID_ARGUMENT, "sparseMode is 1"),
    ):
        status, message = first_phase(
            "aclnnNsaSelectedAttention",
            q,
            k,
            k,
            indices,
            None,
            [4],
            ends,
            1.0,
            2,
            "TND",
            mode,
            size,
            2,
            statistic,
            statistic,
            q,
        )
        assert status == code and words in message, message
