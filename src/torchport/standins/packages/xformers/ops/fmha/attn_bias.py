"""The masks of xformers: which keys a query sees, as objects."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from torchport.standins.attention import Band


class AttentionBias:
    """Anything but a tensor that `attn_bias=` takes."""

    def materialize(
        self, shape: tuple[int, ...], dtype: torch.dtype = torch.float32, device: str | torch.device = "cpu"
    ) -> Tensor:
        """The mask as a tensor of `shape` (..., queries, keys): 0, and -inf for what is not seen."""
        raise NotImplementedError(f"{type(self).__name__}.materialize")


class Shifted(AttentionBias):
    """A mask that is the same along each diagonal."""

    band: Band

    def materialize(
        self, shape: tuple[int, ...], dtype: torch.dtype = torch.float32, device: str | torch.device = "cpu"
    ) -> Tensor:
        left_out = self.band.left_out(shape[-2], shape[-1], torch.device(device))
        mask = torch.zeros(left_out.shape, dtype=dtype, device=device).masked_fill(left_out, -math.inf)
        return mask.expand(shape)


class LowerTriangularMask(Shifted):
    """Causal, aligned to the upper left corner."""

    band = Band(None, 0, from_bottom_right=False)

    def __init__(self, *tensor_args: Any, **tensor_kwargs: Any) -> None:
        """Arguments, from the time when this was a tensor, are ignored."""

    def add_bias(self, bias: Tensor) -> LowerTriangularMaskWithTensorBias:
        """This mask, and a tensor that is added to the scores."""
        return LowerTriangularMaskWithTensorBias(bias)


class LowerTriangularMaskWithTensorBias(LowerTriangularMask):
    """A causal mask and a tensor that is added to the scores."""

    def __init__(self, bias: Tensor) -> None:
        self.bias = bias

    def materialize(
        self, shape: tuple[int, ...], dtype: torch.dtype = torch.float32, device: str | torch.device = "cpu"
    ) -> Tensor:
        return super().materialize(shape, dtype, device) + self.bias.to(device=device, dtype=dtype)


class LowerTriangularFromBottomRightMask(Shifted):
    """Causal, aligned to the lower right corner."""

    band = Band(None, 0)

    def make_local_attention(self, window_size: int) -> LowerTriangularFromBottomRightLocalAttentionMask:
        """The same, of the last `window_size` keys."""
        return LowerTriangularFromBottomRightLocalAttentionMask(window_size)


class LowerTriangularFromBottomRightLocalAttentionMask(Shifted):
    """Causal, of the last `window_size` keys, aligned to the lower right corner."""

    def __init__(self, _window_size: int) -> None:
        self.band = Band(_positive(_window_size) - 1, 0)


class LocalAttentionFromBottomRightMask(Shifted):
    """Keys from `window_left` before the query to `window_right` behind it, aligned to the lower right corner."""

    def __init__(self, window_left: int, window_right: int) -> None:
        if window_left < 0 or window_right < 0:
            raise ValueError(f"windows must not be negative: {window_left}, {window_right}")
        self.band = Band(window_left, window_right)


@dataclasses.dataclass
class _SeqLenInfo:
    """The borders of packed sequences, as a tensor (int32) and as a list, beginning with 0."""

    seqstart: Tensor
    max_seqlen: int
    min_seqlen: int
    seqstart_py: list[int]

    @classmethod
    def from_seqlens(cls, seqlens: Iterable[int]) -> _SeqLenInfo:
        lengths = [int(length) for length in seqlens]
        borders = list(itertools.accumulate(lengths, initial=0))
        return cls(torch.tensor(borders, dtype=torch.int32), max(lengths), min(lengths), borders)

    def intervals(self) -> Iterable[tuple[int, int]]:
        return itertools.pairwise(self.seqstart_py)


@dataclasses.dataclass
class BlockDiagonalMask(AttentionBias):
    """Sequences packed behind one another in a batch of one: a query sees its own sequence."""

    q_seqinfo: _SeqLenInfo
    k_seqinfo: _SeqLenInfo
    _batch_sizes: Sequence[int] | None = None

    band: ClassVar[Band | None] = None

    @classmethod
    def from_seqlens(cls, q_seqlen: Sequence[int], kv_seqlen: Sequence[int] | None = None) -> BlockDiagonalMask:
        """From the lengths of the sequences; keys have the queries' if not given."""
        queries = _SeqLenInfo.from_seqlens(q_seqlen)
        if kv_seqlen is None or list(kv_seqlen) == list(q_seqlen):
            return cls(queries, queries)
        if len(kv_seqlen) != len(q_seqlen):
            raise ValueError(f"{len(q_seqlen)} sequences of queries, {len(kv_seqlen)} of keys")
        return cls(queries, _SeqLenInfo.from_seqlens(kv_seqlen))

    @classmethod
    def from_tensor_list(cls, tensors: Sequence[Tensor]) -> tuple[BlockDiagonalMask, Tensor]:
        """Pack (batch, sequence, ...) tensors: their mask and one tensor (1, tokens, ...)."""
        mask = cls.from_seqlens([tensor.shape[1] for tensor in tensors for _ in range(tensor.shape[0])])
        mask._batch_sizes = [tensor.shape[0] for tensor in tensors]
        return mask, torch.cat([tensor.flatten(0, 1) for tensor in tensors])[None]

    def split(self, tensor: Tensor) -> list[Tensor]:
        """The inverse of `from_tensor_list`."""
        lengths = [end - begin for begin, end in self.q_seqinfo.intervals()]
        pieces, first = [], 0
        for batch in self._batch_sizes or [1] * len(lengths):
            begin, end = self.q_seqinfo.seqstart_py[first], self.q_seqinfo.seqstart_py[first + batch]
            pieces.append(tensor[0, begin:end].unflatten(0, (batch, lengths[first])))
            first += batch
        return pieces

    def materialize(
        self, shape: tuple[int, ...], dtype: torch.dtype = torch.float32, device: str | torch.device = "cpu"
    ) -> Tensor:
        mask = torch.full(shape[-2:], -math.inf, dtype=dtype, device=device)
        for (q0, q1), (k0, k1) in zip(self.q_seqinfo.intervals(), self.k_seqinfo.intervals(), strict=True):
            block = torch.zeros(q1 - q0, k1 - k0, dtype=dtype, device=device)
            if self.band is not None:
                block.masked_fill_(self.band.left_out(q1 - q0, k1 - k0, block.device), -math.inf)
            mask[q0:q1, k0:k1] = block
        return mask.expand(shape)

    def make_causal(self) -> BlockDiagonalCausalMask:
        """The same sequences, causal from each one's upper left corner."""
        return BlockDiagonalCausalMask(self.q_seqinfo, self.k_seqinfo, self._batch_sizes)

    def make_causal_from_bottomright(self) -> BlockDiagonalCausalFromBottomRightMask:
        """The same sequences, causal from each one's lower right corner."""
        return BlockDiagonalCausalFromBottomRightMask(self.q_seqinfo, self.k_seqinfo, self._batch_sizes)

    def make_local_attention(self, window_size: int) -> BlockDiagonalCausalLocalAttentionMask:
        """The same sequences, causal, of the last `window_size` keys."""
        return BlockDiagonalCausalLocalAttentionMask(
            self.q_seqinfo, self.k_seqinfo, self._batch_sizes, _window_size=window_size
        )

    def make_local_attention_from_bottomright(
        self, window_size: int
    ) -> BlockDiagonalCausalLocalAttentionFromBottomRightMask:
        """The same, aligned to each sequence's lower right corner."""
        return BlockDiagonalCausalLocalAttentionFromBottomRightMask(
            self.q_seqinfo, self.k_seqinfo, self._batch_sizes, _window_size=window_size
        )


