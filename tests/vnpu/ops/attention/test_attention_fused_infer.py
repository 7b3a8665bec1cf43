"""FusedInferAttentionScore: layouts, masks, caches and what is stored in them, against softmax written out in float64."""

from typing import Any

import pytest
import torch
import torch_npu
from aclnn import INVALID_ARGUMENT, SIGNATURES, first_phase, maximum_workspace, run
from oracle import compare, int4, random

BATCH, HEADS, KEY_HEADS, WIDTH = 2, 4, 2, 16
SCALE = 0.3
TILING_REFUSED = 561002
V2, V3, V4, V5 = (f"aclnnFusedInferAttentionScoreV{n}" for n in (2, 3, 4, 5))


def attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, left_out: Any = None, pse: Any = 0.0, sink: Any = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Result and logarithm of the sum of a batch: [heads, length, width] each."""
    k, v = (t.double().repeat_interleave(q.shape[0] // t.shape[0], 0) for t in (k, v))
    scores = q.double() @ k.mT * SCALE + pse
    if left_out is not None:
        scores = scores.masked_fill(left_out, -torch.inf)
    if sink is not None:
        scores = torch.cat([scores, sink.double().view(-1, 1, 1).expand(*scores.shape[:2], 1)], -1)
        v = torch.cat([v, torch.zeros_like(v[:, :1])], 1)
    return torch.softmax(scores, -1).nan_to_num(0) @ v, scores.logsumexp(-1, keepdim=True)


def together(results: list[tuple[torch.Tensor, torch.Tensor]]) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.stack([r[0] for r in results]), torch.stack([r[1] for r in results])


def placed(tensor: torch.Tensor, layout: str) -> torch.Tensor:
    """From [batch, heads, length, width]."""
    order = {"BSND": (0, 2, 1, 3), "BSH": (0, 2, 1, 3), "NBSD": (1, 0, 2, 3)}.get(layout, (0, 1, 2, 3))
    tensor = tensor.permute(order).contiguous()
    return tensor.flatten(2) if layout == "BSH" else tensor


def operands(
    queries: int = 5, keys: int = 7, dtype: torch.dtype = torch.float16, width: int = WIDTH
) -> list[torch.Tensor]:
    return [
        random(BATCH, HEADS, queries, width, low=-1, high=1).to(dtype),
        random(BATCH, KEY_HEADS, keys, width, low=-1, high=1, seed=1).to(dtype),
        random(BATCH, KEY_HEADS, keys, width, low=-1, high=1, seed=2).to(dtype),
    ]


def infer(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **options: Any) -> Any:
    options = {"num_heads": HEADS, "num_key_value_heads": KEY_HEADS, "scale": SCALE, "input_layout": "BNSD", **options}
    return torch_npu.npu_fused_infer_attention_score(q.npu(), k.npu(), v.npu(), **options)


def arguments(name: str, q: Any, k: Any, v: Any, out: Any, lse: Any = None, **options: Any) -> list[Any]:
    """All parameters in order; those that are not named are null, or what they are by default."""
    given = {
        "query": q,
        "key": k if isinstance(k, list) else [k],
        "value": v if isinstance(v, list) else [v],
        "numHeads": HEADS,
        "numKeyValueHeads": KEY_HEADS,
        "scaleValue": SCALE,
        "preTokens": 2**31 - 1,
        "nextTokens": 2**31 - 1,
        "inputLayout": "BNSD",
        "attentionOut": out,
        "softmaxLse": lse,
        "softmaxLseFlag": lse is not None,
        **options,
    }
    return [given.get(param, 0 if kind == "int64_t" else None) for kind, param, _ in SIGNATURES[name]["params"]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "layout", ["BSH", "BSND", "BNSD", "BNSD_BSND", "BSH_NBSD", "BSND_NBSD", "BNSD_NBSD", "BSH_BNSD", "BSND_BNSD"]
)
def test_layouts(dtype: torch.dtype, layout: str) -> None:
    q, k, v = operands(dtype=dtype)
    expected, lse = together([attend(q[b], k[b], v[b]) for b in range(BATCH)])
    into, _, out_of = layout.partition("_")
    found = infer(*(placed(t, into) for t in (q, k, v)), input_layout=layout, softmax_lse_flag=True)
    compare(found[0], placed(expected, out_of or into), dtype, ulps=4)
    compare(found[1], lse, torch.float32, ulps=64)
    assert infer(*(placed(t, into) for t in (q, k, v)), input_layout=layout)[1].numel() == 0


@pytest.mark.parametrize(
    ("layout", "width", "value_width"), [("TND", 64, 64), ("TND", 192, 128), ("NTD_TND", 128, 128)]
)
@pytest.mark.parametrize("mode", [0, 3, 4])
def test_sequences_behind_one_another(layout: str, width: int, value_width: int, mode: int) -> None:
    lengths, key_lengths = [3, 1, 4], [5, 2, 4]
    ends, key_ends = [3, 4, 8], [5, 7, 11]
    q = random(HEADS, 8, width, low=-1, high=1).bfloat16()
    k = random(KEY_HEADS, 11, width, low=-1, high=1, seed=1).bfloat16()
    v = random(KEY_HEADS, 11, value_width, low=-1, high=1, seed=2).bfloat16()
    sink = random(HEADS, seed=3).bfloat16() if value_width == width else None
    expected, lse = [], []
    for n, m, end, key_end in zip(lengths, key_lengths, ends, key_ends, strict=True):
        right = torch.arange(m) - torch.arange(n).unsqueeze(1) - (m - n)
        left_out = None if mode == 0 else (right > 0) if mode == 3 else (right > 1) | (right < -2)
        one = attend(q[:, end - n : end], k[:, key_end - m : key_end], v[:, key_end - m : key_end], left_out, sink=sink)
        expected.append(one[0])
        lse.append(one[1])
    place = (lambda t: t) if layout.startswith("N") else (lambda t: t.transpose(0, 1).contiguous())
    mask = torch.ones(2048, 2048, dtype=torch.bool).triu(1).npu() if mode else None
    options = {"input_layout": layout, "sparse_mode": mode, "atten_mask": mask, "pre_tokens": 2, "next_tokens": 1}
    if sink is None:
        out, sums = infer(
            *map(place, (q, k, v)),
            actual_seq_lengths=ends,
            actual_seq_lengths_kv=key_ends,
            softmax_lse_flag=True,
            **options,
        )
    else:
        out, sums = torch_npu.npu_fused_infer_attention_score_v2(
            *(place(t).npu() for t in (q, k, v)),
            num_query_heads=HEADS,
            num_key_value_heads=KEY_HEADS,
            softmax_scale=SCALE,
            actual_seq_qlen=ends,
            actual_seq_kvlen=key_ends,
            learnable_sink=sink.npu(),
            return_softmax_lse=True,
            **options,
        )
    compare(out, torch.cat(expected, 1).transpose(0, 1), torch.bfloat16, ulps=4)
    compare(sums, torch.cat(lse, 1).transpose(0, 1), torch.float32, ulps=64)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.uint8])
@pytest.mark.parametrize("shape", [(5, 7), (1, 5, 7), (BATCH, 5, 7), (BATCH, 1, 5, 7), (1, 1, 16, 32)])
@pytest.mark.parametrize("mode", [0, 1])
def test_given_masks(shape: tuple[int, ...], dtype: torch.dtype, mode: int) -> None:
    """Rows and columns beyond queries and keys are padding. In mode 0 the band counts as well."""
    mask = random(*shape) > 0.7
    mask[..., 0] = False
    whole = mask.view(-1, 1, *shape[-2:])[:, :, :5, :7].expand(BATCH, 1, 5, 7)
    if mode == 0:
        whole = whole | torch.ones(5, 7, dtype=torch.bool).triu(3)
    q, k, v = operands()
    expected, _ = together([attend(q[b], k[b], v[b], whole[b]) for b in range(BATCH)])
    out = infer(q, k, v, atten_mask=mask.to(dtype).npu(), sparse_mode=mode, next_tokens=2)[0]
    compare(out, expected, torch.float16, ulps=4)


@pytest.mark.parametrize("shape", [(BATCH, 7), (BATCH, 1, 7), (BATCH, 1, 1, 7)])
def test_masks_of_one_query(shape: tuple[int, ...]) -> None:
    """The mode and the band mean nothing."""
    mask = random(*shape) > 0.5
    q, k, v = operands(1)
    expected, _ = together([attend(q[b], k[b], v[b], mask.view(BATCH, 1, 1, 7)[b]) for b in range(BATCH)])
    out = infer(q, k, v, atten_mask=mask.npu(), next_tokens=0, sparse_mode=3)[0]
    compare(out, expected, torch.float16, ulps=4)


def test_a_query_that_sees_no_key() -> None:
    """Zeros where the call looks for such rows, else the mean of all values; its logarithm of the sum is infinite."""
    q, k, v = operands()
    mask = torch.zeros(5, 7, dtype=torch.bool)
    mask[2] = True
    mean = v.double().repeat_interleave(HEADS // KEY_HEADS, 1).mean(2)
    for precise, expected in ((0, mean), (1, mean), (2, mean * 0), (3, mean * 0)):
        out, lse = infer(q, k, v, atten_mask=mask.npu(), sparse_mode=1, inner_precise=precise, softmax_lse_flag=True)
        compare(out[:, :, 2], expected, torch.float16, ulps=4)
        assert lse[:, :, 2].isinf().all() and lse[:, :, 1].isfinite().all()


@pytest.mark.parametrize("mode", [2, 3, 4])
def test_lengths_and_compressed_masks(mode: int) -> None:
    q, k, v = operands(6, 8)
    lengths, key_lengths = [6, 4], [8, 5]
    expected = torch.zeros(BATCH, HEADS, 6, WIDTH, dtype=torch.float64)
    for b, (n, m) in enumerate(zip(lengths, key_lengths, strict=True)):
        right = torch.arange(m) - torch.arange(n).unsqueeze(1) - (0 if mode == 2 else m - n)
        out = (right > 1) | (right < -2) if mode == 4 else right > 0
        expected[b, :, :n] = attend(q[b, :, :n], k[b, :, :m], v[b, :, :m], out)[0]
    triangle = torch.ones(1, 1, 2048, 2048, dtype=torch.bool).triu(1).npu()
    found = infer(
        q,
        k,
        v,
        atten_mask=triangle,
        sparse_mode=mode,
        actual_seq_lengths=lengths,
        actual_seq_lengths_kv=key_lengths,
        pre_tokens=2,
        next_tokens=1,
    )[0]
    compare(found, expected, torch.float16, ulps=4)


def test_padding_before_the_tokens() -> None:
    q, k, v = operands(6, 8)
    lengths, key_lengths, behind = [4, 3], [5, 6], 1
    expected = torch.zeros(BATCH, HEADS, 6, WIDTH, dtype=torch.float64)
    mask = random(BATCH, 1, 6, 8) > 0.8
    pse = random(1, HEADS, 6, 8, seed=4).half()
    for b, (n, m) in enumerate(zip(lengths, key_lengths, strict=True)):
        rows, columns = slice(5 - n, 5), slice(7 - m, 7)
        expected[b, :, rows] = attend(
            q[b, :, rows],
            k[b, :, columns],
            v[b, :, columns],
            mask[b, :, rows, columns],
            pse[0, :, rows, columns].double(),
        )[0]
    padding = torch.tensor([behind]).npu()
    found = infer(
        q,
        k,
        v,
        atten_mask=mask.npu(),
        pse_shift=pse.npu(),
        actual_seq_lengths=lengths,
        actual_seq_lengths_kv=key_lengths,
        query_padding_size=padding,
        kv_padding_size=padding,
        next_tokens=0,
    )[0]
    compare(found, expected, torch.float16, ulps=4)


@pytest.mark.parametrize("queries", [1, 5])
@pytest.mark.parametrize("layout", ["BNSD", "BSND"])
def test_a_shared_prefix(queries: int, layout: str) -> None:
    q, k, v = operands(queries)
    before = [random(1, KEY_HEADS, 4, WIDTH, low=-1, high=1, seed=i).half() for i in (5, 6)]
    expected, _ = together(
        [
            attend(q[b], *(torch.cat([p[0, :, :3], t[b]], 1) for p, t in zip(before, (k, v), strict=True)))
            for b in range(BATCH)
        ]
    )
    found = infer(
        *(placed(t, layout) for t in (q, k, v)),
        key_shared_prefix=placed(before[0], layout).npu(),
        value_shared_prefix=placed(before[1], layout).npu(),
        actual_shared_prefix_len=[3],
        input_layout=layout,
    )[0]
    compare(found, placed(expected, layout), torch.float16, ulps=4)


@pytest.mark.parametrize("form", ["heads inside", "heads first", "NZ"])
@pytest.mark.parametrize("queries", [1, 3])
def test_a_paged_cache(form: str, queries: int) -> None:
    q, k, v = operands(queries, 32)
    lengths, table = [31, 17], torch.tensor([[3, 0], [1, 2]], dtype=torch.int32)
    caches = []
    for t in (k, v):
        cache = torch.full((4, KEY_HEADS, 16, WIDTH), torch.nan, dtype=torch.float16)
        for b in range(BATCH):
            cache[table[b].long()] = t[b].unflatten(1, (2, 16)).transpose(0, 1)
        if form == "heads inside":
            cache = cache.transpose(1, 2).flatten(2)
        elif form == "NZ":
            cache = cache.unflatten(3, (-1, 16)).transpose(2, 3)
        caches.append(cache.contiguous())
    expected, lse = together([attend(q[b], k[b, :, :n], v[b, :, :n]) for b, n in enumerate(lengths)])
    out, sums = infer(
        q, *caches, block_table=table.npu(), block_size=16, actual_seq_lengths_kv=lengths, softmax_lse_flag=True
    )
    compare(out, expected, torch.float16, ulps=4)
    compare(sums, lse, torch.float32, ulps=64)


def test_a_paged_cache_of_sequences_behind_one_another() -> None:
    """As vllm-ascend calls it: the lengths of the keys are each sequence's own."""
    q = random(4, HEADS, 128, low=-1, high=1).half()
    cache = [random(6, 16, KEY_HEADS * 128, low=-1, high=1, seed=i).half() for i in (1, 2)]
    table = torch.tensor([[5, 1], [4, 0]], dtype=torch.int32)
    ends, key_lengths = [3, 4], [20, 16]
    expected = []
    for b, (start, n) in enumerate(((0, 3), (3, 1))):
        k, v = (c[table[b].long()].view(32, KEY_HEADS, 128).transpose(0, 1)[:, : key_lengths[b]] for c in cache)
        right = torch.arange(key_lengths[b]) - torch.arange(n).unsqueeze(1) - (key_lengths[b] - n)
        expected.append(attend(q[start : start + n].transpose(0, 1), k, v, right > 0)[0].transpose(0, 1))
    out = infer(
        q,
        *cache,
        block_table=table.npu(),
        block_size=16,
        input_layout="TND",
        actual_seq_lengths=ends,
        actual_seq_lengths_kv=key_lengths,
        sparse_mode=3,
        atten_mask=torch.ones(2048, 2048, dtype=torch.int8).triu(1).npu(),
    )[0]
    compare(out, torch.cat(expected), torch.float16, ulps=4)


