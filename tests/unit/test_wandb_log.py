"""Numbers that wandb logs offline; the form is that of a file of wandb 0.31."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from torchport.checkpoints.tensors import Unreadable
from torchport.port.left import compare_files
from torchport.port.wandb_log import BLOCK, read_wandb

FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4


def varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value % 128 + 128]) + varint(value // 128)


def field(number: int, data: bytes) -> bytes:
    return varint(number * 8 + 2) + varint(len(data)) + data


def item(keys: list[str], value: object) -> bytes:
    named = field(1, keys[0].encode()) if len(keys) == 1 else b"".join(field(2, key.encode()) for key in keys)
    return field(1, named + field(16, json.dumps(value).encode()))


def history(step: int, values: dict[str, object]) -> bytes:
    rows = [item(name.split("/"), value) for name, value in {**values, "_step": step, "_runtime": 0.3}.items()]
    return varint(8) + varint(step + 1) + field(2, b"".join(rows))


def log(*records: bytes) -> bytes:
    """The records in blocks, as LevelDB splits them."""
    data = b":W&B" + bytes([0xE1, 0xBE, 0])
    for record in records:
        first = True
        while True:
            left = BLOCK - len(data) % BLOCK
            if left < 7:
                data += bytes(left)
                continue
            part, record = record[: left - 7], record[left - 7 :]
            kind = (FULL if first else LAST) if not record else (FIRST if first else MIDDLE)
            data += struct.pack("<IHB", 0, len(part), kind) + part
            first = False
            if not record:
                break
    return data


RECORDS = [
    field(5, b"config"),
    history(0, {"loss": 0.5, "acc/top1": 0.25}),
    history(1, {"loss": 1.5, "text": "x" * 2 * BLOCK}),
    history(2, {"loss": 2.5}),
]


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "run-abcd1234.wandb"
    path.write_bytes(log(*RECORDS))
    return path


def test_values_by_key_and_step(written: Path) -> None:
    found = read_wandb(written)
    assert found.pop("text, step 1") == "x" * 2 * BLOCK
    assert found == {"loss, step 0": 0.5, "acc.top1, step 0": 0.25, "loss, step 1": 1.5, "loss, step 2": 2.5}


def test_a_record_that_was_cut_short_is_left_out(written: Path) -> None:
    written.write_bytes(written.read_bytes()[:-5])
    assert "loss, step 1" in read_wandb(written) and "loss, step 2" not in read_wandb(written)


@pytest.mark.parametrize(
    "content", [b"", b"no log", b":W&B\xe1\xbe\x00" + struct.pack("<IHB", 0, 2, FULL) + b"\xff\xff"]
)
def test_what_is_no_log(written: Path, content: bytes) -> None:
    written.write_bytes(content)
    with pytest.raises(Unreadable):
        read_wandb(written)


@pytest.mark.parametrize(("last", "equal"), [(2.5, True), (2.7, False)])
def test_runs_of_other_names_are_compared(tmp_path: Path, last: float, equal: bool) -> None:
    for side, name, value in (("one", "20261127_203555-vnjhpnof", 2.5), ("other", "20261127_204010-ab12cd34", last)):
        folder = tmp_path / side / "wandb" / f"offline-run-{name}"
        folder.mkdir(parents=True)
        path = folder / f"run-{name[-8:]}.wandb"
        path.write_bytes(log(field(5, side.encode()), *RECORDS[1:3], history(2, {"loss": value})))
    (row,) = compare_files(tmp_path / "one", tmp_path / "other")
    assert (row.kind, row.equal) == ("wandb", equal)
    assert ("loss, step 2" in row.note) is not equal
