"""The lightning indexer and attention over the keys that it names, with their gradients, against loops in float64."""

from typing import Any

import pytest
import torch
import torch_npu
from aclnn import INVALID_ARGUMENT, NULL_ARGUMENT, SIGNATURES, first_phase
from oracle import compare, random

HALVES = [torch.float16, torch.bfloat16]
ENDS, KEY_ENDS = [3, 8], [20, 52]  # two sequences, of 3 and 5 queries, of 20 and 32 keys
TILING_REFUSED = 561002


def batched(t: torch.Tensor, ends: list[int], length: int) -> torch.Tensor:
    """[batch, length, ...] of sequences one behind the other, zeros behind the shorter ones."""
    out = t.new_zeros(len(ends), length, *t.shape[1:])
    for b, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        out[b, : end - start] = t[start:end]
    return out


def paged(t: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The keys of both sequences in blocks of 16, and which are whose."""
    table = torch.tensor([[4, 1], [0, 3]], dtype=torch.int32)
    blocks = t.new_zeros(5, 16, *t.shape[1:])
    rows = batched(t, KEY_ENDS, 32).unflatten(1, (2, 16))
    for b in range(2):
        blocks[table[b].long()] = rows[b]
    return blocks, table


def ints(values: list[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32).npu()


def indexed(q: torch.Tensor, k: torch.Tensor, w: torch.Tensor, mode: int) -> list[torch.Tensor]:
    """The scores of each sequence, [queries, keys]; unseen ones are minus infinity."""
    all_scores = []
    for start, end, key_start, key_end in ((0, 3, 0, 20), (3, 8, 20, 52)):
        scores = (torch.relu(q[start:end] @ k[key_start:key_end, 0].mT) * w[start:end].unsqueeze(-1)).sum(1)
        if mode == 3:
            unseen = torch.ones_like(scores, dtype=torch.bool).triu(1 + scores.shape[1] - scores.shape[0])
            scores = scores.masked_fill(unseen, -torch.inf)
        all_scores.append(scores)
    return all_scores


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("form", ["TND", "BSND", "PA_BSND"])
@pytest.mark.parametrize("mode", [0, 3])
@pytest.mark.parametrize("count", [4, 24])
def test_indexer(dtype: torch.dtype, form: str, mode: int, count: int) -> None:
    q, k = random(8, 8, 128, low=-1, high=1).to(dtype), random(52, 1, 128, low=-1, high=1, seed=1).to(dtype)
    w = random(8, 8, seed=2).to(dtype)
    expected = torch.full((8, 1, count), -1)
    for (start, end), scores in zip(((0, 3), (3, 8)), indexed(q.double(), k.double(), w.double(), mode), strict=True):
        values, order = scores.sort(descending=True, stable=True)
        most = min(count, scores.shape[1])
        expected[start:end, 0, :most] = order.masked_fill(values.isinf(), -1)[:, :most]
    options: dict[str, Any] = {"sparse_count": count, "sparse_mode": mode}
    if form == "BSND":
        operands = [batched(q, ENDS, 5), batched(k, KEY_ENDS, 32), batched(w, ENDS, 5)]
        lengths, key_lengths = [3, 5], [20, 32]
        expected = batched(expected + 1, ENDS, 5) - 1
    else:
        operands, lengths, key_lengths = [q, k, w], ENDS, KEY_ENDS
        options |= {"layout_query": "TND", "layout_key": form}
    if form == "PA_BSND":
        operands[1], table = paged(k)
        options["block_table"], key_lengths = table.npu(), [20, 32]
    values_too = form != "PA_BSND"
    found, values = torch_npu.npu_lightning_indexer(
        *(t.npu() for t in operands),
        actual_seq_lengths_query=ints(lengths),
        actual_seq_lengths_key=ints(key_lengths),
        return_value=values_too,
        **options,
    )
    assert found.tolist() == expected.tolist()
    if values_too and form == "TND":
        first = indexed(q.double(), k.double(), w.double(), mode)[0].sort(descending=True)[0][:, : min(count, 20)]
        compare(values[:3, 0, : min(count, 20)], first, dtype, ulps=4)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("layout", ["TND", "BSND"])
def test_sums_of_all_scores(dtype: torch.dtype, layout: str) -> None:
    q, k = (random(8, 8, 128, low=-0.3, high=0.3).to(dtype), random(52, 1, 128, low=-0.3, high=0.3, seed=1).to(dtype))
    w = random(8, 8, seed=2).to(dtype)
    scores = indexed(q.double(), k.double(), w.double(), 3)
    maximum = torch.cat([s.amax(-1) for s in scores])
    total = torch.cat([(s - s.amax(-1, keepdim=True)).exp().sum(-1) for s in scores])
    operands, lengths, key_lengths = [q, k, w], ENDS, KEY_ENDS
    if layout == "BSND":
        operands = [batched(q, ENDS, 5), batched(k, KEY_ENDS, 32), batched(w, ENDS, 5)]
        lengths, key_lengths = [3, 5], [20, 32]
    found = torch_npu.npu_dense_lightning_indexer_softmax_lse(
        *(t.npu() for t in operands), actual_seq_qlen=lengths, actual_seq_klen=key_lengths, layout=layout
    )
    for a, e in zip(found, (maximum, total), strict=True):
        e = e.unsqueeze(0) if layout == "TND" else batched(e, ENDS, 5).unsqueeze(1)
        compare(a, e, torch.float32, ulps=64)


@pytest.mark.parametrize("form", ["TND", "BSND", "PA_BSND"])
@pytest.mark.parametrize("mode", [0, 3])
def test_indexer_of_eight_bits(form: str, mode: int) -> None:
    q, k = (
        random(8, 8, 128, low=-20, high=20).to(torch.int8),
        random(52, 1, 128, low=-20, high=20, seed=1).to(torch.int8),
    )
    w, scale = random(8, 8, seed=2).half(), random(8, 8, low=0.01, high=0.1, seed=3).half()
    key_scale, count = random(52, 1, low=0.01, high=0.1, seed=4).half(), 24
    wide = (q.double() * scale.double().unsqueeze(-1), k.double() * key_scale.double().unsqueeze(-1), w.double())
    expected = torch.full((8, 1, count), -1)
    for (start, end), scores in zip(((0, 3), (3, 8)), indexed(*wide, mode), strict=True):
        values, order = scores.sort(descending=True, stable=True)
        most = min(count, scores.shape[1])
        expected[start:end, 0, :most] = order.masked_fill(values.isinf(), -1)[:, :most]
    operands, lengths, key_lengths = [q, k, w, scale, key_scale], ENDS, KEY_ENDS
    options: dict[str, Any] = {"layout_query": "TND", "layout_key": form}
    if form == "BSND":
        operands = [
            batched(t, own, 5 if own is ENDS else 32)
            for t, own in zip(operands, (ENDS, KEY_ENDS, ENDS, ENDS, KEY_ENDS), strict=True)
        ]
        expected, lengths, key_lengths, options = batched(expected + 1, ENDS, 5) - 1, [3, 5], [20, 32], {}
    elif form == "PA_BSND":
        (operands[1], table), operands[4], key_lengths = paged(k), paged(key_scale)[0], [20, 32]
        options["block_table"] = table.npu()
    found = torch_npu.npu_quant_lightning_indexer(
        *(t.npu() for t in operands),
        0,
        0,
        actual_seq_lengths_query=ints(lengths),
        actual_seq_lengths_key=ints(key_lengths),
        sparse_count=count,
        sparse_mode=mode,
        **options,
    )
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("layout", ["TND", "BSND"])
def test_gradients_of_the_indexer(dtype: torch.dtype, layout: str) -> None:
    rounded = [
        random(8, 8, 128, low=-1, high=1).to(dtype),
        random(52, 1, 128, low=-1, high=1, seed=1).to(dtype),
        random(8, 8, seed=2).to(dtype),
    ]
    exact = [t.double().requires_grad_() for t in rounded]
    indices = torch.tensor([[0, 7, -1], [19, 3, 4], [2, 1, 0]] + [[30, 5, 6], [8, -1, -1]] + [[1, 2, 3]] * 3)
    grad = random(8, 3, seed=5).to(dtype)
    total = torch.zeros((), dtype=torch.float64)
    for (start, end), scores in zip(((0, 3), (3, 8)), indexed(*exact, 0), strict=True):
        named = indices[start:end]
        values = scores.gather(1, named.clamp(0)) * named.ge(0)
        total = total + (values * grad[start:end].double()).sum()
    wanted = torch.autograd.grad(total, exact)
    q, k, w, dy, named = *rounded, grad.unsqueeze(1), indices.int().unsqueeze(1)
    lengths, key_lengths = ENDS, KEY_ENDS
    if layout == "BSND":
        q, w, dy, named = (batched(t, ENDS, 5) for t in (q, w, dy, named))
        k, lengths, key_lengths = batched(k, KEY_ENDS, 32), [3, 5], [20, 32]
    found = torch_npu.npu_lightning_indexer_grad(
        q.npu(), k.npu(), dy.npu(), named.npu(), w.npu(), ints(lengths), ints(key_lengths), layout=layout
    )
    for a, e, ends in zip(found, wanted, (ENDS, KEY_ENDS, ENDS), strict=True):
        e = e if layout == "TND" else batched(e, ends, max(lengths) if ends is ENDS else 32)
        compare(a, e, dtype, ulps=8)


HEADS, WIDTH, ROPE, SCALE = 4, 32, 16, 0.3


def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, indices: torch.Tensor, block: int, mode: int, sink: Any = None
) -> torch.Tensor:
    rows = []
    for start, end, key_start, key_end in ((0, 3, 0, 20), (3, 8, 20, 52)):
        keys = key_end - key_start
        for token in range(start, end):
            named = [i for i in indices[token].tolist() if i >= 0]
            at = torch.cat([torch.arange(i * block, min((i + 1) * block, keys)) for i in named])
            own = token - start + keys - (end - start)
            if mode == 3:
                at = at[at <= own]
            elif mode == 4:
                at = at[(at - own <= 0) & (own - at <= 9)]
            scores = q[token] @ k[key_start + at, 0].mT * SCALE
            value = v[key_start + at, 0]
            if sink is not None:
                scores = torch.cat([scores, sink.unsqueeze(1)], 1)
                value = torch.cat([value, torch.zeros_like(value[:1])])
            rows.append(scores.softmax(-1) @ value)
    return torch.stack(rows)


def chosen(block: int) -> torch.Tensor:
    """Of 20 and of 32 keys; the first is one that the query sees, -1 ends the list."""
    most = 20 // block, 32 // block
    generator = torch.Generator().manual_seed(4)
    rows = [
        torch.cat(
            [torch.tensor([(most[s] - 2) if block == 1 else 0]), torch.randperm(most[s], generator=generator)[:2]]
        )
        for s in (0, 0, 0, 1, 1, 1, 1, 1)
    ]
    indices = torch.stack(rows)
    for row in indices:
        row[1:][row[1:] == row[0]] = -1
    return indices


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("form", ["TND", "BSND", "PA_BSND"])
@pytest.mark.parametrize(("block", "mode"), [(1, 0), (1, 4), (4, 0), (4, 3)])
@pytest.mark.parametrize("with_sinks", [False, True])
def test_attention_over_named_keys(dtype: torch.dtype, form: str, block: int, mode: int, with_sinks: bool) -> None:
    q, rope = random(8, HEADS, WIDTH).to(dtype), random(8, HEADS, ROPE, seed=1).to(dtype)
    k, key_rope = random(52, 1, WIDTH, seed=2).to(dtype), random(52, 1, ROPE, seed=3).to(dtype)
    indices = chosen(block)
    if mode == 4:
        indices[:, 0] = torch.tensor([17, 18, 19, 27, 28, 29, 30, 31])
    sink = random(HEADS, seed=6).float() if with_sinks else None
    expected = attention(
        torch.cat([q, rope], -1).double(),
        torch.cat([k, key_rope], -1).double(),
        k.double(),
        indices,
        block,
        mode,
        None if sink is None else sink.double(),
    )
    lengths, key_lengths, table = ENDS, KEY_ENDS, None
    operands = [q, k, indices.int().unsqueeze(1), rope, key_rope]
    if form == "BSND":
        operands = [
            batched(t, ENDS if i in (0, 2, 3) else KEY_ENDS, 5 if i in (0, 2, 3) else 32)
            for i, t in enumerate(operands)
        ]
        lengths, key_lengths, expected = [3, 5], [20, 32], batched(expected, ENDS, 5)
    elif form == "PA_BSND":
        (operands[1], table), operands[4], key_lengths = paged(k), paged(key_rope)[0], [20, 32]
    query, key, named, query_rope, key_part = (t.npu() for t in operands)
    out, maximum, total = torch_npu.npu_sparse_flash_attention(
        query,
        key,
        key,
        named,
        SCALE,
        query_rope=query_rope,
        key_rope=key_part,
        sparse_block_size=block,
        block_table=None if table is None else table.npu(),
        actual_seq_lengths_query=ints(lengths),
        actual_seq_lengths_kv=ints(key_lengths),
        layout_query="BSND" if form == "BSND" else "TND",
        layout_kv=form,
        sparse_mode=mode,
        pre_tokens=9,
        next_tokens=0,
        attention_mode=2,
        sinks=None if sink is None else sink.npu(),
    )
    compare(out, expected, dtype, ulps=4)
    assert maximum.numel() == 0 and total.numel() == 0


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("form", ["TND", "BSND", "PA_BSND"])
@pytest.mark.parametrize(("block", "mode"), [(1, 0), (4, 3)])
def test_attention_over_stored_keys(dtype: torch.dtype, form: str, block: int, mode: int) -> None:
    """A token is 512 numbers of 8 bits, 64 rotary ones, and a factor for each 128 of the first."""
    q = random(8, HEADS, 576, low=-1, high=1).to(dtype)
    numbers, rope = random(52, 512, low=-99, high=99, seed=1).to(torch.int8), random(52, 64, seed=2).to(dtype)
    factors = random(52, 4, low=0.002, high=0.01, seed=3).float()
    stored = torch.cat([numbers, rope.view(torch.int8), factors.view(torch.int8)], 1).unsqueeze(1)
    value = (numbers.float() * factors.repeat_interleave(128, 1)).to(dtype).unsqueeze(1).double()
    indices = chosen(block)
    expected = attention(q.double(), torch.cat([value, rope.double().unsqueeze(1)], -1), value, indices, block, mode)
    operands, lengths, key_lengths = [q, stored, indices.int().unsqueeze(1)], ENDS, KEY_ENDS
    options: dict[str, Any] = {"layout_query": "TND", "layout_kv": form}
    if form == "BSND":
        operands = [batched(operands[0], ENDS, 5), batched(stored, KEY_ENDS, 32), batched(operands[2], ENDS, 5)]
        expected, lengths, key_lengths, options = batched(expected, ENDS, 5), [3, 5], [20, 32], {}
    elif form == "PA_BSND":
        (operands[1], table), key_lengths = paged(stored), [20, 32]
        options["block_table"] = table.npu()
    query, key, named = (t.npu() for t in operands)
    out = torch_npu.npu_kv_quant_sparse_flash_attention(
        query,
        key,
        key,
        named,
        SCALE,
        2,
        2,
        actual_seq_lengths_query=ints(lengths),
        actual_seq_lengths_kv=ints(key_lengths),
        sparse_block_size=block,
        sparse_mode=mode,
        attention_mode=2,
        **options,
    )
    compare(out, expected, dtype, ulps=4)


def test_stored_keys_of_other_sizes_are_refused() -> None:
    query = torch.ones(1, 1, 2, 576).half().npu()
    key = torch.zeros(1, 16, 1, 656, dtype=torch.int8, device="npu")
    named = torch.zeros(1, 1, 1, 4, dtype=torch.int32, device="npu")
    nothing = (None,) * 5
    out = torch.empty(1, 1, 2, 512).half().npu()
    for keys, tile, rope, code, words in (
        (key, 128, 64, 0, ""),
        (key[..., :640].contiguous(), 128, 64, INVALID_ARGUMENT, "one head of 656 bytes"),
        (key, 100, 64, INVALID_ARGUMENT, "tile_size is 100"),
        (torch.zeros(1, 16, 1, 672, dtype=torch.int8, device="npu"), 64, 64, TILING_REFUSED, "tile_size 64"),
    ):
        status, message = first_phase(
            "aclnnKvQuantSparseFlashAttention",
            query,
            keys,
            keys,
            named,
            *nothing,
            1.0,
            2,
            2,
            1,
            "BSND",
            "BSND",
            3,
            0,
            0,
            2,
            1,
            tile,
            rope,
            out,
        )
        assert status == code and words in message, message


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("layout", ["TND", "BSND"])
@pytest.mark.parametrize("with_ropes", [False, True])
def test_gradients_over_named_keys(dtype: torch.dtype, layout: str, with_ropes: bool) -> None:
    shapes = [(8, HEADS, WIDTH), (52, 1, WIDTH), (52, 1, WIDTH), (8, HEADS, ROPE), (52, 1, ROPE)]
    rounded = [random(*shape, low=-1, high=1, seed=i).to(dtype) for i, shape in enumerate(shapes)]
    exact = [t.double().requires_grad_() for t in rounded]
    indices = chosen(4)
    q, k = (torch.cat([exact[i], exact[i + 3]], -1) if with_ropes else exact[i] for i in (0, 1))
    expected = attention(q, k, exact[2], indices, 4, 3)
    grad = random(*expected.shape, seed=9).to(dtype)
    used = exact if with_ropes else exact[:3]
    wanted = torch.autograd.grad(expected, used, grad.double())
    lengths, key_lengths = ENDS, KEY_ENDS
    ends = [ENDS, KEY_ENDS, KEY_ENDS, ENDS, KEY_ENDS]

    def placed(t: torch.Tensor, own: list[int]) -> torch.Tensor:
        return t if layout == "TND" else batched(t, own, 5 if own is ENDS else 32)

    if layout == "BSND":
        lengths, key_lengths = [3, 5], [20, 32]
    query, key, value, query_rope, key_rope = (placed(t, own).npu() for t, own in zip(rounded, ends, strict=True))
    named = placed(indices.int().unsqueeze(1), ENDS).npu()
    ropes = {"query_rope": query_rope, "key_rope": key_rope} if with_ropes else {}
    mode = 2 if with_ropes else 0
    out, maximum, total = torch_npu.npu_sparse_flash_attention(
        query,
        key,
        value,
        named,
        SCALE,
        sparse_block_size=4,
        actual_seq_lengths_query=ints(lengths),
        actual_seq_lengths_kv=ints(key_lengths),
        layout_query=layout,
        layout_kv=layout,
        attention_mode=mode,
        return_softmax_lse=True,
        **ropes,
    )
    found = torch_npu.npu_sparse_flash_attention_grad(
        query,
        key,
        value,
        named,
        placed(grad, ENDS).npu(),
        out,
        maximum,
        total,
        SCALE,
        4,
        actual_seq_qlen=ints(lengths),
        actual_seq_kvlen=ints(key_lengths),
        layout=layout,
        attention_mode=mode,
        **ropes,
    )
    for a, e, own in zip(found, wanted, ends, strict=False):
        compare(a, placed(e, own), dtype, ulps=16, scale=1.0)


def arguments(name: str, **given: Any) -> list[Any]:
    """A call of one query of 2 heads and 16 keys; what is not named is null, zero or false."""

    def f(*shape: int) -> torch.Tensor:
        return torch.ones(shape, dtype=torch.float16, device="npu")

    named = torch.zeros(1, 1, 1, 4, dtype=torch.int32, device="npu")
    call: dict[str, Any] = {
        "query": f(1, 1, 2, 128),
        "key": f(1, 16, 1, 128),
        "value": f(1, 16, 1, 128),
        "weights": f(1, 1, 2),
        "sparseIndicesOut": named,
        "sparseIndices": named,
        "sparseCount": 4,
        "sparseMode": 3,
        "scaleValue": 1.0,
        "sparseBlockSizeOptional": 1,
        "attentionOut": f(1, 1, 2, 128),
        "returnValues": False,
        "returnSoftmaxLse": False,
        **dict.fromkeys(("layoutQueryOptional", "layoutKeyOptional", "layoutKvOptional"), "BSND"),
        **given,
    }
    return [call.get(param, 0 if kind == "int64_t" else None) for kind, param, _ in SIGNATURES[name]["params"]]


@pytest.mark.parametrize(
    ("name", "changed", "code", "words"),
    [
        ("aclnnLightningIndexer", {"layoutKeyOptional": "SBND"}, INVALID_ARGUMENT, "allowed are BSND and TND"),
        ("aclnnLightningIndexer", {"layoutKeyOptional": "PA_BSND"}, NULL_ARGUMENT, "one is null"),
        ("aclnnLightningIndexer", {"sparseMode": 2}, INVALID_ARGUMENT, "sparseMode is 2"),
        ("aclnnLightningIndexer", {"sparseCount": 5}, INVALID_ARGUMENT, "sparseIndicesOut has shape"),
        ("aclnnSparseFlashAttention", {"attentionMode": 2}, INVALID_ARGUMENT, "attentionMode"),
        ("aclnnSparseFlashAttentionV2", {"sinksOptional": torch.ones(3)}, INVALID_ARGUMENT, "sinksOptional"),
        (
            "aclnnSparseFlashAttention",
            {"query": torch.ones(1, 1, 3, 128).half(), "attentionOut": torch.ones(1, 1, 3, 128).half()},
            TILING_REFUSED,
            "power of two",
        ),
    ],
)
def test_refusals(name: str, changed: dict[str, Any], code: int, words: str) -> None:
    assert first_phase(name, *arguments(name)) == (0, "")
    on_npu = {param: t.npu() if isinstance(t, torch.Tensor) else t for param, t in changed.items()}
    status, message = first_phase(name, *arguments(name, **on_npu))
    assert status == code and words in message, message
