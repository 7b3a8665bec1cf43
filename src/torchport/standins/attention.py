"""Attention for the stand-ins: torch_npu's fused operator on an NPU, scaled_dot_product_attention elsewhere.

Shapes are those of flash_attn and xformers: (batch, sequence, heads, width), or (tokens, heads, width) for sequences
packed behind one another. Keys and values may have fewer heads, each serving as many query heads. A query that may
see no key gets zeros.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

Sums = Callable[[], Tensor]

FAR = 2**31 - 1  # npu_fusion_attention_v2's own default for "no limit"
V1_NAMES = {"pre_tokens": "pre_tockens", "next_tokens": "next_tockens"}  # npu_fusion_attention's spelling
TRIANGLE = 2048  # the side of the mask that its compressed modes want
ZERO_BLIND_QUERIES = 2  # inner_precise: a query whose keys are all masked gives 0


@dataclasses.dataclass(frozen=True, slots=True)
class Band:
    """The keys that a query may see: `left` before the diagonal to `right` behind it, None for no limit.

    The diagonal ends in the lower right corner of the scores, or begins in the upper left one.
    """

    left: int | None = None
    right: int | None = None
    from_bottom_right: bool = True

    def left_out(self, queries: int, keys: int, device: torch.device) -> Tensor:
        """Bool, (queries, keys): True for what is not seen."""
        shift = keys - queries if self.from_bottom_right else 0
        distance = torch.arange(keys, device=device) - torch.arange(queries, device=device)[:, None] - shift
        out = torch.zeros(queries, keys, dtype=torch.bool, device=device)
        if self.left is not None:
            out |= distance < -self.left
        if self.right is not None:
            out |= distance > self.right
        return out


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """How scores become weights.

    scale    factor of the scores; None for 1 / sqrt(width)
    band     what each query sees
    dropout  probability of a weight to be left out
    softcap  scores are bent to cap * tanh(score / cap); 0 for not at all
    """

    scale: float | None = None
    band: Band | None = None
    dropout: float = 0.0
    softcap: float = 0.0

    def factor(self, query: Tensor) -> float:
        """The scale for this width."""
        return 1 / math.sqrt(query.shape[-1]) if self.scale is None else self.scale


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    settings: Settings,
    bias: Tensor | None = None,
    left_out: Tensor | None = None,
) -> tuple[Tensor, Sums]:
    """Attention of (batch, sequence, heads, width) tensors of one dtype, and how to get the log of each query's sum
    of exp(score): a function, since few ask; it gives float32, (batch, heads, queries).

    `bias` is added to the scaled scores, `left_out` (bool) masks them; both broadcast to (batch, heads, queries, keys).
    """
    if query.device.type == "npu" and not settings.softcap:
        return _fused(query, key, value, settings, bias, left_out)
    mask = _mask(query, key, settings, left_out)
    q, k, v = _heads_first(query, key, value)
    compute = _explicit if settings.softcap else _native
    output = compute(q, k, v, settings, bias, mask)
    return output.transpose(1, 2), lambda: _scores(q, k, settings, bias, mask).detach().logsumexp(-1)


def attend_packed(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_ends: Sequence[int],
    key_ends: Sequence[int],
    settings: Settings,
    biases: Sequence[Tensor | None] | None = None,
) -> tuple[Tensor, Sums]:
    """Attention within sequences that are packed behind one another; `*_ends` are where each ends.

    Tensors are (tokens, heads, width); the logs of the sums are (heads, tokens). `biases` has one per sequence, as in
    `attend`.
    """
    options = _compressed(settings.band, query.device)
    borders = [(0, 0), *zip(query_ends, key_ends, strict=True)]
    fused = query.device.type == "npu" and biases is None and not settings.softcap and options is not None
    if fused and _plans(settings.band, borders):
        return _fused_packed(query, key, value, query_ends, key_ends, settings, options or {})
    each = [
        attend(
            query[None, q0:q1],
            key[None, k0:k1],
            value[None, k0:k1],
            settings,
            None if biases is None else biases[index],
        )
        for index, ((q0, k0), (q1, k1)) in enumerate(itertools.pairwise(borders))
    ]
    return torch.cat([output[0] for output, _ in each]), lambda: torch.cat([sums()[0] for _, sums in each], dim=1)


def _fused(
    query: Tensor, key: Tensor, value: Tensor, settings: Settings, bias: Tensor | None, left_out: Tensor | None
) -> tuple[Tensor, Sums]:
    import torch_npu

    queries, keys, heads = query.shape[1], key.shape[1], query.shape[2]
    options: dict[str, Any] = {}
    compressed = _compressed(settings.band, query.device) if left_out is None else None
    if compressed is not None:
        options = compressed
    elif settings.band is not None or left_out is not None:
        masks = [left_out] if left_out is not None else []
        if settings.band is not None:
            masks.append(settings.band.left_out(queries, keys, query.device))
        mask = functools.reduce(torch.logical_or, masks)
        mask = mask.expand(*[1] * (4 - mask.dim()), *mask.shape).contiguous()
        options = {"atten_mask": mask, "inner_precise": ZERO_BLIND_QUERIES}
    if bias is not None:
        batch = bias.shape[0] if bias.dim() == 4 else 1
        options["pse"] = bias.to(query.dtype).expand(batch, heads, queries, keys).contiguous()
    result = torch_npu.npu_fusion_attention_v2(
        query,
        key,
        value,
        heads,
        "BSND",
        scale=settings.factor(query),
        keep_prob=1 - settings.dropout,
        pse_type=0,
        **options,
    )
    return result[0], lambda: _log_sums(result)


def _fused_packed(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_ends: Sequence[int],
    key_ends: Sequence[int],
    settings: Settings,
    options: dict[str, Any],
) -> tuple[Tensor, Sums]:
    import torch_npu

    result = torch_npu.npu_fusion_attention(
        query,
        key,
        value,
        query.shape[1],
        "TND",
        scale=settings.factor(query),
        keep_prob=1 - settings.dropout,
        actual_seq_qlen=list(query_ends),
        actual_seq_kvlen=list(key_ends),
        softmax_layout="TND",
        **{V1_NAMES.get(name, name): value for name, value in options.items()},
    )
    return result[0], lambda: _log_sums(result).movedim(0, 1)


def _log_sums(result: Any) -> Tensor:
    """From the operator's largest scores and sums, each repeated 8 times in the last dimension."""
    return result[1][..., 0] + result[2][..., 0].log()


