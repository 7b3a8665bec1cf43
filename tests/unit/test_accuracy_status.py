"""What `make accuracy` stored last: every fault named, nothing that is whole called wrong."""

import json
import tomllib
from pathlib import Path

import pytest

STATUS = json.loads((Path(__file__).parents[1] / "accuracy" / "status.json").read_text())
PROGRAMS = ("text", "image")


@pytest.mark.parametrize("side", STATUS)
def test_every_fault_inside_of_operators_is_named_first(side):
    rows = STATUS[side].get("inside", {})
    faults = {name: row for name, row in rows.items() if name not in PROGRAMS}
    assert not rows or len(faults) >= 20
    for name, row in faults.items():
        assert row["changed"] == row["named"] != "", name
        assert row["rank"] == 1, name
        # A NaN goes on, and a device may make a number of it later.
        assert row["next"] < 10 or "NaN" in name, name
    for name in PROGRAMS if rows else ():
        assert rows[name]["wrong"] == 0 and rows[name]["share"] >= 0.95


@pytest.mark.parametrize("side", STATUS)
def test_faults_around_operators_have_their_class(side):
    rows = STATUS[side].get("around", {})
    assert {name: row["named"] for name, row in rows.items()} == {name: row["class"] for name, row in rows.items()}


def test_there_are_sides():
    assert STATUS.keys() == {"cpu", "isa", "npu"}


def test_ten_healthy_pairs():
    assert len(HEALTHY) == 10


HEALTHY = json.loads((Path(__file__).parents[1] / "accuracy" / "healthy.json").read_text())


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_is_named_where_nothing_is_wrong(name):
    row = HEALTHY[name]
    assert (row["wrong"], row["causes"]) == ([], [])
    assert row["judged"] > 30
    assert row["share"] >= 0.95


ACCURACY = Path(__file__).parents[1] / "accuracy"
PUBLISHED = json.loads((ACCURACY / "published.json").read_text())
FAULTS = {row["name"]: row for row in tomllib.loads((ACCURACY / "published.toml").read_text())["fault"]}


def test_published_faults_are_named_but_for_some():
    assert PUBLISHED.keys() == FAULTS.keys()
    named = [name for name, row in PUBLISHED.items() if row["named"]]
    assert len(named) >= 0.85 * len(FAULTS)
    assert set(named).isdisjoint(name for name, row in FAULTS.items() if "missed" in row)


@pytest.mark.parametrize("name", FAULTS)
def test_a_healthy_twin_is_not_accused(name):
    assert PUBLISHED[name]["healthy"] == []
    assert (ACCURACY / "published" / FAULTS[name]["program"]).is_file()
