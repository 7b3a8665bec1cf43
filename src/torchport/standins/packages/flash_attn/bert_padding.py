"""flash_attn.bert_padding: between padded batches and packed sequences."""

from __future__ import annotations

import torch
from torch import Tensor


def index_first_axis(input: Tensor, indices: Tensor) -> Tensor:
    """The rows `indices` of `input`."""
    return input[indices]


def index_put_first_axis(values: Tensor, indices: Tensor, first_axis_dim: int) -> Tensor:
    """Zeros with `first_axis_dim` rows, of which `indices` are `values`."""
    output = torch.zeros(first_axis_dim, *values.shape[1:], dtype=values.dtype, device=values.device)
    return output.index_copy(0, indices, values)


def unpad_input(hidden_states: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor, Tensor, int]:
    """Drop the padding of (batch, sequence, ...), where `attention_mask` (batch, sequence) is 0.

    Returns the tokens that are left (tokens, ...), their places in the flattened batch (int64), the borders of the
    sequences (batch + 1, int32) and the longest sequence's length.
    """
    lengths = attention_mask.sum(dim=-1, dtype=torch.int32)
    indices = attention_mask.flatten().nonzero().flatten()
    borders = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    return hidden_states.flatten(0, 1)[indices], indices, borders, int(lengths.max().item())


def pad_input(hidden_states: Tensor, indices: Tensor, batch: int, seqlen: int) -> Tensor:
    """The inverse of `unpad_input`: (batch, seqlen, ...) with zeros where nothing was left."""
    return index_put_first_axis(hidden_states, indices, batch * seqlen).unflatten(0, (batch, seqlen))
