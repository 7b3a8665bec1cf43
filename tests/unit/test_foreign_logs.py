"""Logs after public reports, drawn in three rounds by people who had not read the rows, with the answers written first.

`data/foreign/ROUND/KIND/NN.log` and its answer `NN.toml`; `data/foreign/first.json` has what was said of each when it
was diagnosed for the first time, with the verdict of a reader who knew the answers alone, and is not touched again;
`data/foreign/now.json` is the row that has to come first now, "" where none is known.
"""

from __future__ import annotations

import collections
import json
import re
import tomllib
from pathlib import Path

import pytest

from torchport.diagnose import diagnose_logs

FOREIGN = Path(__file__).parent / "data/foreign"
PAGE = Path(__file__).parents[2] / "docs/diagnose.md"
FIRST = json.loads((FOREIGN / "first.json").read_text("utf-8"))
NOW = json.loads((FOREIGN / "now.json").read_text("utf-8"))
LOGS = sorted(FOREIGN.glob("*/*/*.log"))
# Signs that a log of numbers has and that no rule sees: a class that is never learnt.
UNSEEN = {"first/sick/07"}


def name_of(path: Path) -> str:
    return str(path.relative_to(FOREIGN).with_suffix(""))


def of_kind(*kinds: str) -> list[str]:
    return [name_of(path) for path in LOGS if path.parent.name in kinds]


def diagnose(name: str) -> tuple[str, str, str]:
    result = diagnose_logs(str(FOREIGN / f"{name}.log"), None)
    confidence = result.findings[0].evidence.get("confidence", "") if result.findings else ""
    return result.data["answer"], result.data["row"], confidence


def test_each_log_has_its_answer() -> None:
    counts = collections.Counter((path.parent.parent.name, path.parent.name) for path in LOGS)
    assert counts == {
        ("first", "failed"): 44,
        ("first", "clean"): 20,
        ("first", "sick"): 8,
        ("first", "alarming"): 8,
        ("second", "failed"): 40,
        ("second", "clean"): 10,
        ("third", "failed"): 40,
        ("third", "clean"): 10,
    }
    assert all(path.with_suffix(".toml").exists() for path in LOGS)
    assert set(NOW) == set(of_kind("failed")) == {name for name in FIRST if "/failed/" in name}


@pytest.mark.parametrize("name", of_kind("failed"))
def test_a_failed_run_is_told_as_before(name: str) -> None:
    """A row that a change takes away, or puts in front, is seen here; that it is right was judged by a reader."""
    answer, row, confidence = diagnose(name)
    assert (row if answer == "cause" else "") == NOW[name]
    assert answer != "clean"
    certainty = tomllib.loads((FOREIGN / f"{name}.toml").read_text("utf-8"))["certainty"]
    assert certainty != "unclear" or confidence != "high"


@pytest.mark.parametrize("name", of_kind("clean", "alarming"))
def test_no_cause_is_seen_in_a_healthy_run_of_others(name: str) -> None:
    assert diagnose(name)[0] in ("clean", "open")


@pytest.mark.parametrize("name", of_kind("sick"))
def test_a_sick_run_of_others_is_named(name: str) -> None:
    assert (diagnose(name)[0] == "sick") == (name not in UNSEEN)


def test_the_page_has_the_first_results() -> None:
    rows = re.findall(
        r"^\| (first|second|third) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|", PAGE.read_text("utf-8"), re.M
    )
    told = {draw: list(map(int, numbers)) for draw, *numbers in rows}
    counted = {}
    for draw in ("first", "second", "third"):
        verdicts = [one["verdict"] for name, one in FIRST.items() if name.startswith(f"{draw}/failed/")]
        counted[draw] = [len(verdicts), *(verdicts.count(word) for word in ("right", "half", "wrong", "nothing"))]
    assert told == counted
