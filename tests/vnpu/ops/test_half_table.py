"""The stored table of half precision: what it must not say, and that it is what is measured."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "conformance"))

import half

STORED: half.Measured = json.loads(half.STORED.read_text(encoding="utf-8"))


def past_the_bar(stored: half.Measured) -> set[str]:
    return {name for name, row in stored.items() if max(ours for _, ours in row.values()) > half.BAR}


def test_what_is_past_the_bar_has_its_reason_and_nothing_else_has() -> None:
    assert past_the_bar(STORED) == half.HANDED_OVER.keys()
    assert past_the_bar({**STORED, "sum": {"float16": [0.3, 2.1]}}) != half.HANDED_OVER.keys()


def test_every_case_is_stored() -> None:
    assert list(STORED) == list(half.cases())


@pytest.mark.parametrize("name", ["layer_norm", "prod", "logsumexp"])
def test_the_table_is_what_is_measured(name: str) -> None:
    """What torch's kernel gives hangs on the machine's vectors: it adds up in their order."""
    for word, (cpu, ours) in half.measured(name).items():
        stored_cpu, stored_ours = STORED[name][word]
        assert ours == pytest.approx(stored_ours, rel=0.25, abs=0.3), word
        assert stored_cpu / 3 - 0.3 <= cpu <= stored_cpu * 3 + 0.3, word
