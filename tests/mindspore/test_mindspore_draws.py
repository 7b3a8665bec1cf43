"""MindSpore's draws: a run repeats, another seed and a second call give other numbers. Of which distribution they are is in
tests/vnpu/ops/random/test_aclop_draw.py."""

from __future__ import annotations

from typing import Any

import pytest
from running import answers, clean, run

CASES = [
    *("laplace", "laplace around", "gamma", "poisson", "integers", "truncated", "categories", "categories of logits"),
    *("permutation", "permutation of a number", "shuffled", "chosen", "candidates", "likely candidates"),
    *("planes", "volumes"),
]
# They take no seed.
UNSEEDED = {"permutation of a number", "planes", "volumes"}
# MindSpore gives them an offset, which does not move: both calls are the same.
STATELESS = {"permutation"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("draws")
    made = [run("draws.py", seed, cwd=folder) for seed in ("5", "5", "6")]
    for each in made:
        clean(each)
    return [{answer["case"]: answer for answer in answers(each)} for each in made]


@pytest.mark.parametrize("case", CASES)
def test_a_run_repeats_and_another_seed_is_another_run(runs: list[dict[str, Any]], case: str) -> None:
    one, again, other = (each[case] for each in runs)
    assert "error" not in one, one
    first, second = one["said"]
    assert one == again
    assert (first == second) == (case in STATELESS)
    assert (other["said"][0] == first) == (case in UNSEEDED)
