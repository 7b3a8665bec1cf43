"""Splice edits into bytes, and take them out again."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from torchport.findings import Edit


def ordered(edits: Iterable[Edit]) -> tuple[Edit, ...]:
    """The edits by position, equal ones once. Raises ValueError where two overlap or insert at the same place."""
    result = tuple(sorted(set(edits), key=lambda edit: (edit.start, edit.end)))
    for one, other in itertools.pairwise(result):
        if other.start < one.end or (one.start, one.end) == (other.start, other.end):
            raise ValueError(f"two edits overlap: {one} and {other}")
    return result


def splice(data: bytes, edits: Iterable[Edit]) -> bytes:
    """`data` with the edits applied. Raises ValueError where two overlap or one leaves the data."""
    pieces: list[bytes] = []
    position = 0
    for edit in ordered(edits):
        if not position <= edit.start <= edit.end <= len(data):
            raise ValueError(f"the edit {edit} leaves the data of {len(data)} bytes")
        pieces += [data[position : edit.start], edit.replacement]
        position = edit.end
    return b"".join([*pieces, data[position:]])


def inverse(data: bytes, edits: Iterable[Edit]) -> tuple[Edit, ...]:
    """The edits that turn `splice(data, edits)` back into `data`."""
    result = []
    shift = 0
    for edit in ordered(edits):
        start = edit.start + shift
        result.append(Edit(start, start + len(edit.replacement), data[edit.start : edit.end]))
        shift += len(edit.replacement) - (edit.end - edit.start)
    return tuple(result)