@pytest.mark.parametrize("paged", [False, True])
def test_rotary_parts(paged: bool) -> None:
    """Multi-head latent attention: one key head, whose rotary part lies elsewhere."""
    q, rope = random(BATCH, HEADS, 1, 512, low=-0.2, high=0.2), random(BATCH, HEADS, 1, 64, seed=1)
    k, key_rope = random(BATCH, 1, 32, 512, low=-0.2, high=0.2, seed=2), random(BATCH, 1, 32, 64, seed=3)
    q, rope, k, key_rope = (t.bfloat16() for t in (q, rope, k, key_rope))
    expected, _ = together(
        [attend(torch.cat([q[b], rope[b]], -1), torch.cat([k[b], key_rope[b]], -1), k[b]) for b in range(BATCH)]
    )
    options: dict[str, Any] = {}
    if paged:
        k, key_rope = (t.view(BATCH * 2, 16, -1) for t in (k, key_rope))
        table = torch.arange(4, dtype=torch.int32).view(2, 2).npu()
        options = {"block_table": table, "block_size": 16, "actual_seq_lengths_kv": [32, 32]}
    out = infer(q, k, k, query_rope=rope.npu(), key_rope=key_rope.npu(), num_key_value_heads=1, **options)[0]
    compare(out, expected, torch.bfloat16, ulps=4)


