"""The reader of the event log, on logs that are written here byte by byte."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from torchport.errors import TorchportError
from torchport.predict.timeline import MAGIC, read_timeline


def name(number: int, text: bytes) -> bytes:
    padded = text + b"\0" * (-len(text) % 8)
    return struct.pack("<IHHII", 16 + len(padded), 2, 0, number, len(text)) + padded


def process(version: int = 1) -> bytes:
    return struct.pack("<IHHIIiiIBxxxqq", 48, 1, 0, version, 77, 3, 8, 0, 1, 5, 6)


def task() -> bytes:
    tensors = struct.pack("<QQBBBBI", 0x1000, 24, 6, 2, 2, 1, 0) + struct.pack("<2q", 2, 3)
    body = struct.pack("<IHHIIBBHIQ6q3d", 1, 0, 1, 4, 99, 1, 0, 1, 0, 12, 1, 2, 3, 10, 20, 50, 2e9, 3e6, 0.5)
    return struct.pack("<IHH", 8 + len(body) + len(tensors), 3, 0) + body + tensors


def whole() -> bytes:
    memory = struct.pack("<IHHIIqqQqQ", 56, 4, 0, 0, 0, 7, 8, 0x2000, -512, 1024)
    unknown = struct.pack("<IHHQ", 16, 99, 0, 0)
    return MAGIC + name(0, b"Ascend910B1") + process() + name(1, b"aclnnAdd") + unknown + task() + memory


def test_reads_what_is_written(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(whole())
    log = read_timeline(path)
    assert (log.process, log.rank, log.world, log.chip, log.dry, log.whole) == (77, 3, 8, "Ascend910B1", True, True)
    (only,) = log.tasks
    assert (only.name, only.stream, only.unit, only.virtual_time, only.flops) == ("aclnnAdd", 4, "cube", 30, 2e9)
    (tensor,) = only.tensors
    assert (tensor.shape, tensor.dtype, tensor.output, tensor.view) == ((2, 3), "float32", True, False)
    assert [(each.bytes, each.used) for each in log.memory] == [(-512, 1024)]


def test_a_log_that_was_cut_off_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "log"
    for cut in range(len(whole()) - 56, len(whole())):
        path.write_bytes(whole()[:cut])
        log = read_timeline(path)
        assert len(log.tasks) == 1 and not log.memory
        assert log.whole == (cut == len(whole()) - 56)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"text", "is no event log"),
        (MAGIC, "ends before its first record"),
        (MAGIC + process(version=2), "of version 2"),
    ],
)
def test_what_is_no_log_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "log"
    path.write_bytes(content)
    with pytest.raises(TorchportError, match=words):
        read_timeline(path)
