"""flash_attn's functions, on the NPU's fused attention.

Shapes are (batch, sequence, heads, width), packed ones (tokens, heads, width); dtypes float16, bfloat16, and float32
too, which flash_attn refuses. `causal` and `window_size` (left, right; -1 for no limit) are aligned to the lower right
corner. `deterministic` is taken: the NPU's determinism is set by torch.use_deterministic_algorithms.
With `return_attn_probs` a function returns (out, log of the sums of exp(score), None): the probabilities are never
stored.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor

from torchport.standins.attention import Band, Settings, attend, attend_packed

Window = tuple[int, int]


def _settings(
    dropout_p: float, softmax_scale: float | None, causal: bool, window_size: Window, softcap: float
) -> Settings:
    left, right = (None if side < 0 else int(side) for side in window_size)
    right = 0 if causal else right
    band = None if left is None and right is None else Band(left, right)
    return Settings(softmax_scale, band, dropout_p, softcap)


def _alibi(slopes: Tensor | None, queries: int, keys: int) -> Tensor | None:
    """-slope * |distance from the diagonal|, (batch or 1, heads, queries, keys)."""
    if slopes is None:
        return None
    position = torch.arange(queries, device=slopes.device)[:, None] + keys - queries
    distance = (position - torch.arange(keys, device=slopes.device)).abs()
    return -slopes.float().reshape(-1, slopes.shape[-1], 1, 1) * distance


def flash_attn_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """Attention; `k` and `v` may have fewer heads than `q`."""
    settings = _settings(dropout_p, softmax_scale, causal, window_size, softcap)
    out, log_sums = attend(q, k, v, settings, _alibi(alibi_slopes, q.shape[1], k.shape[1]))
    return (out, log_sums(), None) if return_attn_probs else out


def flash_attn_qkvpacked_func(qkv: Tensor, *args: Any, **kwargs: Any) -> Any:
    """`qkv` is (batch, sequence, 3, heads, width); the other arguments as in `flash_attn_func`."""
    return flash_attn_func(*qkv.unbind(2), *args, **kwargs)


def flash_attn_kvpacked_func(q: Tensor, kv: Tensor, *args: Any, **kwargs: Any) -> Any:
    """`kv` is (batch, sequence, 2, heads, width); the other arguments as in `flash_attn_func`."""
    return flash_attn_func(q, *kv.unbind(2), *args, **kwargs)


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: Tensor | None = None,
) -> Any:
    """Attention within packed sequences; `cu_seqlens_*` (batch + 1) are their borders, beginning with 0.

    They are read on the host: the device is waited for if they are on it.
    """
    if block_table is not None:
        raise NotImplementedError("flash_attn_varlen_func on an NPU has no paged caches (block_table).")
    settings = _settings(dropout_p, softmax_scale, causal, window_size, softcap)
    query_borders, key_borders = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
    biases = None
    if alibi_slopes is not None:
        each = alibi_slopes.expand(len(query_borders) - 1, -1)
        lengths = [
            [end - begin for begin, end in itertools.pairwise(borders)] for borders in (query_borders, key_borders)
        ]
        biases = [_alibi(*row) for row in zip(each, *lengths, strict=True)]
    out, log_sums = attend_packed(q, k, v, query_borders[1:], key_borders[1:], settings, biases)
    return (out, log_sums(), None) if return_attn_probs else out


def flash_attn_varlen_qkvpacked_func(
    qkv: Tensor, cu_seqlens: Tensor, max_seqlen: int, *args: Any, **kwargs: Any
) -> Any:
    """`qkv` is (tokens, 3, heads, width); the other arguments as in `flash_attn_varlen_func`."""
    q, k, v = qkv.unbind(1)
    return flash_attn_varlen_func(q, k, v, cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, *args, **kwargs)


def flash_attn_varlen_kvpacked_func(q: Tensor, kv: Tensor, *args: Any, **kwargs: Any) -> Any:
    """`kv` is (tokens, 2, heads, width); the other arguments as in `flash_attn_varlen_func`."""
    return flash_attn_varlen_func(q, *kv.unbind(1), *args, **kwargs)


def flash_attn_with_kvcache(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    k: Tensor | None = None,
    v: Tensor | None = None,
    rotary_cos: Tensor | None = None,
    rotary_sin: Tensor | None = None,
    cache_seqlens: int | Tensor | None = None,
    cache_batch_idx: Tensor | None = None,
    cache_leftpad: Tensor | None = None,
    block_table: Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = (-1, -1),
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    alibi_slopes: Tensor | None = None,
    num_splits: int = 0,
    return_softmax_lse: bool = False,
) -> Any:
    """Write `k` and `v` into the caches behind `cache_seqlens`, in place, then attend to what the caches hold.

    Raises NotImplementedError for rotary embedding, paged or indexed caches, left padding and alibi.
    """
    absent = {
        "rotary_cos": rotary_cos,
        "cache_batch_idx": cache_batch_idx,
        "cache_leftpad": cache_leftpad,
        "block_table": block_table,
        "alibi_slopes": alibi_slopes,
    }
    if wanted := [name for name, value in absent.items() if value is not None]:
        raise NotImplementedError(f"flash_attn_with_kvcache on an NPU has no {', '.join(wanted)}.")
    batch, capacity = k_cache.shape[:2]
    lengths = torch.as_tensor(capacity if cache_seqlens is None else cache_seqlens, device=q.device)
    lengths = lengths.long().expand(batch)
    if k is not None and v is not None:
        rows = torch.arange(batch, device=q.device)[:, None]
        places = lengths[:, None] + torch.arange(k.shape[1], device=q.device)
        k_cache[rows, places] = k.to(k_cache.dtype)
        v_cache[rows, places] = v.to(v_cache.dtype)
        lengths = lengths + k.shape[1]
    position = torch.arange(capacity, device=q.device)
    diagonal = torch.arange(q.shape[1], device=q.device)[:, None] + (lengths - q.shape[1])[:, None, None]
    left, right = window_size[0], 0 if causal else window_size[1]
    left_out = (position >= lengths[:, None, None]).expand(batch, q.shape[1], capacity)
    if right >= 0:
        left_out = left_out | (position > diagonal + right)
    if left >= 0:
        left_out = left_out | (position < diagonal - left)
    settings = Settings(softmax_scale, None, 0.0, softcap)
    out, log_sums = attend(q, k_cache, v_cache, settings, left_out=left_out[:, None])
    return (out, log_sums()) if return_softmax_lse else out