def _compressed(band: Band | None, device: torch.device) -> dict[str, Any] | None:
    """The operator's arguments for a band, with one small mask for sequences of any length; None if it has no mode."""
    if band is None:
        return {}
    if band.left is None and band.right == 0:
        return {"sparse_mode": 3 if band.from_bottom_right else 2, "atten_mask": _triangle(device)}
    if not band.from_bottom_right:
        return None
    return {
        "sparse_mode": 4,
        "atten_mask": _triangle(device),
        "pre_tokens": FAR if band.left is None else band.left,
        "next_tokens": FAR if band.right is None else band.right,
    }


def _plans(band: Band | None, borders: Sequence[tuple[int, int]]) -> bool:
    """Whether the operator takes sequences so long packed: from the lower right corner, each query has to see a key.

    Source: ops-transformer, flash_attention_score_tiling_general.cpp, CheckPretokenAndNexttoken.
    """
    if band is None or not band.from_bottom_right or band.right is None:
        return True
    right = band.right
    return all(q1 - q0 - right <= k1 - k0 for (q0, k0), (q1, k1) in itertools.pairwise(borders))


@functools.cache
def _triangle(device: torch.device) -> Tensor:
    return torch.ones(TRIANGLE, TRIANGLE, dtype=torch.bool, device=device).triu(1)


def _heads_first(query: Tensor, *others: Tensor) -> list[Tensor]:
    """(batch, heads, sequence, width), keys and values repeated to the query's heads."""
    heads = query.shape[2]
    repeated = (tensor.repeat_interleave(heads // tensor.shape[2], dim=2) for tensor in others)
    return [tensor.transpose(1, 2) for tensor in (query, *repeated)]


def _mask(query: Tensor, key: Tensor, settings: Settings, left_out: Tensor | None) -> Tensor | None:
    if settings.band is None:
        return left_out
    band = settings.band.left_out(query.shape[1], key.shape[1], query.device)
    return band if left_out is None else band | left_out


def _scores(query: Tensor, key: Tensor, settings: Settings, bias: Tensor | None, mask: Tensor | None) -> Tensor:
    """(batch, heads, queries, keys), float32, -inf for what is left out."""
    scores = (query.float() @ key.float().mT) * settings.factor(query)
    if settings.softcap:
        scores = settings.softcap * torch.tanh(scores / settings.softcap)
    if bias is not None:
        scores = scores + bias.float()
    return scores if mask is None else scores.masked_fill(mask, -math.inf)


def _explicit(
    query: Tensor, key: Tensor, value: Tensor, settings: Settings, bias: Tensor | None, mask: Tensor | None
) -> Tensor:
    """Attention written out, for what no fused kernel has; tensors as `_heads_first` gives them."""
    weights = _scores(query, key, settings, bias, mask).softmax(-1)
    if mask is not None:
        weights = weights.masked_fill(mask, 0.0)  # a query that sees nothing has nan
    return functional.dropout(weights, settings.dropout).to(value.dtype) @ value


def _native(
    query: Tensor, key: Tensor, value: Tensor, settings: Settings, bias: Tensor | None, mask: Tensor | None
) -> Tensor:
    """Attention by torch's own kernels; tensors as `_heads_first` gives them."""
    given = bias.to(query.dtype) if bias is not None else None
    if mask is not None:
        given = ~mask if given is None else torch.where(mask, -math.inf, given)
    output = functional.scaled_dot_product_attention(
        query, key, value, given, settings.dropout, scale=settings.factor(query)
    )
    return output if mask is None else output.masked_fill(mask.all(-1, keepdim=True), 0.0)
