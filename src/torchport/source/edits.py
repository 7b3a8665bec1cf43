"""Splice edits into bytes, and take them out again."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable

from torchport.findings import Edit


def sort_edits(edits: Iterable[Edit]) -> tuple[Edit, ...]:
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
    for edit in sort_edits(edits):
        if not position <= edit.start <= edit.end <= len(data):
            raise ValueError(f"the edit {edit} leaves the data of {len(data)} bytes")
        pieces += [data[position : edit.start], edit.replacement]
        position = edit.end
    return b"".join([*pieces, data[position:]])


def invert_edits(data: bytes, edits: Iterable[Edit]) -> tuple[Edit, ...]:
    """The edits that turn `splice(data, edits)` back into `data`."""
    result = []
    shift = 0
    for edit in sort_edits(edits):
        start = edit.start + shift
        result.append(Edit(start, start + len(edit.replacement), data[edit.start : edit.end]))
        shift += len(edit.replacement) - (edit.end - edit.start)
    return tuple(result)


def compose_edits(data: bytes, first: Iterable[Edit], second: Iterable[Edit]) -> tuple[Edit, ...]:
    """The edits of `data` that do what `first` does, and then `second`, whose offsets are those after `first`."""
    first, second = sort_edits(first), sort_edits(second)
    middle, written = splice(data, first), invert_edits(data, first)
    clusters: list[list[int]] = []  # in the middle: ranges that hold whole edits of both
    for start, end in sorted((edit.start, edit.end) for edit in (*written, *second)):
        if clusters and start <= clusters[-1][1]:
            clusters[-1][1] = max(end, clusters[-1][1])
        else:
            clusters.append([start, end])
    result = []
    starts, starts_written = [edit.start for edit in second], [edit.start for edit in written]
    grown = [0, *itertools.accumulate(len(edit.replacement) - (edit.end - edit.start) for edit in written)]
    for start, end in clusters:
        inside = [
            Edit(edit.start - start, edit.end - start, edit.replacement)
            for edit in second[bisect.bisect_left(starts, start) : bisect.bisect_right(starts, end)]
            if edit.end <= end
        ]
        before = grown[bisect.bisect_left(starts_written, start)]
        with_inside = grown[bisect.bisect_right(starts_written, end)]
        result.append(Edit(start + before, end + with_inside, splice(middle[start:end], inside)))
    return tuple(result)


def find_origin_offset(data: bytes, edits: Iterable[Edit], offset: int) -> int:
    """The offset in `data` of what is at `offset` in `splice(data, edits)`; for new text, where it was put."""
    shift = 0
    for edit in invert_edits(data, edits):
        if offset < edit.start:
            break
        if offset < edit.end:
            return edit.start + shift
        shift += len(edit.replacement) - (edit.end - edit.start)
    return offset + shift
