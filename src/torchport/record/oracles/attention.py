"""npu_fusion_attention and its gradient: scaled dot-product attention, written out.

From torch_npu's documentation of the operator: `input_layout` orders batch (B), heads (N), sequence (S) and width (D),
H being N x D; in TND all sequences lie one behind the other, and lengths are given as their ends. Keys and values may
have fewer heads. `pse` is added to the product before it is scaled (pse_type 1), or after (0). A mask says what is
*not* seen: `masks` has the modes. A sink is one more score of each head, whose value is nothing. Row maximum and sum
of the softmax are results, eight times each. What is dropped is known where the mask of the dropout is given,
and where the recorded result is plainly that of the virtual NPU's mask (`philox`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torchport.record.operators.rebuilt import UnknownCallError
from torchport.record.oracles import philox
from torchport.record.oracles.masks import find_hidden_keys

ORDERS = {"BNSD": (0, 1, 2, 3), "BSND": (0, 2, 1, 3)}
PACKED = "TND"
FAR = 2147483647
DRAWN = 4, 5  # among the results: seed and offset of what is dropped
# Relative to the norm: a result that is further from that of a mask is of another mask.
OTHER = 0.1
ELSEWHERE = "its dropout draws on the device"
FORWARD = (
    "query",
    "key",
    "value",
    "heads",
    "layout",
    "pse",
    "padding",
    "mask",
    "scale",
    "keep",
    "before",
    "after",
    "precise",
    "prefix",
    "q_ends",
    "k_ends",
    "sparse",
    "parallel",
    "sync",
    "softmax_layout",
    "sink",
    "dropped",
)
FORWARD_V2 = (*FORWARD[:8], "query_rope", "key_rope", *FORWARD[8:19], "pse_type", "q_start", "k_start", *FORWARD[19:])
_STATISTICS = ("softmax_max", "softmax_sum", "softmax_in", "attention_in")
BACKWARD_V3 = (*FORWARD[:3], "grad", *FORWARD[3:8], *_STATISTICS, *FORWARD[8:13], "seed", "offset", *FORWARD[13:21])
BACKWARD = (*BACKWARD_V3[:20], "numels", *BACKWARD_V3[20:])
BACKWARD_V2 = (
    *BACKWARD[:13],
    "query_rope",
    "key_rope",
    *BACKWARD[13:27],
    "pse_type",
    "q_start",
    "k_start",
    *BACKWARD[27:],
)


@dataclasses.dataclass(frozen=True, slots=True)
class Given:
    """The arguments of a call by name, where it has them."""

    query: Any
    key: Any
    value: Any
    heads: int
    layout: str
    grad: Any = None
    pse: Any = None
    mask: Any = None
    scale: float = 1.0
    keep: float = 1.0
    before: int = FAR
    after: int = FAR
    precise: int = 0
    prefix: Any = None
    q_ends: Any = None
    k_ends: Any = None
    sparse: int = 0
    pse_type: int = 1
    sink: Any = None
    dropped: Any = None
    seed: Any = 0
    offset: Any = 0

    @classmethod
    def from_arguments(cls, names: Sequence[str], values: Sequence[Any]) -> Given:
        """Raises UnknownCallError for what there is no reference for."""
        given = dict(zip(names, values, strict=False))
        if any(given.get(name) is not None for name in ("query_rope", "key_rope", "q_start", "k_start")):
            raise UnknownCallError("there is no reference for rotary parts and places that lie elsewhere")
        known = {field.name for field in dataclasses.fields(cls)}
        made = cls(**{name: value for name, value in given.items() if name in known})
        if made.layout not in (*ORDERS, "BSH", "SBH", PACKED):
            raise UnknownCallError(f"there is no reference for the layout {made.layout}")
        if made.pse_type not in (0, 1) or (made.pse is not None and made.layout == PACKED):
            raise UnknownCallError("there is no reference for positions that the operator makes or packs")
        return made

    @property
    def draws(self) -> bool:
        """Whether it drops what nobody has recorded."""
        return self.keep != 1 and self.dropped is None

    def with_drawn_mask(self, torch: Any, seed: Any, offset: Any) -> Given:
        """With the mask that the virtual NPU draws; as it is where it drops nothing, or in a pack."""
        if not self.draws or self.layout == PACKED:
            return self
        parts = _parts(self, self.query, self.key, self.value)
        count = parts[0].shape[:3].numel() * parts[1].shape[2]
        kept = torch.from_numpy(philox.draw_keep_mask(count, self.keep, int(seed), int(offset)))
        return dataclasses.replace(self, dropped=kept)

    def iterate_sequences(self, torch: Any) -> Iterator[tuple[list[slice], int | None]]:
        """Where each sequence lies in queries and keys; all of them at once where they are not packed (None)."""
        if self.layout != PACKED:
            yield [slice(None), slice(None)], None
            return
        starts = [0, 0]
        for number, ends in enumerate(zip(*(_numbers(one) for one in (self.q_ends, self.k_ends)), strict=True)):
            yield [slice(start, end) for start, end in zip(starts, ends, strict=True)], number
            starts = list(ends)


def _forward(name: str, names: Sequence[str]) -> Callable[..., list[Any]]:
    def reference(torch: Any, *values: Any, made: Any = None, results: Any = ()) -> list[Any]:
        asked = Given.from_arguments(names, values)
        given = asked.with_drawn_mask(torch, *_seeds(made, results)) if made is not None else asked
        out, highest, total = _whole(torch, given, given.query, given.key, given.value, given.sink)
        # With a sink, or packed, documentation does not say how they lie.
        plain = given.layout != PACKED and given.sink is None
        eight = [one.expand(*one.shape[:-1], 8) if plain else None for one in (highest, total)]
        unknown = given.draws or (asked.draws and not _of_mask(out, made[0]))
        return [None if unknown else out, *eight, None, None, None]

    reference.__name__ = name
    return reference


def _backward(name: str, names: Sequence[str], *, ropes: bool = False) -> Callable[..., list[Any]]:
    def reference(torch: Any, *values: Any, made: Any = None) -> list[Any]:
        asked = Given.from_arguments(names, values)
        given = asked.with_drawn_mask(torch, asked.seed, asked.offset) if made is not None else asked
        if given.draws:
            raise UnknownCallError(ELSEWHERE)
        with torch.enable_grad():
            leaves = [one.detach().requires_grad_() for one in (given.query, given.key, given.value)]
            pse, sink = (None if one is None else one.detach().requires_grad_() for one in (given.pse, given.sink))
            query, key, value = leaves
            out = _whole(torch, dataclasses.replace(given, pse=pse), query, key, value, sink)[0]
            wanted = [*leaves, *(one for one in (pse, sink) if one is not None)]
            found = iter(torch.autograd.grad(out, wanted, given.grad))
        by = [next(found) for _ in leaves]
        if asked.draws and not all(_of_mask(*both) for both in zip(by, made, strict=False)):
            raise UnknownCallError(ELSEWHERE)
        by_pse, by_sink = (None if one is None else next(found) for one in (pse, sink))
        return [*by, by_pse, *([None, None] if ropes else []), by_sink]

    reference.__name__ = name
    return reference


npu_fusion_attention = _forward("npu_fusion_attention", FORWARD)
npu_fusion_attention_v2 = _forward("npu_fusion_attention_v2", FORWARD_V2)
npu_fusion_attention_v3 = npu_fusion_attention
npu_fusion_attention_grad = _backward("npu_fusion_attention_grad", BACKWARD)
npu_fusion_attention_grad_v2 = _backward("npu_fusion_attention_grad_v2", BACKWARD_V2, ropes=True)
npu_fusion_attention_grad_v3 = _backward("npu_fusion_attention_grad_v3", BACKWARD_V3)


def _seeds(made: Any, results: Any) -> list[int]:
    """Of what is dropped, in tensors or among the results; nothing is drawn without."""
    found = []
    for place in DRAWN:
        tensor = made[place] if len(made) > place else None
        plain = results[place] if len(results) > place and isinstance(results[place], int) else 0
        found.append(plain if tensor is None or not tensor.numel() else int(tensor.reshape(-1)[0]))
    return found


def _of_mask(right: Any, made: Any) -> bool:
    """Whether a recorded result is one of the mask with which the other was computed."""
    if made is None or made.shape != right.shape:
        return False
    off = (made.to(right.dtype) - right).norm()
    return bool(off <= OTHER * right.norm())


def _numbers(ends: Any) -> list[int]:
    if ends is None:
        raise UnknownCallError("packed sequences without their ends")
    return [int(end) for end in (ends.tolist() if hasattr(ends, "tolist") else ends)]


def _whole(torch: Any, given: Given, query: Any, key: Any, value: Any, sink: Any) -> tuple[Any, Any, Any]:
    """Output, row maxima and sums."""
    outs = []
    highest = total = None
    for (of_queries, of_keys), number in given.iterate_sequences(torch):
        if number is None:
            parts = _parts(given, query, key, value)
        else:
            parts = [
                one[where].transpose(0, 1).unsqueeze(0)
                for one, where in ((query, of_queries), (key, of_keys), (value, of_keys))
            ]
        out, highest, total = _attention(torch, parts, given, sink, number)
        outs.append(_joined(out, given.layout))
    return torch.cat(outs), highest, total


def _parts(given: Given, query: Any, key: Any, value: Any) -> list[Any]:
    """Heads first; not of a pack."""
    heads = _key_heads(given)
    of_each = (query, given.heads), (key, heads), (value, heads)
    return [_split(one, given.layout, count) for one, count in of_each]


def _split(one: Any, layout: str, heads: int) -> Any:
    """(batch, heads, sequence, width)."""
    if layout in ORDERS:
        return one.permute(ORDERS[layout])
    if layout == "SBH":
        one = one.transpose(0, 1)
    return one.unflatten(-1, (heads, -1)).transpose(1, 2)


def _key_heads(given: Given) -> int:
    """Of BSH and SBH: a key's head is as wide as a query's."""
    return int(given.key.shape[-1] * given.heads // given.query.shape[-1])


def _joined(out: Any, layout: str) -> Any:
    if layout in ORDERS:
        return out.permute(ORDERS[layout])
    if layout == PACKED:
        return out.squeeze(0).transpose(0, 1)
    out = out.transpose(1, 2).flatten(2)
    return out.transpose(0, 1) if layout == "SBH" else out


def _attention(torch: Any, parts: Any, given: Given, sink: Any, sequence: int | None) -> tuple[Any, Any, Any]:
    query, key, value = parts
    group = query.shape[1] // key.shape[1]
    key, value = (one.repeat_interleave(group, 1) for one in (key, value))
    scores = query @ key.transpose(-1, -2)
    if given.pse is not None and given.pse_type == 1:
        scores = scores + given.pse
    scores = scores * given.scale
    if given.pse is not None and given.pse_type == 0:
        scores = scores + given.pse
    unseen = find_hidden_keys(torch, given, query.shape[2], key.shape[2], sequence)
    if unseen is not None:
        scores = scores.masked_fill(unseen, -torch.inf)
    highest = scores.amax(-1, keepdim=True)
    raised = (scores - highest).exp()
    total = raised.sum(-1, keepdim=True)
    if sink is not None:
        total = total + (sink.view(-1, 1, 1).to(scores.dtype) - highest).exp()
    weights = raised / total
    if given.dropped is not None and given.keep != 1:
        weights = weights * _kept(torch, given.dropped, weights) / given.keep
    return weights @ value, highest, total


def _kept(torch: Any, bits: Any, weights: Any) -> Any:
    """Of a mask with a bit for each score, the lowest first, or a number."""
    if bits.dtype != torch.uint8 or bits.numel() >= weights.numel():
        return bits.flatten()[: weights.numel()].view(weights.shape).to(weights.dtype)
    flat = (bits.reshape(-1, 1) >> torch.arange(8, dtype=torch.uint8) & 1).flatten()
    return flat[: weights.numel()].view(weights.shape).to(weights.dtype)
