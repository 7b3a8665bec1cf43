"""Packed sequences on an NPU keep their padding, as its LSTM takes them: other shapes than torch's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def pack_padded_sequence(torch: Any, *given: Any) -> list[Any]:
    """Nothing of it is judged."""
    return [None, None]


def lstm(torch: Any, given: Any, second: Any, *more: Any, made: Sequence[Any]) -> list[Any]:
    """`aten::lstm.data` of [steps * batch, width], padded, and of the batch of each step; any other is torch's own. The
    rows of the padding are not judged, and a dropout between layers leaves nothing that is."""
    if not isinstance(second, torch.Tensor):
        return list(torch.ops.aten.lstm.input(given, second, *more))
    _, _, _, layers, dropout, train, _ = more
    if dropout and train and layers > 1:
        return [None, None, None]
    batch = given.shape[0] // len(second)
    rows = torch.cat([step * batch + torch.arange(int(size)) for step, size in enumerate(second)])
    out, hidden, cell = torch.ops.aten.lstm.data(given[rows], second, *more)
    if made[0] is None:
        return [None, hidden, cell]
    return [made[0].to(out.dtype).index_copy(0, rows, out), hidden, cell]


def pad_packed_sequence(torch: Any, given: Any, sizes: Any, batch_first: bool, *more: Any, made: Sequence[Any]) -> Any:
    """Of [steps * batch, ...], padded; the padding is not judged."""
    batch = int(sizes[0])
    lengths = (sizes[:, None] > torch.arange(batch)).sum(0)
    if made[0] is None:
        return [None, lengths]
    out = made[0].to(given.dtype).transpose(0, 1).clone() if batch_first else made[0].to(given.dtype).clone()
    steps = given.view(len(sizes), batch, *given.shape[1:])
    for step, size in enumerate(sizes.tolist()):
        out[step, :size] = steps[step, :size]
    return [out.transpose(0, 1) if batch_first else out, lengths]
