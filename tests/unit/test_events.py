"""Scalars of TensorBoard's event files."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from torchport.checkpoints.tensors import Unreadable
from torchport.port.events import read_events
from torchport.port.left import compare_files

# As TensorBoard 2.20 writes it (EventFileWriter): scalars as simple values, as tensors, one step twice, and a text.
WRITTEN = base64.b64decode(
    "SAAAAAAAAAD+kkidCVppjMR0wtpBGg1icmFpbi5FdmVudDoyUi4KLHRlbnNvcmJvYXJkLnN1bW1hcnkud3JpdGVyLmV2ZW50X2Zp"
    "bGVfd3JpdGVyEVnfOR4AAAAAAAAA2dwSMgkAAAAAAADwPyoTChEKCkxvc3MvdHJhaW4VAAAAP77CrmcgAAAAAAAAACntqVAJAAAA"
    "AAAA8D8QASoTChEKCkxvc3MvdHJhaW4VAADAPyo9uhEhAAAAAAAAAAF77PYJAAAAAAAA8D8QrAIqEwoRCgpMb3NzL3RyYWluFQBA"
    "lkPZgbDnIQAAAAAAAAABe+z2CQAAAAAAAPA/EKwCKhMKEQoKTG9zcy90cmFpbhUAAOBAHn2gSh4AAAAAAAAA2dwSMgkAAAAAAAAA"
    "QBACKhEKDwoDbmV3QggIASoEAAAQQBG2GHE1AAAAAAAAANbFXeYJAAAAAAAAAEAQAyooChMKB2NvbnRlbnRCCAgBIgQAAJBAChEK"
    "BHRleHRCCQgHQgVoZWxsb5qzhDE="
)
SCALARS = {
    "Loss/train, step 0": 0.5,
    "Loss/train, step 1": 1.5,
    "Loss/train, step 300": 300.5,
    "Loss/train, step 300 (2)": 7.0,
    "new, step 2": 2.25,
    "content, step 3": 4.5,
}


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "events.out.tfevents.1700000000.host"
    path.write_bytes(WRITTEN)
    return path


def test_scalars_by_tag_and_step(written: Path) -> None:
    assert read_events(written) == SCALARS


def test_a_record_that_was_cut_short_is_left_out(written: Path) -> None:
    written.write_bytes(WRITTEN[:-9])
    assert read_events(written) == {name: value for name, value in SCALARS.items() if not name.startswith("content")}


@pytest.mark.parametrize("content", [b"a\0", b"no events at all, but long enough for a head", b""])
def test_what_is_no_event_file(written: Path, content: bytes) -> None:
    written.write_bytes(content)
    with pytest.raises(Unreadable):
        read_events(written)


@pytest.mark.parametrize(
    ("old", "new", "equal"), [(b"\x00\x00\xc0?", b"\x00\x00\xd0?", False), (b"host", b"tosh", True)]
)
def test_a_scalar_that_differs_is_named(tmp_path: Path, old: bytes, new: bytes, equal: bool) -> None:
    for name, content in (("one", WRITTEN), ("other", WRITTEN.replace(old, new))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "events.out.tfevents.1700000000.host").write_bytes(content)
    (row,) = compare_files(tmp_path / "one", tmp_path / "other")
    assert row.equal is equal
    assert ("Loss/train, step 1" in row.note) is not equal
