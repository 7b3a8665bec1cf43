"""The logs that `torchport diagnose` is judged by: drawn once, half of them kept out while rows were tuned."""

from __future__ import annotations

import collections
import tomllib
from pathlib import Path

LOGS = Path(__file__).parent / "data/logs"
SET = tomllib.loads((LOGS / "set.toml").read_text("utf-8"))
INJECTED = LOGS.parent / "injected"
PROVOKED = tomllib.loads((INJECTED / "set.toml").read_text("utf-8"))


def test_the_set_is_whole() -> None:
    kinds = collections.Counter((row["made"], row["half"]) for row in SET.values())
    assert kinds == dict.fromkeys([("vnpu", "open"), ("vnpu", "kept"), ("written", "open"), ("written", "kept")], 15)
    logs = {path.stem for path in LOGS.iterdir() if path.name not in ("set.toml", "clean")}
    assert logs == set(SET)
    assert all(row["source"] for row in SET.values() if row["made"] == "written")
    assert len(list((LOGS / "clean").glob("*.txt"))) == 20


def test_each_has_several_lines() -> None:
    for name in SET:
        files = [LOGS / f"{name}.txt"] if (LOGS / f"{name}.txt").exists() else list((LOGS / name).glob("*.txt"))
        assert files
        assert all(len(file.read_text("utf-8").splitlines()) > 1 for file in files), name


def test_the_injected_logs_are_whole() -> None:
    """Drawn and labelled by what was injected, before any of them was diagnosed."""
    logs = {path.stem for path in INJECTED.iterdir()} - {"set"}
    assert logs == set(PROVOKED)
    halves = collections.Counter(row["half"] for row in PROVOKED.values())
    assert halves == {"open": 15, "kept": 14, "clean": 2}
    assert all(bool(row["cause"]) == (row["half"] != "clean") for row in PROVOKED.values())
    for name in PROVOKED:
        files = [path for path in INJECTED.rglob("*.*") if name in (path.stem, path.parent.name)]
        assert files and all(len(file.read_text("utf-8").splitlines()) > 1 for file in files), name
