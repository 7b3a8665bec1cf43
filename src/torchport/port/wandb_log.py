"""The numbers of a run that wandb logged offline (run-ID.wandb), read without wandb.

The file is a log of LevelDB's form behind a head of its own (wandb/sdk/internal/datastore.py): blocks of 32 KiB hold
parts of records, each a protocol buffer `Record` (wandb/proto/wandb_internal.proto).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path

from torchport.checkpoints.tensors import Unreadable
from torchport.port.protobuf import BYTES, read_fields

LARGEST = 256 << 20  # bytes of a file that is looked into
HEAD, MARK, BLOCK = 7, b":W&B", 32768
PART = struct.Struct("<IHB")  # checksum, length, and which part of a record it is
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4
HISTORY, ITEM = 2, 1  # fields of Record and HistoryRecord
KEY, NESTED, VALUE = 1, 2, 16  # of HistoryItem
STEP = "_step"


def read_wandb(path: Path) -> dict[str, object]:
    """Read the values that were logged, by key and step. Raises Unreadable and OSError.

    Keys of wandb's own (times) are left out, and so is a record that was cut short."""
    if path.stat().st_size > LARGEST:
        raise Unreadable("a log too large to look into")
    data = path.read_bytes()
    if data[:4] != MARK:
        raise Unreadable("no log of wandb")
    found: dict[str, object] = {}
    for record in _records(data):
        for number, wire, row in read_fields(record):
            if number == HISTORY and wire == BYTES and isinstance(row, bytes):
                values = dict(_items(row))
                step = values.get(STEP)
                found |= {f"{key}, step {step}": value for key, value in values.items() if not key.startswith("_")}
    return found


def _records(data: bytes) -> Iterator[bytes]:
    place, parts = HEAD, b""
    while place + PART.size <= len(data):
        left = BLOCK - place % BLOCK
        if left < PART.size:
            place += left
            continue
        _, length, kind = PART.unpack_from(data, place)
        start = place + PART.size
        if start + length > len(data):
            return
        parts = (b"" if kind in (FULL, FIRST) else parts) + data[start : start + length]
        if kind in (FULL, LAST):
            yield parts
        place = start + length


def _items(row: bytes) -> Iterator[tuple[str, object]]:
    for number, _, item in read_fields(row):
        if number != ITEM or not isinstance(item, bytes):
            continue
        key, nested, value = "", [], ""
        for field, _, part in read_fields(item):
            text = part.decode("utf-8", "replace") if isinstance(part, bytes) else str(part)
            if field == KEY:
                key = text
            elif field == NESTED:
                nested.append(text)
            elif field == VALUE:
                value = text
        try:
            yield key or ".".join(nested), json.loads(value)
        except ValueError:
            continue
