"""npu_fusion_attention and its gradient: scaled dot-product attention, written out.

From torch_npu's documentation of the operator: `input_layout` orders batch (B), heads (N), sequence (S) and width (D),
H being N x D; keys and values may have fewer heads; scores are `scale` times the product, plus `pse`; a mask says what
is *not* seen, in full (sparse_mode 0 and 1) or as a triangle of 2048 x 2048 that is laid to the upper left (2) or the
lower right (3) of the scores. The row maximum and sum of the softmax are results, eight times each.
"""

from __future__ import annotations

from typing import Any

from torchport.compare.rebuilt import UnknownCallError

ORDERS = {"BNSD": (0, 1, 2, 3), "BSND": (0, 2, 1, 3)}
PLAIN, ALL, UPPER_LEFT, LOWER_RIGHT = range(4)
_NAMES = ("pse", "padding_mask", "atten_mask")


def npu_fusion_attention(
    torch: Any, query: Any, key: Any, value: Any, heads: int, layout: str, pse: Any = None, padding: Any = None,
    mask: Any = None, scale: float = 1.0, keep: float = 1.0, before: int = 2147483647, after: int = 2147483647,
    precise: int = 0, prefix: Any = None, q_lengths: Any = None, k_lengths: Any = None, sparse: int = 0, *more: Any,
) -> list[Any]:  # fmt: skip
    """Attention, and the maximum and sum of its softmax."""
    _known(keep, prefix, q_lengths, k_lengths, more[3] if len(more) > 3 else None, layout, sparse)
    parts = [_split(one, layout, heads) for one in (query, key, value)]
    out, highest, total = _attention(
        torch, parts, pse, _hidden(torch, mask, parts, sparse, before, after), scale
    )
    eight = [one.expand(*one.shape[:-1], 8) for one in (highest, total)]
    return [_joined(out, layout), *eight, None, None, None]


npu_fusion_attention_v2 = npu_fusion_attention_v3 = npu_fusion_attention


def npu_fusion_attention_grad_v3(
    torch: Any, query: Any, key: Any, value: Any, grad: Any, heads: int, layout: str, pse: Any = None,
    padding: Any = None, mask: Any = None, highest: Any = None, total: Any = None, softmax_in: Any = None,
    attention_in: Any = None, scale: float = 1.0, keep: float = 1.0, before: int = 2147483647,
    after: int = 2147483647, precise: int = 0, seed: Any = None, offset: Any = None, prefix: Any = None,
    q_lengths: Any = None, k_lengths: Any = None, sparse: int = 0, *more: Any,
) -> list[Any]:  # fmt: skip
    """Gradients by query, key and value; with `pse` that is not judged."""
    _known(keep, prefix, q_lengths, k_lengths, more[3] if len(more) > 3 else None, layout, sparse)
    with torch.enable_grad():
        leaves = [one.detach().requires_grad_() for one in (query, key, value)]
        parts = [_split(one, layout, heads) for one in leaves]
        hidden = _hidden(torch, mask, parts, sparse, before, after)
        out = _joined(_attention(torch, parts, pse, hidden, scale)[0], layout)
        return [*torch.autograd.grad(out, leaves, grad), None, None]


def npu_fusion_attention_grad(torch: Any, *given: Any) -> list[Any]:
    """As `npu_fusion_attention_grad_v3`, which has no `numels` before `prefix`."""
    return npu_fusion_attention_grad_v3(torch, *given[:20], *given[21:])


npu_fusion_attention_grad_v2 = npu_fusion_attention_grad_v3


def _known(
    keep: float, prefix: Any, q_lengths: Any, k_lengths: Any, sink: Any, layout: str, sparse: int
) -> None:
    if keep != 1:
        raise UnknownCallError("its dropout draws on the device")
    if prefix or q_lengths is not None or k_lengths is not None or sink is not None:
        raise UnknownCallError("there is no reference for sequences of several lengths, prefixes and sinks")
    if layout not in (*ORDERS, "BSH", "SBH") or sparse > LOWER_RIGHT:
        raise UnknownCallError(f"there is no reference for the layout {layout} with sparse_mode {sparse}")


def _split(one: Any, layout: str, heads: int) -> Any:
    """(batch, heads, sequence, width)."""
    if layout in ORDERS:
        return one.permute(ORDERS[layout])
    if layout == "SBH":
        one = one.transpose(0, 1)
    return one.unflatten(-1, (heads, -1)).transpose(1, 2)


def _joined(out: Any, layout: str) -> Any:
    if layout in ORDERS:
        return out.permute(ORDERS[layout])
    out = out.transpose(1, 2).flatten(2)
    return out.transpose(0, 1) if layout == "SBH" else out


def _hidden(torch: Any, mask: Any, parts: Any, sparse: int, before: int, after: int) -> Any:
    """What is not seen, of (query, key); None where all is."""
    q, k = parts[0].shape[2], parts[1].shape[2]
    away = torch.arange(k)[None, :] - torch.arange(q)[:, None]
    if sparse == PLAIN:
        band = (away > after) | (away < -before)
        return band if mask is None else mask.to(torch.bool) | band
    if mask is None or sparse == ALL:
        return None if mask is None else mask.to(torch.bool)
    return away > (0 if sparse == UPPER_LEFT else k - q)


def _attention(torch: Any, parts: Any, pse: Any, hidden: Any, scale: float) -> Any:
    query, key, value = parts
    group = query.shape[1] // key.shape[1]
    key, value = (one.repeat_interleave(group, 1) for one in (key, value))
    scores = query @ key.transpose(-1, -2) * scale
    if pse is not None:
        scores = scores + pse
    if hidden is not None:
        scores = scores.masked_fill(hidden, -torch.inf)
    highest = scores.amax(-1, keepdim=True)
    raised = (scores - highest).exp()
    total = raised.sum(-1, keepdim=True)
    return raised / total @ value, highest, total
