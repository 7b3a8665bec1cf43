"""csrc/opapi/aclop/operators.toml: what torch_npu reaches through the old API is there, or a gap with a reason."""

from __future__ import annotations

import re
import sys
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from reference_pages import implemented_legacy  # noqa: E402

LISTED = tomllib.loads((ROOT / "csrc/opapi/aclop/operators.toml").read_text(encoding="utf-8"))
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


def defined_twice(sources: list[str]) -> set[str]:
    """The second definition of a name would be dropped without a word."""
    found = Counter(name for text in sources for name in re.findall(r"^LEGACY\(\s*(\w+),", text, re.MULTILINE))
    return {name for name, count in found.items() if count > 1}


def test_no_operator_is_defined_twice() -> None:
    sources = [each.read_text(encoding="utf-8") for each in (ROOT / "csrc/opapi").glob("*/*.cpp")]
    assert defined_twice(sources) == set()
    assert defined_twice([*sources, "LEGACY(Pdist, a, b)\n"]) == {"Pdist"}
