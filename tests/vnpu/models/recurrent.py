"""LSTM and GRU: one layer, stacked and bidirectional; LSTM over packed sequences too.

Not a packed GRU: torch_npu 2.13 has no operator for it (its packing keeps the padding, which only its LSTM expects).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from models.family import Batch, Family

INPUTS, HIDDEN, CLASSES = 12, 24, 5
LENGTHS = (10, 7, 7, 3)  # of the packed sequences, longest first


class Recurrent(nn.Module):
    """(N, T, INPUTS) -> (N, T, CLASSES); `packed` skips what lies behind LENGTHS."""

    def __init__(self, cell: type[nn.LSTM | nn.GRU], packed: bool = False, **options: object) -> None:
        super().__init__()
        self.packed = packed
        self.cells = cell(INPUTS, HIDDEN, batch_first=True, **options)
        self.head = nn.Linear(HIDDEN * (2 if options.get("bidirectional") else 1), CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        if not self.packed:
            return self.head(self.cells(x)[0])
        packed, _ = self.cells(pack_padded_sequence(x, torch.tensor(LENGTHS), batch_first=True))
        return self.head(pad_packed_sequence(packed, batch_first=True)[0])


def sequences(generator: torch.Generator) -> Batch:
    shape = (len(LENGTHS), max(LENGTHS))
    return torch.randn(*shape, INPUTS, generator=generator), torch.randint(CLASSES, shape, generator=generator)


def _family(kind: str, steps: int = 5, **options: object) -> Family:
    cell = {"lstm": nn.LSTM, "gru": nn.GRU}[kind.partition(".")[0]]
    return Family(kind, lambda: Recurrent(cell, **options), sequences, steps=steps)


FAMILIES = (
    _family("lstm", steps=20),
    _family("lstm.stacked_bidirectional", num_layers=2, bidirectional=True),
    _family("lstm.packed", packed=True),
    _family("gru"),
    _family("gru.stacked_bidirectional", num_layers=2, bidirectional=True),
)
