"""npu_fusion_attention in plain torch: what an exported graph has in its place."""

from __future__ import annotations

from typing import Any

import torch

FAR = 2147483647  # the operator's own default for "no limit"


def fusion_attention(
    query: Any,
    key: Any,
    value: Any,
    head_num: int,
    input_layout: str,
    pse: Any = None,
    padding_mask: Any = None,
    atten_mask: Any = None,
    scale: float = 1.0,
    keep_prob: float = 1.0,
    pre_tockens: int = FAR,
    next_tockens: int = FAR,
    inner_precise: int = 0,
    prefix: Any = None,
    actual_seq_qlen: Any = None,
    actual_seq_kvlen: Any = None,
    sparse_mode: int = 0,
    gen_mask_parallel: bool = True,
    sync: bool = False,
) -> tuple[Any, ...]:
    """The output first, as the operator has it; maxima and sums of its softmax, which the backward needs, are empty."""
    if keep_prob != 1.0:
        raise NotImplementedError(
            f"npu_fusion_attention with keep_prob={keep_prob}: dropout in a model that is exported"
        )
    if input_layout not in ("BNSD", "BSND", "BSH", "SBH") or prefix is not None or sparse_mode not in range(5):
        raise NotImplementedError(
            f"npu_fusion_attention with input_layout={input_layout}, sparse_mode={sparse_mode}"
            f"{', prefix' if prefix is not None else ''} has no plain form here"
        )
    heads = (
        [
            _heads(tensor, count, input_layout)
            for tensor, count in zip((query, key, value), (head_num, None, None), strict=True)
        ]
        if input_layout in ("BNSD", "BSND")
        else _flat_heads(query, key, value, head_num, input_layout)
    )
    q, k, v = heads
    groups = q.shape[1] // k.shape[1]
    if groups > 1:
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    scores = torch.matmul(q.float(), k.float().transpose(-1, -2))
    if pse is not None:  # added before the scale: torch_npu's pse_type 1 for this version of the operator
        scores = scores + pse.float()
    scores = scores * scale
    left_out = _left_out(scores, atten_mask, sparse_mode, pre_tockens, next_tockens)
    if left_out is not None:
        scores = scores.masked_fill(left_out, -1e30)
    out = torch.matmul(torch.softmax(scores, -1), v.float()).to(query.dtype)
    return (_joined(out, input_layout), *(query.new_empty(0) for _ in range(3)), 0, 0, 0)


def _heads(tensor: Any, count: int | None, layout: str) -> Any:
    return tensor if layout == "BNSD" else tensor.transpose(1, 2)


def _flat_heads(query: Any, key: Any, value: Any, count: int, layout: str) -> list[Any]:
    width = query.shape[-1] // count
    found = []
    for tensor in (query, key, value):
        rows = tensor if layout == "BSH" else tensor.transpose(0, 1)
        found.append(rows.reshape(rows.shape[0], rows.shape[1], -1, width).transpose(1, 2))
    return found


def _joined(out: Any, layout: str) -> Any:
    if layout == "BNSD":
        return out
    rows = out.transpose(1, 2)
    if layout == "BSND":
        return rows
    rows = rows.reshape(rows.shape[0], rows.shape[1], -1)
    return rows if layout == "BSH" else rows.transpose(0, 1)


def _left_out(scores: Any, mask: Any, mode: int, before: int, after: int) -> Any:
    """True where a query does not see a key; None for nowhere. The mask of modes 2 to 4 is but a large triangle."""
    queries, keys = scores.shape[-2], scores.shape[-1]
    rows, columns = torch.arange(queries).unsqueeze(1), torch.arange(keys).unsqueeze(0)
    if mode == 2:  # from the upper left corner
        return columns > rows
    if mode == 3:  # from the lower right one
        return columns > rows + (keys - queries)
    if mode == 4:
        return (columns > rows + (keys - queries) + after) | (columns < rows + (keys - queries) - before)
    left_out = None if mask is None else mask.bool()
    if mode == 0 and mask is not None and (before, after) != (FAR, FAR):
        band = (columns > rows + after) | (columns < rows - before)
        left_out = band if left_out is None else left_out | band
    return left_out