def test_keys_in_a_tensor_for_each_batch() -> None:
    q, k, v = operands(1)
    lengths = [7, 4]
    for name in (V2, V3, V4, V5):
        out = torch.empty_like(q, device="npu")
        split = [[t[b : b + 1, :, :n].contiguous().npu() for b, n in enumerate(lengths)] for t in (k, v)]
        run(name, *arguments(name, q.npu(), *split, out))
        expected, _ = together([attend(q[b], k[b, :, :n], v[b, :, :n]) for b, n in enumerate(lengths)])
        compare(out, expected, torch.float16, ulps=4)


def stored(t: torch.Tensor, packed: bool, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Numbers of 8 or 4 bits of t's shape, and as they are stored."""
    if packed:
        return int4(*t.shape, seed=seed)
    numbers = (random(*t.shape, low=-20, high=20, seed=seed)).round().to(torch.int8)
    return numbers, numbers


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("mode", "shape"),
    [(0, (1,)), (0, (1, KEY_HEADS, 1, WIDTH)), (1, (1, BATCH, 7)), (2, (KEY_HEADS,)), (3, (1, BATCH, KEY_HEADS, 7))],
)
def test_stored_in_fewer_bits(mode: int, shape: tuple[int, ...], packed: bool) -> None:
    q, k, v = operands(1)
    (keys, k_stored), (values, v_stored) = stored(k, packed, 1), stored(v, packed, 2)
    dtype = torch.float32 if mode in (1, 3) else torch.float16
    factors = [random(*shape, low=0.01, high=0.05, seed=i).to(dtype) for i in range(2)]
    offsets = [random(*shape, low=-2, high=2, seed=i + 2).to(dtype) for i in range(2)]
    form = {0: (1, KEY_HEADS, 1, -1), 1: (BATCH, 1, 7, 1), 2: (1, KEY_HEADS, 1, 1), 3: (BATCH, KEY_HEADS, 7, 1)}[mode]
    if len(shape) == 1 and mode == 0:
        form = (1, 1, 1, 1)
    wide = [
        ((n.float() + o.view(form).float()) * s.view(form).float()).half()
        for n, o, s in zip((keys, values), offsets, factors, strict=True)
    ]
    expected, _ = together([attend(q[b], wide[0][b], wide[1][b]) for b in range(BATCH)])
    out = infer(
        q,
        k_stored,
        v_stored,
        key_antiquant_scale=factors[0].npu(),
        value_antiquant_scale=factors[1].npu(),
        key_antiquant_offset=offsets[0].npu(),
        value_antiquant_offset=offsets[1].npu(),
        key_antiquant_mode=mode,
        value_antiquant_mode=mode,
    )[0]
    compare(out, expected, torch.float16, ulps=4)


