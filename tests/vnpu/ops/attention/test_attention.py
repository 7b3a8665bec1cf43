"""Fused attention: layouts, sparse modes, dropout, packed sequences, and torch's scaled_dot_product_attention."""

import math
from typing import Any

import pytest
import torch
import torch_npu
from aclnn import INVALID_ARGUMENT, first_phase, run
from oracle import FLOATS, check, compare, random

BATCH, HEADS, QUERIES, KEYS, WIDTH = 2, 4, 5, 7, 6
TRIANGLE = 2048
PART_REFUSED = 561103  # ACLNN_ERR_INNER_NULLPTR


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    left_out: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    scale: float = 1.0,
    kept: torch.Tensor | None = None,
    keep: float = 1.0,
) -> torch.Tensor:
    """The reference, from [batch, heads, length, width]; a query that sees no key gives zeros."""
    group = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
    scores = query @ key.mT
    scores = scale * (scores if bias is None else scores + bias)
    if left_out is not None:
        blind = left_out.bool().all(-1, keepdim=True)
        scores = scores.masked_fill(left_out.bool() & ~blind, -torch.inf)
    probabilities = scores.softmax(-1)
    if left_out is not None:
        probabilities = probabilities.masked_fill(blind, 0.0)
    if kept is not None:
        probabilities = probabilities * kept / keep
    return probabilities @ value


def operands(key_heads: int = HEADS, queries: int = QUERIES, keys: int = KEYS) -> list[torch.Tensor]:
    """Query, key, value with heads first."""
    return [
        random(BATCH, HEADS, queries, WIDTH, low=-1, high=1, seed=1),
        random(BATCH, key_heads, keys, WIDTH, low=-1, high=1, seed=2),
        random(BATCH, key_heads, keys, WIDTH, low=-1, high=1, seed=3),
    ]


TO_LAYOUT = {
    "BNSD": lambda t: t,
    "BSND": lambda t: t.transpose(1, 2),
    "BSH": lambda t: t.transpose(1, 2).flatten(2),
    "SBH": lambda t: t.permute(2, 0, 1, 3).flatten(2),
}


