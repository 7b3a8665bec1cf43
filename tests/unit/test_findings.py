"""Results survive the disk, and refuse what they are not."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest

from torchport.errors import TorchportError
from torchport.findings import Edit, Finding, Location, Result, Safety, Severity, write_atomically

FINDING = Finding(
    "TP101",
    Severity.WARNING,
    Safety.REVIEW,
    Location("é.py", 1, 2, 3, 4),
    "message",
    "hint",
    {"relative error": 1.5},
    (Edit(0, 1, b"\xff\x00"),),
    ("https://example.org",),
)


def test_round_trip(tmp_path: Path) -> None:
    result = Result("compare", (FINDING,), {"loss": [1.0, None, True]}, {"a": "0" * 64})
    result.write(tmp_path / "r.json")
    assert Result.read(tmp_path / "r.json") == result


def test_numbers_json_has_no_word_for(tmp_path: Path) -> None:
    Result("compare", data={"loss": [math.nan, math.inf, -math.inf]}).write(tmp_path / "r.json")
    text = (tmp_path / "r.json").read_text()
    loss = [float(value) for value in Result.read(tmp_path / "r.json").data["loss"]]
    assert "NaN" not in text
    assert math.isnan(loss[0])
    assert loss[1:] == [math.inf, -math.inf]


VERSION_1 = '{"format": "torchport-result", "version": 1, "command": "port", '


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "not JSON"),
        ("[]", "does not say"),
        ('{"format": "other"}', "does not say"),
        ('{"format": "torchport-result", "version": 99, "tool": "9.9"}', "version 99"),
        ('{"format": "torchport-result", "version": 1}', "damaged"),
        (VERSION_1 + '"findings": [], "data": [], "inputs": {}}', "damaged"),
        (VERSION_1 + '"findings": [], "data": {}, "inputs": 5}', "damaged"),
        (VERSION_1 + '"findings": [{"code": 5}], "data": {}, "inputs": {}}', "damaged"),
    ],
)
def test_what_is_no_result(tmp_path: Path, text: str, word: str) -> None:
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(TorchportError, match=word):
        Result.read(tmp_path / "r.json")


def test_missing_result(tmp_path: Path) -> None:
    with pytest.raises(TorchportError, match="cannot read") as caught:
        Result.read(tmp_path / "none.json")
    assert caught.value.exit_code == 2
    assert caught.value.hint


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "r.json"
    write_atomically(path, b"old", 0o640)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["r.json"]


def test_mode_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    write_atomically(path, b"1", 0o755)
    write_atomically(path, b"2")
    assert path.stat().st_mode & 0o777 == 0o755


def test_json_names_its_format() -> None:
    value = json.loads(Result("analyze", (FINDING,)).text())
    assert (value["format"], value["version"], value["findings"][0]["code"]) == ("torchport-result", 1, "TP101")