def test_one_tensor_of_factors_for_keys_and_values() -> None:
    q, k, v = operands()
    (keys, _), (values, _) = stored(k, False, 1), stored(v, False, 2)
    scale = random(2, KEY_HEADS, 1, WIDTH, low=0.01, high=0.05).half()
    wide = [(n.float() * s.float()).half() for n, s in zip((keys, values), scale, strict=True)]
    expected, _ = together([attend(q[b], wide[0][b], wide[1][b]) for b in range(BATCH)])
    compare(infer(q, keys, values, antiquant_scale=scale.npu())[0], expected, torch.float16, ulps=4)


@pytest.mark.parametrize("channels", [False, True])
def test_result_of_eight_bits(channels: bool) -> None:
    q, k, v = operands()
    scale = (random(1, HEADS, 1, WIDTH, low=20, high=60) if channels else torch.tensor([40.0])).float()
    offset = torch.full_like(scale, 3.0)
    exact, _ = together([attend(q[b], k[b], v[b]) for b in range(BATCH)])
    out = infer(q, k, v, quant_scale2=scale.npu(), quant_offset2=offset.npu())[0]
    assert out.dtype == torch.int8
    difference = (out.cpu().double() - (exact * scale.double() + 3)).abs()
    assert difference.max() <= 0.5 + 1e-2 and difference.max() > 0.3


