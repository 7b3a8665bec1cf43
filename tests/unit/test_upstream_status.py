"""What tests/upstream has found: the lists are well-formed, and what fails has a cause that people have written down."""

from __future__ import annotations

import json
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest

sys.path.extend(str(Path(__file__).parents[1] / folder) for folder in ("upstream", "conformance"))

import causes
import control
import status
import suites

STATUSES = {"VACUOUS", "SKIP", "FAIL", "GAP", "NOT_OFFERED", "IMPOSSIBLE", "CRASH", "TIMEOUT"}
LISTS = [suite for suite in suites.SUITES if status.read(suite)]


@pytest.mark.parametrize("suite", LISTS)
def test_lists_are_well_formed(suite: str) -> None:
    folders = tuple(suites.TABLE[suite]["folders"])
    for file, row in status.read(suite).items():
        assert file.startswith(folders) and isinstance(row[status.COUNT], int), file
        for test, verdict in row.items():
            if test != status.COUNT:
                kind, _, reason = verdict.partition(": ")
                assert kind in STATUSES, (file, test, verdict)
                assert kind in ("VACUOUS", "SKIP") or reason, (file, test, verdict)


@pytest.mark.parametrize("suite", LISTS)
def test_what_fails_has_its_cause(suite: str) -> None:
    names = {row["name"] for row in (*causes.table(), causes.GIVEN_UP)}
    unexplained = [
        (file, test, verdict)
        for file, row in status.read(suite).items()
        for test, verdict in row.items()
        if test != status.COUNT
        and verdict.partition(":")[0] in ("FAIL", "CRASH", "IMPOSSIBLE")
        and verdict.partition(": ")[2] not in names
    ]
    assert unexplained == []


@pytest.mark.parametrize("suite", LISTS)
def test_of_what_means_something_95_percent_pass(suite: str) -> None:
    """What had too little time is not counted: on a quiet machine nothing has."""
    counts: Counter[str] = Counter()
    for row in status.read(suite).values():
        counts["PASS"] += row[status.COUNT]
        counts.update(verdict.partition(":")[0] for test, verdict in row.items() if test != status.COUNT)
    meant = sum(counts[kind] for kind in ("PASS", "FAIL", "GAP", "CRASH"))
    assert counts["PASS"] >= 0.95 * meant, counts


def test_a_list_is_what_its_writer_makes_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {suite: (status.FOLDER / f"{suite}.json").read_text(encoding="utf-8") for suite in LISTS}
    found = {suite: status.read(suite) for suite in LISTS}
    monkeypatch.setattr(status, "FOLDER", tmp_path)
    for suite, text in kept.items():
        status.write(suite, found[suite])
        assert (tmp_path / f"{suite}.json").read_text(encoding="utf-8") == text


def test_a_cause_names_itself_and_is_no_excuse_for_everything() -> None:
    rows = tomllib.loads(causes.TABLE.read_text(encoding="utf-8"))["cause"]
    for row in rows:
        assert {"name"} < set(row) <= {"name", "tests", "says", "status"}, row
        assert row.get("status", "IMPOSSIBLE") in ("IMPOSSIBLE", "NOT_OFFERED", "GAP"), row
    assert causes.cause_of("test_base_ops/test_new.py", "TestNew.test_new", "FAIL: differs") is None
    settled = causes.settled("test_a.py", {"T.a": "FAIL: OSError: [Errno None]", "T.b": "PASS", "T.c": "GAP: Pad"})
    assert settled["T.a"].startswith("IMPOSSIBLE: asks for ATB")
    assert (settled["T.b"], settled["T.c"]) == ("PASS", "GAP: Pad")


def test_the_lists_are_json_with_a_line_for_each_test() -> None:
    for suite in LISTS:
        text = (status.FOLDER / f"{suite}.json").read_text(encoding="utf-8")
        others = sum(len(row) - 1 for row in json.loads(text).values())
        assert text.count("\n") == others + len(json.loads(text)) + 2


def test_what_hardware_does_not_pass_is_not_held_against_us(tmp_path: Path) -> None:
    """A crash is, and so is a test that its list does not name."""
    (tmp_path / "listed.json").write_text(
        json.dumps({"test_a (__main__.T)": ["", [""]], "test_b (__main__.T)": ["", [""]], "odd": ["", [""]]})
    )
    without = causes.given_up(tmp_path, "listed.json")
    assert without == {"T.test_a", "T.test_b"} and causes.given_up(tmp_path, None) == frozenset()
    row = {
        "T.test_a": "FAIL: differs",
        "T.test_b": "CRASH: SIGSEGV",
        "T.test_c": "FAIL: differs",
        "U.test_a": "GAP: Pad",
    }
    settled = causes.settled("test_a.py", row, without)
    assert settled.pop("T.test_a").startswith("IMPOSSIBLE: in torch_npu's own list")
    assert settled == {test: verdict for test, verdict in row.items() if test != "T.test_a"}


def test_a_file_that_is_a_suite_is_in_no_other(tmp_path: Path) -> None:
    for name in ("contrib/test_transfer_to_npu_env.py", "contrib/test_roll.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert suites.files("torch_npu", tmp_path) == ["contrib/test_roll.py"]
    assert suites.files("transfer", tmp_path) == ["contrib/test_transfer_to_npu_env.py"]


@pytest.mark.parametrize("suite", ["mint", "ops"])
def test_the_page_says_what_the_lists_have(suite: str) -> None:
    page = (Path(__file__).parents[2] / "docs/mindspore.md").read_text(encoding="utf-8")
    rows = status.read(suite).values()
    kinds = Counter(verdict.partition(":")[0] for row in rows for verdict in row.values() if isinstance(verdict, str))
    passed = sum(row[status.COUNT] for row in rows)
    failed = sum(kinds[kind] for kind in ("FAIL", "GAP", "CRASH", "TIMEOUT"))
    said = (
        f"{len(rows)} files of `{suite}`: {passed} tests pass, {failed} do not, {kinds['VACUOUS']} say nothing, "
        f"{kinds['IMPOSSIBLE']} cannot be run"
    )
    if left := sum(control.NAME in row for row in rows):
        said += f"; {left} of the files are not tried without operators"
    assert said in page, said
