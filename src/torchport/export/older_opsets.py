"""Functions that the TorchScript exporter lacks in older opsets, or gets wrong, in operators that opset 11 has."""

from __future__ import annotations

import contextlib
import functools
import math
import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn import functional


def plain_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """scaled_dot_product_attention in operators that opset 11 has. A query that the mask leaves no key has zeros."""
    if enable_gqa:
        key, value = _each_head(query, key), _each_head(query, value)
    # Before the product, which in half precision may overflow without it.
    scaled = query * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    scores = torch.matmul(scaled, key.transpose(-2, -1))
    if is_causal:
        rows, columns = torch.arange(query.shape[-2]).unsqueeze(1), torch.arange(key.shape[-2]).unsqueeze(0)
        scores = scores.masked_fill(columns > rows, float("-inf"))
    if attn_mask is None:
        return torch.matmul(torch.softmax(scores, -1), value)
    if attn_mask.dtype == torch.bool:
        away = attn_mask.logical_not()
        scores = scores.masked_fill(away, float("-inf"))
    else:
        scores = scores + attn_mask
        away = scores == float("-inf")
    return torch.matmul(torch.softmax(scores, -1).masked_fill(away, 0.0), value)


def _each_head(query: Any, one: Any) -> Any:
    """Keys or values with a head for each of the query's: (batch, heads, length, width) with fewer heads."""
    groups, heads = int(query.shape[-3]) // int(one.shape[-3]), int(one.shape[-3])
    # As transformers does it, and not repeat_interleave, which is a loop over the heads in ONNX.
    wide = one.unsqueeze(-3).expand(*one.shape[:-2], groups, *one.shape[-2:])
    return wide.reshape(*one.shape[:-3], heads * groups, *one.shape[-2:])


def plain_diff(input: Any, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None) -> Any:
    """diff as a difference of two slices, n times."""
    parts = [part for part in (prepend, input, append) if part is not None]
    made = torch.cat(parts, dim) if len(parts) > 1 else input
    for _ in range(n):
        length = made.shape[dim]
        made, before = made.narrow(dim, 1, length - 1), made.narrow(dim, 0, length - 1)
        made = made.logical_xor(before) if made.dtype == torch.bool else made - before
    return made


CUMSUM = torch.cumsum


def plain_cumsum(input: Any, *given: Any, **options: Any) -> Any:
    """cumsum of truth values as one of numbers, for the exporter hands them to CumSum as they are (torch 2.13)."""
    return CUMSUM(input.long() if input.dtype == torch.bool else input, *given, **options)


def _choose(known: Any, is_chosen: Any) -> Any:
    """min or max of two tensors of integers as a choice: ONNX has Min and Max for them from opset 12 on."""

    @functools.wraps(known)
    def choose(input: Any, *given: Any, **options: Any) -> Any:
        other = given[0] if given else options.get("other")
        if isinstance(other, torch.Tensor) and not input.is_floating_point() and not other.is_floating_point():
            return torch.where(is_chosen(other, input), other, input)
        return known(input, *given, **options)  # all others stay torch's own

    return choose


plain_min, plain_max = _choose(torch.min, operator.lt), _choose(torch.max, operator.gt)


def plain_unflatten(self: Any, dim: int, sizes: Any) -> Any:
    """unflatten as a reshape."""
    before = dim % self.dim()
    return self.reshape(*self.shape[:before], *sizes, *self.shape[before + 1 :])


def _triangle(self: Any, diagonal: int, upper: bool) -> Any:
    """triu or tril as a choice by place."""
    rows = torch.arange(self.shape[-2], device=self.device).unsqueeze(1)
    columns = torch.arange(self.shape[-1], device=self.device).unsqueeze(0)
    kept = columns >= rows + diagonal if upper else columns <= rows + diagonal
    return torch.where(kept, self, torch.zeros((), dtype=self.dtype))


def plain_triu(input: Any, diagonal: int = 0) -> Any:
    """The upper triangle."""
    return _triangle(input, diagonal, True)