@dataclasses.dataclass
class BlockDiagonalCausalMask(BlockDiagonalMask):
    """Causal within each sequence, aligned to its upper left corner."""

    band = Band(None, 0, from_bottom_right=False)


@dataclasses.dataclass
class BlockDiagonalCausalFromBottomRightMask(BlockDiagonalMask):
    """Causal within each sequence, aligned to its lower right corner."""

    band = Band(None, 0)


@dataclasses.dataclass
class BlockDiagonalCausalLocalAttentionMask(BlockDiagonalCausalMask):
    """Causal within each sequence, of the last `_window_size` keys."""

    _window_size: int = 0

    def __post_init__(self) -> None:
        self.band = Band(_positive(self._window_size) - 1, 0, from_bottom_right=False)  # type: ignore[misc]


@dataclasses.dataclass
class BlockDiagonalCausalLocalAttentionFromBottomRightMask(BlockDiagonalCausalFromBottomRightMask):
    """Causal within each sequence, of the last `_window_size` keys, aligned to its lower right corner."""

    _window_size: int = 0

    def __post_init__(self) -> None:
        self.band = Band(_positive(self._window_size) - 1, 0)  # type: ignore[misc]


def _positive(window_size: int) -> int:
    if window_size <= 0:
        raise ValueError(f"window size must be greater than 0, it is {window_size}")
    return window_size