def fused(layout: str = "BNSD", **options: Any) -> Any:
    def function(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        move = TO_LAYOUT[layout]
        return torch_npu.npu_fusion_attention(move(query), move(key), move(value), HEADS, layout, scale=0.4, **options)[
            0
        ]

    return function


def exact(layout: str = "BNSD", **options: Any) -> Any:
    return lambda *qkv: TO_LAYOUT[layout](attention(*qkv, scale=0.4, **options))


@pytest.mark.parametrize("layout", TO_LAYOUT)
@pytest.mark.parametrize("key_heads", [HEADS, 2, 1])
def test_layouts_and_grouped_heads(layout: str, key_heads: int) -> None:
    check(fused(layout), *operands(key_heads), reference=exact(layout), ulps=4)


def test_operands_in_every_memory_layout() -> None:
    query, key, value = operands()
    for strided in (query.mT.contiguous().mT, query.transpose(1, 2).contiguous().transpose(1, 2)):
        check(fused(), strided, key, value, reference=exact(), ulps=4, dtypes=FLOATS[:1])


def test_narrower_values() -> None:
    query, key, value = operands()
    check(fused(), query, key, value[..., :4].contiguous(), reference=exact(), ulps=4)


@pytest.mark.parametrize(
    "shape", [(QUERIES, KEYS), (1, 1, QUERIES, KEYS), (BATCH, 1, QUERIES, KEYS), (BATCH, HEADS, QUERIES, KEYS)]
)
@pytest.mark.parametrize("mode", [0, 1])
def test_given_masks(shape: tuple[int, ...], mode: int) -> None:
    mask = random(*shape) > 0.7
    mask[..., 0] = False
    check(fused(atten_mask=mask.npu(), sparse_mode=mode), *operands(), reference=exact(left_out=mask), ulps=4)


def band(queries: int, keys: int, left: float, right: float, shift: int) -> torch.Tensor:
    """True where a key is further left or right of the (shifted) diagonal than allowed."""
    position = torch.arange(keys)[None, :] - torch.arange(queries)[:, None] - shift
    return (position > right) | (position < -left)


def triangle() -> torch.Tensor:
    return torch.ones(TRIANGLE, TRIANGLE, dtype=torch.bool).triu(1).npu()


@pytest.mark.parametrize(("queries", "keys"), [(5, 7), (7, 7), (7, 5)])
@pytest.mark.parametrize(
    ("mode", "options", "left", "right", "corner"),
    [
        (2, {}, math.inf, 0, "left"),
        (3, {}, math.inf, 0, "right"),
        (4, {"pre_tockens": 2, "next_tockens": 1}, 2, 1, "right"),
        (4, {"pre_tockens": 4, "next_tockens": -1}, 4, -1, "right"),
    ],
)
def test_compressed_masks(
    mode: int, options: dict[str, int], left: float, right: float, corner: str, queries: int, keys: int
) -> None:
    left_out = band(queries, keys, left, right, keys - queries if corner == "right" else 0)
    check(
        fused(atten_mask=triangle(), sparse_mode=mode, **options),
        *operands(2, queries, keys),
        reference=exact(left_out=left_out),
        ulps=4,
        scale=1.0,  # a query that sees one key has no gradient: sizes of one cancel
    )


def test_default_mode_stays_in_its_band() -> None:
    left_out = band(QUERIES, KEYS, 2, 1, 0)
    nothing = torch.zeros(QUERIES, KEYS, dtype=torch.bool).npu()
    options: dict[str, Any] = {"pre_tockens": 2, "next_tockens": 1, "sparse_mode": 0}
    check(fused(atten_mask=nothing, **options), *operands(), reference=exact(left_out=left_out), ulps=4)
    check(fused(**options), *operands(), reference=exact(), ulps=4)  # without a mask the band means nothing


def test_a_query_that_sees_no_key() -> None:
    """Zeros where CANN looks for such queries (inner_precise=2); otherwise it weighs all keys alike."""
    query, key, value = (t.float() for t in operands())
    mask = torch.zeros(QUERIES, KEYS, dtype=torch.bool)
    mask[2] = True
    for precise, expected in ((2, torch.zeros_like(value).mean(2)), (0, value.mean(2))):
        out = fused(atten_mask=mask.npu(), sparse_mode=1, inner_precise=precise)(query.npu(), key.npu(), value.npu())
        compare(out[:, :, 2], expected.double(), torch.float32, ulps=4)


def test_prefix_modes() -> None:
    prefix = [6, 3]
    causal = band(QUERIES, KEYS, math.inf, 0, KEYS - QUERIES)
    left_out = causal.repeat(BATCH, 1, 1, 1)
    for batch, count in enumerate(prefix):
        left_out[batch, :, :, :count] = False
    compressed = torch.zeros(3072, TRIANGLE, dtype=torch.bool)
    compressed[:TRIANGLE] = triangle().cpu()
    compressed[TRIANGLE:, TRIANGLE // 2 :] = True
    for mask, mode in ((left_out, 5), (compressed, 6)):
        check(
            fused(atten_mask=mask.npu(), sparse_mode=mode, prefix=prefix),
            *operands(),
            reference=exact(left_out=left_out),
            ulps=4,
        )


def test_an_inverted_triangle_goes_wrong_as_on_hardware() -> None:
    query, key, value = (t.float() for t in operands())
    wrong = fused(atten_mask=~triangle(), sparse_mode=2)(query.npu(), key.npu(), value.npu()).cpu()
    right = attention(query, key, value, scale=0.4, left_out=band(QUERIES, KEYS, math.inf, 0, 0))
    assert not torch.allclose(wrong, right, atol=1e-3)


def test_many_blocks() -> None:
    """Longer than one part of the work: rows, keys and heads are cut."""
    query, key, value = (
        random(1, heads, 1100, 8, low=-1, high=1, seed=i).requires_grad_() for i, heads in enumerate((4, 2, 2))
    )
    grad = random(1, 4, 1100, 8, seed=9)
    left_out = torch.ones(1100, 1100, dtype=torch.bool).triu(1)
    expected = attention(query, key, value, scale=0.4, left_out=left_out)
    exact_gradients = torch.autograd.grad(expected, (query, key, value), grad)
    on_npu = [t.detach().float().npu().requires_grad_() for t in (query, key, value)]
    actual = torch_npu.npu_fusion_attention(*on_npu, 4, "BNSD", scale=0.4, atten_mask=triangle(), sparse_mode=2)[0]
    gradients = torch.autograd.grad(actual, on_npu, grad.float().npu())
    # Sums of values of up to 1, which may cancel.
    compare(actual, expected.detach(), torch.float32, ulps=16, scale=1.0)
    for a, e in zip(gradients, exact_gradients, strict=True):
        compare(a, e, torch.float32, ulps=64, scale=1.0)


LONG = 300  # more queries than one part of the work has


def padded() -> torch.Tensor:
    """Left out: the last keys of each batch, and in the second batch the first ones too."""
    mask = torch.zeros(BATCH, 1, LONG, LONG, dtype=torch.bool)
    mask[0, ..., 200:] = True
    mask[1, ..., 250:] = mask[1, ..., :7] = True
    return mask


@pytest.mark.parametrize(
    ("mask", "mode", "left", "right", "keys"),
    [
        (None, 2, math.inf, 0, LONG),
        (None, 3, math.inf, 0, 400),
        (None, 3, math.inf, 0, 150),  # the first queries see nothing
        (None, 4, 40, -3, LONG),
        (band(LONG, LONG, math.inf, 0, 0), 1, math.inf, 0, LONG),
        (band(LONG, LONG, 30, 3, 0), 0, 50, 2, LONG),
        (padded(), 1, math.inf, math.inf, LONG),
    ],
)
def test_keys_that_no_query_of_a_block_sees(
    mask: torch.Tensor | None, mode: int, left: float, right: float, keys: int
) -> None:
    """They are skipped; those that only some see are not."""
    left_out = band(LONG, keys, left, right, keys - LONG if mode in (3, 4) else 0)
    if mask is not None:
        left_out = left_out | mask
    options: dict[str, Any] = {"pre_tockens": int(min(left, 2**31 - 1)), "next_tockens": int(min(right, 2**31 - 1))}
    given = triangle() if mask is None else mask.npu()
    check(
        fused(atten_mask=given, sparse_mode=mode, **options),
        *operands(2, LONG, keys),
        reference=exact(left_out=left_out),
        dtypes=FLOATS[:2],
        ulps=16,
        scale=1.0,
    )


def test_dropout_and_bias_where_keys_are_skipped() -> None:
    """Bits and biases are those of the keys that are left, in rows of all keys."""
    keep = 0.7
    query, key, value = (t.float().npu().requires_grad_() for t in operands(2, LONG, LONG))
    bias = random(BATCH, HEADS, LONG, LONG, low=-1, high=1, seed=5).float().npu().requires_grad_()
    out, *_, seed, offset, count = torch_npu.npu_fusion_attention(
        query,
        key,
        value,
        HEADS,
        "BNSD",
        pse=bias,
        scale=0.4,
        keep_prob=keep,
        atten_mask=triangle(),
        sparse_mode=4,
        pre_tockens=60,
        next_tockens=0,
    )
    bits = torch.empty((count + 127) // 128 * 16, dtype=torch.uint8, device="npu")
    run("aclnnDropoutGenMaskV2", [count], 1 - keep, seed, offset, torch.float32, bits)
    kept = (bits.cpu()[:, None] >> torch.arange(8) & 1).flatten()[:count].view(BATCH, HEADS, LONG, LONG)
    leaves = [t.detach().cpu().double().requires_grad_() for t in (query, key, value, bias)]
    expected = attention(
        *leaves[:3], bias=leaves[3], scale=0.4, kept=kept, keep=keep, left_out=band(LONG, LONG, 60, 0, 0)
    )
    compare(out, expected.detach(), torch.float32, ulps=8)
    grad = random(*expected.shape)
    actual = torch.autograd.grad(out, (query, key, value, bias), grad.float().npu())
    for a, e in zip(actual, torch.autograd.grad(expected, leaves, grad), strict=True):
        compare(a, e, torch.float32, ulps=32, scale=1.0)  # a query that sees one key has no gradient


@pytest.mark.parametrize("shape", [(BATCH, HEADS, QUERIES, KEYS), (1, HEADS, QUERIES, KEYS), (BATCH, HEADS, 1, KEYS)])
def test_position_bias(shape: tuple[int, ...]) -> None:
    def on_npu(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch_npu.npu_fusion_attention(query, key, value, HEADS, "BNSD", pse=bias, scale=0.4)[0]

    check(
        on_npu,
        *operands(2),
        random(*shape, low=-1, high=1, seed=5),
        reference=lambda q, k, v, b: attention(q, k, v, bias=b, scale=0.4),
        ulps=8,
    )


def test_position_bias_after_the_scale() -> None:
    bias = random(BATCH, HEADS, QUERIES, KEYS, low=-1, high=1, seed=5)

    def on_npu(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch_npu.npu_fusion_attention_v2(query, key, value, HEADS, "BNSD", pse=bias, pse_type=0, scale=0.4)[0]

    check(on_npu, *operands(2), bias, reference=lambda q, k, v, b: attention(q, k, v, bias=b / 0.4, scale=0.4), ulps=8)


@pytest.mark.parametrize("keys", [1, 2, 15, 16, 17, 31, 32, 33, 50])
def test_row_statistics(keys: int) -> None:
    """Of rows that fill the processor's vectors, and of those that do not."""
    query, key, value = (t.float() for t in operands(keys=keys))
    result = torch_npu.npu_fusion_attention(query.npu(), key.npu(), value.npu(), HEADS, "BNSD", scale=0.4)
    scores = 0.4 * (query.double() @ key.double().mT)
    largest = scores.amax(-1, keepdim=True)
    total = (scores - largest).exp().sum(-1, keepdim=True)
    compare(result[1], largest.expand(-1, -1, -1, 8), torch.float32, ulps=4)
    compare(result[2], total.expand(-1, -1, -1, 8), torch.float32, ulps=4)


@pytest.mark.parametrize("keys", [5, 16, 21])
def test_scores_far_apart(keys: int) -> None:
    """Probabilities that vanish, scores that exp cannot hold, rows of infinities and nan."""
    scores = random(BATCH, HEADS, QUERIES, keys, low=-60, high=60, seed=4).float()
    scores[0, 0] *= 1e30
    scores[0, 1, 0, 0] = torch.inf
    scores[1, 0, 1, keys - 1] = -torch.inf
    scores[1, 1, 2, keys // 2] = torch.nan
    query, key, value = (t.float() for t in operands(keys=keys))
    out = torch_npu.npu_fusion_attention(
        query.npu() * 0, key.npu(), value.npu(), HEADS, "BNSD", pse=scores.npu(), scale=1.0
    )[0]
    compare(out, scores.double().softmax(-1) @ value.double(), torch.float32, ulps=8)


def test_dropout_keeps_what_its_bits_say() -> None:
    keep = 0.7
    query, key, value = (t.float().npu().requires_grad_() for t in operands(2))
    out, *_, seed, offset, count = torch_npu.npu_fusion_attention(
        query, key, value, HEADS, "BNSD", scale=0.4, keep_prob=keep
    )
    bits = torch.empty((count + 127) // 128 * 16, dtype=torch.uint8, device="npu")
    run("aclnnDropoutGenMaskV2", [count], 1 - keep, seed, offset, torch.float32, bits)
    kept = (bits.cpu()[:, None] >> torch.arange(8) & 1).flatten()[:count]
    kept = kept.view(BATCH, HEADS, QUERIES, KEYS)
    assert 0 < kept.sum() < count
    leaves = [t.detach().cpu().double().requires_grad_() for t in (query, key, value)]
    expected = attention(*leaves, scale=0.4, kept=kept, keep=keep)
    compare(out, expected.detach(), torch.float32, ulps=8)
    grad = random(*expected.shape)
    actual = torch.autograd.grad(out, (query, key, value), grad.float().npu())
    for a, e in zip(actual, torch.autograd.grad(expected, leaves, grad), strict=True):
        compare(a, e, torch.float32, ulps=16)


@pytest.mark.parametrize("version", ["", "_v2"])
@pytest.mark.parametrize(("mode", "softmax_layout"), [(0, ""), (2, ""), (3, "TND"), (7, ""), (8, "")])
def test_packed_sequences(mode: int, softmax_layout: str, version: str) -> None:
    fused_attention = getattr(torch_npu, f"npu_fusion_attention{version}")
    query_lengths, key_lengths = [2, 0, 3, 4], [3, 1, 3, 6]
    qkv = [
        random(sum(query_lengths), HEADS, WIDTH, low=-1, high=1, seed=1),
        random(sum(key_lengths), 2, WIDTH, low=-1, high=1, seed=2),
        random(sum(key_lengths), 2, WIDTH, low=-1, high=1, seed=3),
    ]
    options: dict[str, Any] = {"sparse_mode": mode, "softmax_layout": softmax_layout}
    if mode:
        options["atten_mask"] = triangle()
    if mode in (7, 8):
        before, after = ("pre_tokens", "next_tokens") if version else ("pre_tockens", "next_tockens")
        options |= {before: 6, after: -1 if mode == 7 else 1}

    def on_npu(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        ends = [torch.tensor(lengths).cumsum(0).tolist() for lengths in (query_lengths, key_lengths)]
        options["actual_seq_qlen"], options["actual_seq_kvlen"] = ends
        return fused_attention(query, key, value, HEADS, "TND", scale=0.4, **options)[0]

    def left_out(sequence: int, queries: int, keys: int) -> torch.Tensor | None:
        if mode == 0:
            return None
        if mode == 7 and sequence == 3:
            return band(queries, keys, 6, -1, keys - queries)
        if mode == 8 and sequence == 0:
            return band(queries, keys, 6, 1, keys - queries)
        return band(queries, keys, math.inf, 0, 0 if mode in (2, 8) else keys - queries)

    def reference(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        parts = []
        for i, (q, k, v) in enumerate(
            zip(query.split(query_lengths), key.split(key_lengths), value.split(key_lengths), strict=True)
        ):
            heads_first = (t.transpose(0, 1).unsqueeze(0) for t in (q, k, v))
            mask = left_out(i, len(q), len(k))
            parts.append(attention(*heads_first, scale=0.4, left_out=mask).squeeze(0).transpose(0, 1))
        return torch.cat(parts)

    check(on_npu, *qkv, reference=reference, ulps=8)


@pytest.mark.parametrize(("causal", "masked"), [(False, False), (True, False), (False, True)])
def test_scaled_dot_product_attention(causal: bool, masked: bool) -> None:
    def function(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        mask = torch.ones(16, 16, dtype=torch.bool).tril(2).to(query.device) if masked else None
        return torch.nn.functional.scaled_dot_product_attention(query, key, value, mask, is_causal=causal)

    qkv = [random(BATCH, HEADS, 16, 16, low=-1, high=1, seed=i) for i in range(3)]
    check(function, *qkv, ulps=8)


def test_without_keys_each_query_gives_zeros() -> None:
    query, none = (torch.ones(BATCH, HEADS, length, WIDTH, device="npu") for length in (QUERIES, 0))
    most, total = (torch.full((BATCH, HEADS, QUERIES, 8), 7.0, device="npu") for _ in range(2))
    out = torch.full_like(query, 7.0)
    run(
        "aclnnFlashAttentionScore",
        query,
        none,
        none,
        None,
        None,
        None,
        None,
        [],
        1.0,
        1.0,
        2**31 - 1,
        2**31 - 1,
        HEADS,
        "BNSD",
        0,
        0,
        most,
        total,
        None,
        out,
    )
    assert not out.any()
    # what a row of no key leaves for the gradient: no weight, whatever is asked later
    assert bool(((most.cpu() - total.cpu().log()).exp() == 0).all())


def test_refusals() -> None:
    def planned(**changes: Any) -> tuple[int, str]:
        query = torch.ones(BATCH, HEADS, QUERIES, WIDTH, device="npu")
        key = torch.ones(BATCH, 2, KEYS, WIDTH, device="npu")
        statistics = torch.ones(BATCH, HEADS, QUERIES, 8, device="npu")
        call: dict[str, Any] = {
            "query": query,
            "key": key,
            "value": key,
            "pse": None,
            "drop": None,
            "padding": None,
            "mask": None,
            "prefix": [],
            "scale": 1.0,
            "keep": 1.0,
            "pre": 2**31 - 1,
            "next": 2**31 - 1,
            "heads": HEADS,
            "layout": "BNSD",
            "precise": 0,
            "mode": 0,
            "max": statistics,
            "sum": statistics,
            "softmax": None,
            "out": query,
        }
        assert set(changes) <= set(call)
        return first_phase("aclnnFlashAttentionScore", *(call | changes).values())

    def npu(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.ones(*shape, dtype=dtype, device="npu")

    status, message = planned()
    assert status == 0, message
    for changes, words in (
        ({"layout": "XYZ"}, 'parameter inputLayout is "XYZ", allowed are BSH, SBH, BSND, BNSD and TND'),
        ({"keep": 0.0}, "parameter keepProb is 0, allowed is (0, 1]"),
        ({"heads": 3}, "headNum"),
        ({"mode": 9}, "parameter sparseMode is 9"),
        ({"key": npu(BATCH, 3, KEYS, WIDTH)}, "headNum 4 must be a multiple of its heads, 3"),
        ({"value": npu(BATCH, 2, 3, WIDTH)}, "parameter value"),
        ({"key": npu(BATCH, 2, KEYS, WIDTH, dtype=torch.float16)}, "parameter key has dtype float16"),
        ({"mask": npu(QUERIES, KEYS)}, "parameter attenMaskOptional has dtype float32"),
        ({"max": npu(BATCH, HEADS, QUERIES)}, "parameter softmaxMaxOut has shape [2, 4, 5]"),
        ({"out": npu(BATCH, HEADS, QUERIES, 3)}, "parameter attentionOutOut"),
    ):
        status, message = planned(**changes)
        assert status == INVALID_ARGUMENT and words in message, message

    def mask(*shape: int) -> torch.Tensor:
        return npu(*shape, dtype=torch.bool)

    unsupported = "get unsupported atten_mask shape, B=[2], N=[4], Sq=[5], Skv=[7]"
    compressed = "In the attenmask compression, please set the atten_mask_shape to "
    prefix = {"mask": mask(3072, 2048), "mode": 6}
    # The kernel's plan refuses these (ops-transformer: flash_attention_score_tiling_general.cpp; vllm-ascend#6573).
    for changes, words in (
        ({"mask": mask(3, KEYS)}, unsupported),
        ({"mask": mask(BATCH, 1, 1, KEYS)}, unsupported),
        ({"mask": mask(1, HEADS, QUERIES, KEYS)}, unsupported),
        ({"mask": mask(1, 1, 2048, 2048), "mode": 2}, unsupported),
        ({"mask": mask(BATCH, QUERIES, KEYS)}, "atten mask dim should be 2 or 4, but got 3"),
        ({"mask": mask(QUERIES, KEYS), "mode": 2}, compressed + "[2048,2048]"),
        ({"mask": mask(2048, 2048), "mode": 6}, compressed + "[3072,2048]"),
        (prefix | {"prefix": [2]}, "it should be the same size as bSize[2], but it is 1"),
        (prefix | {"prefix": [2, 1]}, "batch[1] prefixN=1 is invalid, should be in range of [2, 7]"),
        ({"pse": npu(BATCH, HEADS, 2, KEYS)}, "get unsupported pse shape"),
        ({"drop": npu(16, dtype=torch.uint8)}, "dropMask shapeSize is invalid, there are 280 scores to drop"),
    ):
        status, message = planned(**changes)
        assert status == PART_REFUSED and words in message, message
    for neighbour in (
        {"mask": mask(QUERIES, KEYS)},
        {"mask": mask(1, 1, QUERIES, KEYS)},
        {"mask": mask(BATCH, 1, QUERIES, KEYS)},
        {"mask": mask(BATCH, HEADS, QUERIES, KEYS)},
        {"mask": mask(2048, 2048), "mode": 2},
        prefix | {"prefix": [2, 7]},
        {"pse": npu(BATCH, HEADS, 1, KEYS)},
        {"drop": npu(35, dtype=torch.uint8)},
    ):
        status, message = planned(**neighbour)
        assert status == 0, message


def test_projection_of_the_fast_path() -> None:
    """nn.MultiheadAttention in eval mode: bias added, heads first, the query divided by the root of its width."""

    def project(qkv: torch.Tensor, bias: torch.Tensor) -> Any:
        return torch.ops.aten._transform_bias_rescale_qkv(qkv, bias, HEADS)

    def reference(qkv: torch.Tensor, bias: torch.Tensor) -> Any:
        q, k, v = (t.unflatten(-1, (HEADS, WIDTH)).transpose(1, 2) for t in (qkv + bias).chunk(3, -1))
        return q / math.sqrt(WIDTH), k, v

    width = 3 * HEADS * WIDTH
    check(project, random(BATCH, QUERIES, width), random(width, seed=1), reference=reference, grad=False)


def test_projection_names_heads_that_do_not_fit() -> None:
    """By the operator's own name: torch_npu refuses such heads before it asks."""
    qkv, bias, out = (torch.ones(2, 3, 24, device="npu"), torch.ones(24, device="npu"), torch.ones(2, 5, 3, 1).npu())
    status, message = first_phase("aclnnTransformBiasRescaleQkv", qkv, bias, 5, out, out, out)
    assert status == INVALID_ARGUMENT
    assert "parameter numHeads is 5, which does not divide a third of the last size of float32[2, 3, 24]" in message