def plain_tril(input: Any, diagonal: int = 0) -> Any:
    """The lower triangle."""
    return _triangle(input, diagonal, False)


def plain_outer(input: Any, vec2: Any) -> Any:
    """outer as a product that is broadcast."""
    return input.unsqueeze(-1) * vec2


def plain_tile(input: Any, *dims: Any) -> Any:
    """tile as repeat, which wants a number for each axis."""
    given = tuple(dims[0]) if len(dims) == 1 and not isinstance(dims[0], int) else dims
    return input.repeat(*(1,) * (input.dim() - len(given)), *given)


EINSUM = torch.einsum


def plain_einsum(equation: str, *operands: Any) -> Any:
    """einsum of two operands as a product of matrices; others, and indices that come twice, stay torch's own."""
    given, arrow, result = equation.replace(" ", "").partition("->")
    words = given.split(",")
    usual = all(len(set(word)) == len(word) and word.isalpha() for word in words)
    if not arrow or len(words) != 2 or len(operands) != 2 or not usual or not set(result) <= set(given):
        return EINSUM(equation, *operands)
    one, two = words
    shared = [index for index in one if index in two]
    batch = [index for index in shared if index in result]
    summed = [index for index in shared if index not in result]
    left, right = ([index for index in word if index not in shared] for word in words)
    if any(index not in result for index in (*left, *right)):
        return EINSUM(equation, *operands)
    sizes = dict(zip(one, operands[0].shape, strict=True)) | dict(zip(two, operands[1].shape, strict=True))

    def matrix(operand: Any, word: str, *groups: list[str]) -> Any:
        order = operand.permute(*(word.index(index) for group in groups for index in group))
        return order.reshape(*(math.prod(sizes[index] for index in group) for group in groups))

    product = torch.matmul(
        matrix(operands[0], one, batch, left, summed), matrix(operands[1], two, batch, summed, right)
    )
    order = [*batch, *left, *right]
    return product.reshape(*(sizes[index] for index in order)).permute(*(order.index(index) for index in result))


# Of torch 2.13's exporter in all opsets: unflatten makes constants of sizes that are dynamic, attention gives nan where
# a mask of floats leaves no key and refuses enable_gqa, diff is not there, cumsum takes truth values as they are.
# Where each is found, its name, the opset from which on the exporter has its own form, and ours.
FORMS: tuple[tuple[Any, str, int, Any], ...] = (
    (functional, "scaled_dot_product_attention", 99, plain_attention),
    (torch, "diff", 99, plain_diff),
    (torch.Tensor, "diff", 99, plain_diff),
    (torch, "cumsum", 99, plain_cumsum),
    (torch.Tensor, "cumsum", 99, plain_cumsum),
    (torch, "min", 12, plain_min),
    (torch.Tensor, "min", 12, plain_min),
    (torch, "max", 12, plain_max),
    (torch.Tensor, "max", 12, plain_max),
    (torch, "minimum", 12, plain_min),
    (torch.Tensor, "minimum", 12, plain_min),
    (torch, "maximum", 12, plain_max),
    (torch.Tensor, "maximum", 12, plain_max),
    (torch.Tensor, "unflatten", 99, plain_unflatten),
    (torch, "einsum", 12, plain_einsum),
    (torch, "outer", 12, plain_outer),
    (torch, "tile", 13, plain_tile),
    (torch.Tensor, "tile", 13, plain_tile),
    (torch, "triu", 14, plain_triu),
    (torch, "tril", 14, plain_tril),
    (torch.Tensor, "triu", 14, plain_triu),
    (torch.Tensor, "tril", 14, plain_tril),
)


@contextlib.contextmanager
def plain_for(opset: int) -> Iterator[None]:
    """Let those that `opset` lacks be the plain ones for the length of the block."""
    known = [(owner, name, getattr(owner, name)) for owner, name, first, _ in FORMS if opset < first]
    try:
        for owner, name, first, form in FORMS:
            if opset < first:
                setattr(owner, name, form)
        yield
    finally:
        for owner, name, form in known:
            setattr(owner, name, form)