def test_no_keys() -> None:
    q, _, _ = operands()
    empty = torch.empty(BATCH, KEY_HEADS, 0, WIDTH).half()
    out, lse = infer(q, empty, empty, softmax_lse_flag=True)
    assert out.eq(0).all() and lse.isposinf().all()


def test_positions() -> None:
    q, k, v = operands()
    pse = random(BATCH, HEADS, 5, 32, seed=5).half()
    expected, _ = together([attend(q[b], k[b], v[b], pse=pse[b, :, :, :7].double()) for b in range(BATCH)])
    compare(infer(q, k, v, pse_shift=pse.npu())[0], expected, torch.float16, ulps=4)


def test_with_a_workspace() -> None:
    """As a captured graph runs it: results and workspace are the caller's."""
    q, k, v = operands()
    expected, _ = together([attend(q[b], k[b], v[b]) for b in range(BATCH)])
    options: Any = {"num_key_value_heads": KEY_HEADS, "input_layout": "BNSD"}
    on_npu = [t.npu() for t in (q, k, v)]
    for suffix, own in (
        ("", {"num_heads": HEADS, "scale": SCALE}),
        ("_v2", {"num_query_heads": HEADS, "softmax_scale": SCALE}),
    ):
        name = f"npu_fused_infer_attention_score{suffix}"
        size = getattr(torch_npu, f"_{name}_get_max_workspace")(*on_npu, **options, **own)
        out, lse = torch.empty_like(on_npu[0]), torch.empty(0, device="npu")
        getattr(torch_npu, name).out(*on_npu, workspace=size, out=[out, lse], **options, **own)
        compare(out, expected, torch.float16, ulps=4)


