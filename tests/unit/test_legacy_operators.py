"""csrc/opapi/legacy/operators.toml: what torch_npu reaches through the old API is there, or a gap with a reason."""

from __future__ import annotations

import sys
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from reference_pages import implemented_legacy  # noqa: E402

LISTED = tomllib.loads((ROOT / "csrc/opapi/legacy/operators.toml").read_text(encoding="utf-8"))
# torch_npu's own, and one that op-plugin names in no function.
ELSEWHERE = {"Identity", "TransData", "TensorEqual"}


def test_what_is_reached_by_default_is_implemented_or_a_gap() -> None:
    default, there = set(LISTED["by_default"]), implemented_legacy()
    assert default - there == set(LISTED["gaps"])
    assert all(reason.endswith(".") for reason in LISTED["gaps"].values())
    assert all(functions for functions in LISTED["by_default"].values())


def test_every_operator_is_listed_once() -> None:
    names = Counter([*LISTED["by_default"], *LISTED["otherwise"]["names"], *LISTED["mindspore"]["names"]])
    assert {name for name, count in names.items() if count > 1} == set()
    assert implemented_legacy() - set(names) <= ELSEWHERE


def test_what_is_listed_for_mindspore_is_there() -> None:
    assert set(LISTED["mindspore"]["names"]) <= implemented_legacy()
