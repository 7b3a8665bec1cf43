"""The stand-in for flash_attn, forward and backward, against float64."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from attention_oracle import DEVICES, check, exact, random

from torchport import standins

HALF = torch.float16


@pytest.fixture(autouse=True)
def _installed() -> Iterator[None]:
    standins.install()
    yield
    standins.uninstall()


def operands(queries: int, keys: int, heads: int = 4, key_heads: int = 4, dtype: Any = HALF) -> list[torch.Tensor]:
    shapes = [(2, queries, heads, 16), (2, keys, key_heads, 16), (2, keys, key_heads, 16)]
    return [random(*shape, seed=i, dtype=dtype) for i, shape in enumerate(shapes)]


def window(queries: int, keys: int, causal: bool = False, sides: tuple[int, int] = (-1, -1)) -> Callable[..., bool]:
    """flash_attn's rule, aligned to the lower right corner."""

    def sees(i: int, j: int) -> bool:
        distance = j - i - (keys - queries)
        right = 0 if causal else sides[1]
        return (sides[0] < 0 or distance >= -sides[0]) and (right < 0 or distance <= right)

    return sees


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("queries", "keys"), [(5, 5), (3, 7), (7, 3)])
@pytest.mark.parametrize(
    "options",
    [{}, {"causal": True}, {"window_size": (2, 1)}, {"window_size": (2, -1)}, {"window_size": (1, 3), "causal": True}],
    ids=str,
)
def test_masks(options: dict[str, Any], queries: int, keys: int, device: str) -> None:
    from flash_attn import flash_attn_func

    sees = window(queries, keys, options.get("causal", False), options.get("window_size", (-1, -1)))
    check(
        lambda q, k, v: flash_attn_func(q, k, v, **options),
        lambda q, k, v: exact(q, k, v, sees),
        operands(queries, keys),
        device,
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("key_heads", [4, 2, 1])
def test_grouped_heads_and_scale(key_heads: int, dtype: torch.dtype, device: str) -> None:
    from flash_attn import flash_attn_func

    check(
        lambda q, k, v: flash_attn_func(q, k, v, softmax_scale=0.7, causal=True),
        lambda q, k, v: exact(q, k, v, window(4, 6, True), 0.7),
        operands(4, 6, key_heads=key_heads, dtype=dtype),
        device,
    )


@pytest.mark.parametrize("device", DEVICES)
def test_softcap(device: str) -> None:
    from flash_attn import flash_attn_func

    check(
        lambda q, k, v: flash_attn_func(q, k, v, causal=True, softcap=1.5),
        lambda q, k, v: exact(q, k, v, window(7, 5, True), softcap=1.5),
        operands(7, 5, key_heads=2),
        device,
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("batch", [(), (2,)])
def test_alibi(batch: tuple[int, ...], device: str) -> None:
    from flash_attn import flash_attn_func

    slopes = torch.rand(*batch, 4)
    distance = (torch.arange(3)[:, None] + 2 - torch.arange(5)).abs()
    bias = -slopes.double().view(-1, 4, 1, 1) * distance
    check(
        lambda q, k, v: flash_attn_func(q, k, v, causal=True, alibi_slopes=slopes.to(device)),
        lambda q, k, v: exact(q, k, v, window(3, 5, True), bias=bias),
        operands(3, 5),
        device,
    )


@pytest.mark.parametrize("device", DEVICES)
def test_packed_operands(device: str) -> None:
    from flash_attn import flash_attn_kvpacked_func, flash_attn_qkvpacked_func

    query, key, value = operands(5, 5)
    everything = window(5, 5)
    check(
        lambda qkv: flash_attn_qkvpacked_func(qkv, 0.0, 0.3),
        lambda qkv: exact(*qkv.unbind(2), everything, 0.3),
        [torch.stack([query, key, value], 2)],
        device,
    )
    check(
        lambda q, kv: flash_attn_kvpacked_func(q, kv, causal=True),
        lambda q, kv: exact(q, *kv.unbind(2), window(5, 5, True)),
        [query, torch.stack([key, value], 2)],
        device,
    )


QUERY_LENGTHS, KEY_LENGTHS = [3, 1, 4], [3, 5, 2]


def packed(key_heads: int) -> list[torch.Tensor]:
    shapes = [(sum(QUERY_LENGTHS), 4, 16), *[(sum(KEY_LENGTHS), key_heads, 16)] * 2]
    return [random(*shape, seed=i, dtype=HALF) for i, shape in enumerate(shapes)]


def borders(lengths: list[int], device: str) -> torch.Tensor:
    return torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32, device=device)


def exact_packed(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *rule: Any, **options: Any) -> torch.Tensor:
    bias = options.pop("bias", None)
    parts = []
    for i, each in enumerate(zip(q.split(QUERY_LENGTHS), k.split(KEY_LENGTHS), v.split(KEY_LENGTHS), strict=True)):
        sees = window(QUERY_LENGTHS[i], KEY_LENGTHS[i], *rule)
        own = None if bias is None else bias(i)
        parts.append(exact(*(tensor[None] for tensor in each), sees, bias=own, **options)[0])
    return torch.cat(parts)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("key_heads", [4, 2])
@pytest.mark.parametrize("rule", [(), (True,), (False, (1, 1))], ids=["all", "causal", "window"])
def test_varlen(rule: Any, key_heads: int, device: str) -> None:
    from flash_attn import flash_attn_varlen_func

    options: dict[str, Any] = dict(zip(("causal", "window_size"), rule, strict=False))
    ends = borders(QUERY_LENGTHS, device), borders(KEY_LENGTHS, device)
    check(
        lambda q, k, v: flash_attn_varlen_func(q, k, v, *ends, 4, 5, **options),
        lambda q, k, v: exact_packed(q, k, v, *rule),
        packed(key_heads),
        device,
    )


@pytest.mark.parametrize("device", DEVICES)
def test_varlen_alibi_and_packed_forms(device: str) -> None:
    from flash_attn import flash_attn_varlen_func, flash_attn_varlen_kvpacked_func, flash_attn_varlen_qkvpacked_func

    slopes = torch.tensor([0.5, 0.25, 0.1, 1.0])
    ends = borders(QUERY_LENGTHS, device), borders(KEY_LENGTHS, device)

    def bias(i: int) -> torch.Tensor:
        queries, keys = QUERY_LENGTHS[i], KEY_LENGTHS[i]
        distance = torch.arange(queries)[:, None] + keys - queries - torch.arange(keys)
        return -slopes.double().view(1, 4, 1, 1) * distance.abs()

    query, key, value = packed(4)
    check(
        lambda q, k, v: flash_attn_varlen_func(q, k, v, *ends, 4, 5, alibi_slopes=slopes.to(device)),
        lambda q, k, v: exact_packed(q, k, v, bias=bias),
        [query, key, value],
        device,
    )
    check(
        lambda q, kv: flash_attn_varlen_kvpacked_func(q, kv, *ends, 4, 5, causal=True),
        lambda q, kv: exact_packed(q, *kv.unbind(1), True),
        [query, torch.stack([key, value], 1)],
        device,
    )
    own = torch.stack([query, query * 0.5, query + 1], 1).to(device)
    got = flash_attn_varlen_qkvpacked_func(own, ends[0], 4, 0.0, 0.2)
    want = flash_attn_varlen_func(*own.unbind(1), ends[0], ends[0], 4, 4, softmax_scale=0.2)
    assert torch.equal(got, want)


@pytest.mark.parametrize(("queries", "fused"), [([3, 1, 2], 1), ([3, 1, 4], 0)])
@pytest.mark.parametrize("rule", [{"causal": True}, {"window_size": (1, 0)}])
def test_varlen_where_the_operator_has_a_plan(
    monkeypatch: pytest.MonkeyPatch, rule: dict[str, Any], queries: list[int], fused: int
) -> None:
    """One call of it, but where a packed sequence has a query without keys, which it refuses."""
    import torch_npu
    from flash_attn import flash_attn_varlen_func

    calls = []
    attention = torch_npu.npu_fusion_attention
    monkeypatch.setattr(torch_npu, "npu_fusion_attention", lambda *a, **k: calls.append(a) or attention(*a, **k))
    query, key = torch.rand(sum(queries), 4, 8), torch.rand(sum(KEY_LENGTHS), 2, 8)

    def result(device: str) -> torch.Tensor:
        ends = borders(queries, device), borders(KEY_LENGTHS, device)
        q, k = query.to(device), key.to(device)
        return flash_attn_varlen_func(q, k, k, *ends, 4, 5, **rule).cpu()

    torch.testing.assert_close(result("npu"), result("cpu"))
    assert len(calls) == fused


@pytest.mark.parametrize("device", DEVICES)
def test_dropout_keeps_a_share_and_scales_it(device: str) -> None:
    from flash_attn import flash_attn_func

    torch.manual_seed(0)
    query = torch.zeros(2, 32, 4, 32, dtype=HALF, device=device)
    one_hot = torch.eye(32, dtype=HALF, device=device)[None, :, None].expand(2, 32, 4, 32)
    weights = flash_attn_func(query, one_hot, one_hot.contiguous(), dropout_p=0.25).float().cpu() * 32
    kept = weights > 0
    assert torch.allclose(weights[kept], torch.tensor(1 / 0.75), rtol=2e-3)
    assert 0.72 < kept.float().mean() < 0.78


@pytest.mark.parametrize("device", DEVICES)
def test_log_of_the_sums(device: str) -> None:
    from flash_attn import flash_attn_func, flash_attn_varlen_func

    query, key, value = operands(3, 5, key_heads=2)
    _, sums, probabilities = flash_attn_func(
        *(tensor.to(device) for tensor in (query, key, value)), softmax_scale=0.5, return_attn_probs=True
    )
    scores = torch.einsum("bihd,bjhd->bhij", query.double(), key.double().repeat_interleave(2, 2)) * 0.5
    assert (sums.dtype, probabilities) == (torch.float32, None)
    assert torch.allclose(sums.cpu().double(), scores.logsumexp(-1), rtol=1e-4, atol=1e-4)
    ends = torch.tensor([0, 3], device=device), torch.tensor([0, 5], device=device)
    one = [tensor[0].to(device) for tensor in (query, key, value)]
    _, sums, _ = flash_attn_varlen_func(*one, *ends, 3, 5, softmax_scale=0.5, return_attn_probs=True)
    assert torch.allclose(sums.cpu().double(), scores[0].logsumexp(-1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("device", DEVICES)
def test_key_value_cache(device: str) -> None:
    from flash_attn import flash_attn_with_kvcache

    query, key, value = (tensor.to(device) for tensor in operands(2, 2, key_heads=2, dtype=torch.float32))
    caches = [torch.randn(2, 8, 2, 16).to(device) for _ in range(2)]
    before = [cache.clone() for cache in caches]
    lengths = torch.tensor([3, 5], dtype=torch.int32, device=device)
    got = flash_attn_with_kvcache(query, *caches, key, value, cache_seqlens=lengths, causal=True).cpu()
    for row, length in enumerate((3, 5)):
        joined = [
            torch.cat([old[row, :length], new[row]]).cpu().double()[None]
            for old, new in zip(before, (key, value), strict=True)
        ]
        want = exact(query[row, None].cpu().double(), *joined, window(2, length + 2, True))
        assert torch.allclose(got[row].double(), want[0], atol=1e-5)
        assert torch.equal(caches[0][row, length : length + 2], key[row])
        assert torch.equal(caches[1][row, length + 2 :], before[1][row, length + 2 :])
    whole = flash_attn_with_kvcache(query, *caches, window_size=(1, 0)).cpu()
    want = exact(*(t.cpu().double() for t in (query, *caches)), window(2, 8, False, (1, 0)))
    assert torch.allclose(whole.double(), want, atol=1e-5)
    with pytest.raises(NotImplementedError, match="block_table"):
        flash_attn_with_kvcache(query, *caches, block_table=lengths)


def test_padding_is_taken_out_and_put_back() -> None:
    from flash_attn.bert_padding import index_first_axis, index_put_first_axis, pad_input, unpad_input

    x = torch.randn(3, 4, 2, requires_grad=True)
    mask = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 1, 0]])
    tokens, indices, ends, longest = unpad_input(x, mask)
    assert torch.equal(tokens, x[mask.bool()])
    assert (ends.tolist(), ends.dtype, longest) == ([0, 2, 6, 7], torch.int32, 4)
    padded = pad_input(tokens, indices, 3, 4)
    assert torch.equal(padded, x * mask[:, :, None])
    padded.sum().backward()
    assert torch.equal(x.grad, mask[:, :, None].expand_as(x).float())
    flat = x.detach().flatten(0, 1)
    assert torch.equal(index_first_axis(flat, indices), tokens)
    assert torch.equal(index_put_first_axis(tokens, indices, 12), padded.flatten(0, 1))
