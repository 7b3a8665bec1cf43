"""The checks of 60 of CANN's operators, read by people before anything derived them: what a derivation is judged by."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
READ: dict[str, Any] = json.loads(
    Path(__file__).with_name("data").joinpath("checks_read_by_hand.json").read_text(encoding="utf-8")
)
SIGNATURES = json.loads((ROOT / "csrc/opapi/aclnn/signatures.json").read_text(encoding="utf-8"))
ORDER = [
    "bool",
    "u8",
    "i8",
    "u16",
    "i16",
    "u32",
    "i32",
    "u64",
    "i64",
    "f16",
    "bf16",
    "f32",
    "f64",
    "c32",
    "c64",
    "c128",
]
CHIPS = ("910B", "910A", "310P")


def test_there_are_sixty_and_their_sources_are_named() -> None:
    assert len(READ["operators"]) == 60
    repositories = set(READ["commits"])
    for name, row in READ["operators"].items():
        assert row["source"] is None or row["source"].split("/")[0] in repositories, name


@pytest.mark.parametrize("name", READ["operators"])
def test_parameters_are_those_of_the_signature(name: str) -> None:
    row = READ["operators"][name]
    tensors = {param for kind, param, _ in SIGNATURES[name]["params"] if "aclTensor" in kind}
    assert row["parameters"].keys() <= {param for _, param, _ in SIGNATURES[name]["params"]}
    assert row["source"] is None or tensors <= row["parameters"].keys()
    for parameter in row["parameters"].values():
        for chip in CHIPS:
            words = (parameter[chip] or "").split()
            assert words == sorted(words, key=lambda word: (ORDER.index(word) if word in ORDER else 99, word))
            assert len(words) == len(set(words))
        assert parameter["max_rank"] is None or 0 <= parameter["max_rank"] <= 8
