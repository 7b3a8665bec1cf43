"""Trainings that raise nothing and are worth nothing are called sick, by what they print and by what they compute."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from torchport.diagnose import diagnose_text

TRAININGS = Path(__file__).parent / "sick/trainings.py"
SIGNS = {
    "sick_diverges": "not-finite",
    "sick_labels_ignored": "zero-loss",
    "sick_rate_zero": "constant-loss",
    "sick_other_parameters": "constant-loss",
    "sick_scale_falls": "scale-falls",
    "sick_all_skipped": "scale-falls",
    "sick_norm_is_nan": "not-finite",
    "sick_infinite": "not-finite",
    "sick_mindspore_like": "not-finite",
    "sick_slows_down": "slows-down",
}
HEALTHY = sorted(re.findall(r"^def (well_\w+)", TRAININGS.read_text("utf-8"), re.MULTILINE))
# The numbers themselves, and not the printed ones, tell these to `torchport run --invariants`.
COMPUTED = ("sick_labels_ignored", "sick_scale_falls", "well_learns_by_heart", "well_scale_settles")


@pytest.fixture(scope="module")
def printed() -> dict[str, str]:
    """The output of each training under `torchport run`."""
    command = [sys.executable, "-m", "torchport", "run", "-q", str(TRAININGS), *SIGNS, *HEALTHY]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    parts = re.split(r"^=== (\w+)\n", run.stdout, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_there_are_ten_of_each(printed: dict[str, str]) -> None:
    assert len(SIGNS) == 10 and len(HEALTHY) == 10
    assert set(printed) == {*SIGNS, *HEALTHY}


@pytest.mark.parametrize("name", SIGNS)
def test_a_sick_training_is_named(printed: dict[str, str], name: str) -> None:
    result = diagnose_text(printed[name])
    assert (result.data["answer"], result.data["row"]) == ("sick", f"sick.{SIGNS[name]}"), printed[name]
    assert result.findings[0].evidence["proof"]


@pytest.mark.parametrize("name", HEALTHY)
def test_a_training_that_looks_sick_for_a_while_is_left_alone(printed: dict[str, str], name: str) -> None:
    assert diagnose_text(printed[name]).data["answer"] == "clean", printed[name]


@pytest.mark.parametrize("name", COMPUTED)
def test_what_is_computed_is_judged_as_what_is_printed(tmp_path: Path, name: str) -> None:
    command = [sys.executable, "-m", "torchport", "run", "-q", "--invariants", "--record", str(tmp_path / "run")]
    subprocess.run([*command, "--level", "none", str(TRAININGS), name], check=False, capture_output=True)
    judged = subprocess.run(
        [sys.executable, "-m", "torchport", "record", "invariants", str(tmp_path / "run"), "--json"],
        check=False,
        capture_output=True,
        text=True,
    )
    said = [finding["message"] for finding in json.loads(judged.stdout)["findings"]]
    wanted = name.startswith("sick_")
    assert any(one.startswith(("losses are numbers", "losses change")) for one in said) == wanted, said
