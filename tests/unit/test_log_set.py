"""The logs that `torchport diagnose` is judged by: drawn once, half of them kept out while rows were tuned."""

from __future__ import annotations

import collections
import tomllib
from pathlib import Path

LOGS = Path(__file__).parent / "data/logs"
SET = tomllib.loads((LOGS / "set.toml").read_text("utf-8"))


def test_the_set_is_whole() -> None:
    kinds = collections.Counter((row["made"], row["half"]) for row in SET.values())
    assert kinds == dict.fromkeys(
        [("vnpu", "open"), ("vnpu", "kept"), ("written", "open"), ("written", "kept")], 15
    )
    logs = {path.stem for path in LOGS.iterdir() if path.name not in ("set.toml", "clean")}
    assert logs == set(SET)
    assert all(row["source"] for row in SET.values() if row["made"] == "written")
    assert len(list((LOGS / "clean").glob("*.txt"))) == 20


def test_each_has_several_lines() -> None:
    for name in SET:
        files = (
            [LOGS / f"{name}.txt"] if (LOGS / f"{name}.txt").exists() else list((LOGS / name).glob("*.txt"))
        )
        assert files
        assert all(len(file.read_text("utf-8").splitlines()) > 1 for file in files), name
