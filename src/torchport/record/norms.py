"""Norms and samples of many tensors, computed where they are and read by nobody yet."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

# Elements that are summed one after the other: a sum of squares of millions in float32 would lose four digits.
ROW = 4096
LONG = 1 << 16


class Norms:
    """The Euclidean norms of `tensors`, some of which may be None; queued on their devices at once.

    `vectors` are to be read; `assemble_norms(values)` makes one number for each tensor of what was read: None for a
    tensor that is None or has no such norm (sparse, quantized, complex, without data). Half precision is accumulated in
    float32.
    """

    def __init__(self, torch: Any, tensors: Sequence[Any]) -> None:
        self._count = len(tensors)
        self._owners: list[list[int]] = []
        self.vectors: list[Any] = []
        groups: dict[Any, tuple[list[int], list[Any]]] = {}
        for index, tensor in enumerate(tensors):
            for piece in _pieces(torch, to_local_tensor(torch, tensor)):
                owners, pieces = groups.setdefault((piece.device, piece.dtype), ([], []))
                owners.append(index)
                pieces.append(piece)
        for (_, dtype), (owners, pieces) in groups.items():
            self._owners.append(owners)
            self.vectors.append(torch.stack(list(_foreach(torch, pieces, dtype))))

    def assemble_norms(self, values: Iterable[Sequence[float]]) -> list[float | None]:
        """The norms, from the values of `vectors`."""
        squares: list[float | None] = [None] * self._count
        for owners, read in zip(self._owners, values, strict=True):
            for owner, value in zip(owners, read, strict=True):
                squares[owner] = (squares[owner] or 0.0) + value * value
        return [None if square is None else math.sqrt(square) for square in squares]


class Samples:
    """At most `most` elements of each of `tensors`, copied: a row for each tensor, filled up with zeros, for which
    the rows of `before` are asked."""

    def __init__(self, torch: Any, tensors: Sequence[Any], most: int, before: Samples | None = None) -> None:
        self._torch = torch
        self._count = len(tensors)
        # By device and dtype: the places of the tensors, what their rows are filled up with, and the rows.
        self._groups: dict[Any, tuple[list[int], list[Any], Any]] = {}
        found: dict[Any, tuple[list[int], list[Any]]] = {}
        for index, tensor in enumerate(tensors):
            tensor = to_local_tensor(torch, tensor)
            if tensor is not None:
                indexes, pieces = found.setdefault((tensor.device, tensor.dtype), ([], []))
                indexes.append(index)
                pieces.append(sample_elements(torch, tensor, most))
        for key, (indexes, pieces) in found.items():
            sizes = [piece.numel() for piece in pieces]
            width = max(sizes)
            known = before._groups.get(key) if before is not None else None
            if known is not None and [width - one.numel() for one in known[1]] == sizes:
                filling = known[1]
            else:
                zeros = torch.zeros(width, dtype=key[1], device=key[0])
                filling = [zeros[size:] for size in sizes]
            filled = [part for pair in zip(pieces, filling, strict=True) for part in pair]
            rows = torch.cat(filled).view(len(pieces), width)
            self._groups[key] = indexes, filling, rows.float() if key[1].itemsize == 2 else rows

    def measure(self, before: Samples | None) -> SampleNorms:
        """The norm of each sample, and of its difference to that of `before`, by one operator for all."""
        groups = []
        for key, (indexes, _, rows) in self._groups.items():
            known = before._groups.get(key) if before is not None else None
            if known is not None and known[0] == indexes and known[2].shape == rows.shape:
                rows = self._torch.cat([rows, rows - known[2]])
            groups.append((indexes, self._torch.linalg.vector_norm(_narrow(rows), dim=1)))
        return SampleNorms(self._count, groups)


class SampleNorms:
    """The norms of samples and of their changes; `vectors` are to be read."""

    def __init__(self, count: int, groups: Sequence[tuple[list[int], Any]]) -> None:
        self._count = count
        self._owners = [indexes for indexes, _ in groups]
        self.vectors = [norms for _, norms in groups]

    def assemble_norms(self, values: Iterable[Sequence[float]]) -> tuple[list[float | None], list[float | None]]:
        """The norms and the changes, one for each tensor; None where there was no sample, or none before."""
        norms: list[float | None] = [None] * self._count
        changes: list[float | None] = [None] * self._count
        for owners, read in zip(self._owners, values, strict=True):
            for owner, value in zip(owners, read, strict=False):
                norms[owner] = value
            for owner, value in zip(owners, read[len(owners) :], strict=False):
                changes[owner] = value
        return norms, changes


def sample_elements(torch: Any, tensor: Any, most: int) -> Any:
    """At most `most` elements of a strided tensor: every n-th in the order of its indices, n a prime that divides none
    of its sizes, so that each row and channel has its turn. The whole is never copied; a view where it is contiguous.
    """
    numel = tensor.numel()
    step = 1 if numel <= most else _prime(-(-numel // most), tuple(tensor.shape))
    count = -(-numel // step)
    if tensor.is_contiguous():
        return tensor.as_strided((count,), (step,), tensor.storage_offset())
    places = torch.arange(0, numel, step, device=tensor.device)
    indices = []
    for size in reversed(tensor.shape):
        indices.append(places % size)
        places = places // size
    return tensor[tuple(reversed(indices))]


def to_local_tensor(torch: Any, tensor: Any) -> Any:
    """The floating-point numbers of `tensor` that this process has, as a strided tensor; None where there are none."""
    if tensor is None:
        return None
    if type(tensor) in (torch.Tensor, torch.nn.Parameter):
        return tensor.detach() if _is_plain(torch, tensor) else None
    if hasattr(tensor, "to_local"):  # a DTensor, of FSDP2 among others
        tensor = tensor.to_local()
    if (
        torch.utils._python_dispatch.is_traceable_wrapper_subclass(tensor)
        or torch.nn.parameter.is_lazy(tensor)
        or not _is_plain(torch, tensor)
    ):
        return None
    return tensor.detach()


def _is_plain(torch: Any, tensor: Any) -> bool:
    dtype = tensor.dtype
    return bool(
        dtype.is_floating_point
        and dtype.itemsize > 1  # those of 8 bits are rarely computed with
        and tensor.layout == torch.strided
        and not tensor.is_meta
        and tensor.numel()
    )


def _pieces(torch: Any, tensor: Any) -> Iterator[Any]:
    """What to take the norm of in place of `tensor`: a long one is summed by rows first."""
    if tensor is None:
        return
    rows = tensor.numel() // ROW
    if tensor.numel() < LONG or not tensor.is_contiguous():
        yield tensor
        return
    dtype = torch.float32 if tensor.dtype.itemsize == 2 else None
    flat = tensor.view(-1)
    yield torch.linalg.vector_norm(flat[: rows * ROW].view(rows, ROW), dim=1, dtype=dtype)
    if rows * ROW < tensor.numel():
        yield flat[rows * ROW :]


def _foreach(torch: Any, tensors: list[Any], dtype: Any) -> Iterable[Any]:
    if dtype.itemsize == 2:
        return [torch.linalg.vector_norm(tensor, dtype=torch.float32) for tensor in tensors]
    found: Iterable[Any] = torch._foreach_norm(tensors)
    return found


def _narrow(rows: Any) -> Any:
    """An accelerator may have no float64 kernel."""
    return rows.float() if rows.device.type != "cpu" else rows


@functools.cache
def _prime(least: int, sizes: tuple[int, ...]) -> int:
    """The smallest prime from `least` on that divides none of `sizes`."""
    while any(least % divisor == 0 for divisor in range(2, math.isqrt(least) + 1)) or any(
        size % least == 0 for size in sizes
    ):
        least += 1
    return least