@pytest.mark.parametrize("name", [V3, V4, V5])
def test_the_workspace_of_a_wrong_call(name: str) -> None:
    q, k, v = (t.npu() for t in operands())
    assert maximum_workspace(name, *arguments(name, q, k, v, q)) == (0, "")
    status, message = maximum_workspace(name, *arguments(name, q, k, v, q, inputLayout="SH"))
    assert status == INVALID_ARGUMENT and 'inputLayout is "SH"' in message


@pytest.mark.parametrize(
    ("changed", "status", "words"),
    [
        ({"inputLayout": "SBH"}, INVALID_ARGUMENT, 'inputLayout is "SBH"'),
        ({"numHeads": 3}, INVALID_ARGUMENT, "numHeads is 3"),
        ({"sparseMode": 5}, INVALID_ARGUMENT, "sparseMode is 5"),
        ({"sparseMode": 3}, TILING_REFUSED, "attenMask is null"),
        ({"actualSeqLengthsKvOptional": [8, 8]}, INVALID_ARGUMENT, "actualSeqLengthsKv has the value 8"),
        ({"attenMaskOptional": torch.ones(3, 7, dtype=torch.bool)}, TILING_REFUSED, "attenMask Q_S(3)"),
        ({"pseShiftOptional": torch.ones(1, 2, 5, 7).half()}, TILING_REFUSED, "pse shift shape must be"),
        ({"blockTableOptional": torch.zeros(2, 1, dtype=torch.int32)}, INVALID_ARGUMENT, "blockTableOptional"),
        ({"queryRopeOptional": torch.ones(2, 4, 5, 64).half()}, INVALID_ARGUMENT, "given together"),
        ({"learnableSinkOptional": torch.ones(4).bfloat16()}, TILING_REFUSED, "supported learnable_sink"),
        ({"dequantScaleQueryOptional": torch.ones(4)}, INVALID_ARGUMENT, "does not quantise"),
        ({"pseType": 2}, INVALID_ARGUMENT, "pseType is 2"),
    ],
)
def test_refusals(changed: dict[str, Any], status: int, words: str) -> None:
    q, k, v = (t.npu() for t in operands())
    assert first_phase(V5, *arguments(V5, q, k, v, q)) == (0, "")
    options = {name: t.npu() if isinstance(t, torch.Tensor) else t for name, t in changed.items()}
    found, message = first_phase(V5, *arguments(V5, q, k, v, q, **options))
    assert found == status and words in message, message
