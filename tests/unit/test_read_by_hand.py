"""The checks of 60 of CANN's operators, read by people before anything derived them: what a derivation is judged by."""

from __future__ import annotations

import pytest
from read_by_hand import DOCUMENT, DTYPES, READ, SIGNATURES

CHIPS = ("910B", "910A", "310P")


def test_there_are_sixty_and_their_sources_are_named() -> None:
    assert len(READ) == 60
    repositories = set(DOCUMENT["commits"])
    for name, row in READ.items():
        assert row["source"] is None or row["source"].split("/")[0] in repositories, name


@pytest.mark.parametrize("name", READ)
def test_parameters_are_those_of_the_signature(name: str) -> None:
    row = READ[name]
    tensors = {param for kind, param, _ in SIGNATURES[name]["params"] if "aclTensor" in kind}
    assert row["parameters"].keys() <= {param for _, param, _ in SIGNATURES[name]["params"]}
    assert row["source"] is None or tensors <= row["parameters"].keys()
    for parameter in row["parameters"].values():
        for chip in CHIPS:
            words = (parameter[chip] or "").split()
            assert words == sorted(words, key=lambda word: (DTYPES.index(word) if word in DTYPES else 99, word))
            assert len(words) == len(set(words))
        assert parameter["max_rank"] is None or 0 <= parameter["max_rank"] <= 8
