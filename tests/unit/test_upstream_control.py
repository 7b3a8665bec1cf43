"""Which tests of others are counted: files without a test for this chip are left out, and so is what passes where
operators do nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.extend(str(Path(__file__).parents[1] / folder) for folder in ("upstream", "conformance"))

import control
import suites
import workers
from control import Control

SUITE = {"source": "op-plugin", "folders": ["st/ops"], "holds": r"\bplatform_ascend(910b)?\b", "first": "level0"}
NAMES = [f"st/ops/test_{letter}.py" for letter in "abcdefghij"]


@pytest.fixture
def of_ops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(suites.TABLE, "some", SUITE)
    (tmp_path / "st/ops").mkdir(parents=True)
    for name in NAMES:
        (tmp_path / name).write_text("arg_mark(['platform_ascend'], level_mark='level1')")
    return tmp_path


def test_files_for_other_devices_are_left_out(of_ops: Path) -> None:
    assert sorted(suites.files("some", of_ops)) == NAMES
    (of_ops / NAMES[0]).write_text("arg_mark(['platform_ascend310p', 'cpu_linux'])")
    (of_ops / NAMES[1]).write_text("arg_mark(['platform_ascend910b'])")
    assert sorted(suites.files("some", of_ops)) == NAMES[1:]


def test_a_part_of_a_suite_is_a_sample(of_ops: Path) -> None:
    order = suites.files("some", of_ops)
    assert order != sorted(order) and order == suites.files("some", of_ops)
    (of_ops / order[-1]).write_text("arg_mark(['platform_ascend'], level_mark='level0')")
    assert suites.files("some", of_ops) == [order[-1], *order[:-1]]
    # A file more changes no others' order.
    (of_ops / "st/ops/test_k.py").write_text("platform_ascend")
    more = suites.files("some", of_ops)
    assert [name for name in more if name in NAMES] == [order[-1], *order[:-1]]


class Idle:
    """In a worker's place: verdicts where operators do nothing."""

    def __init__(self, verdicts: dict[str, str]) -> None:
        self.verdicts, self.limits = verdicts, workers.Limits(1, 1)

    def judge(self, name: str, tests: list[str] | None = None) -> workers.Found:
        return {test: (verdict, 0.1) for test, verdict in self.verdicts.items()}


def controlled(tmp_path: Path, verdicts: dict[str, str]) -> Control:
    one = Control("mint", tmp_path, 1, tmp_path)
    one.worker = Idle(verdicts)  # type: ignore[assignment]
    return one


THERE = {
    "t_empty": "PASS",
    "t_right": "FAIL: differs",
    "t_ends": "CRASH: SIGSEGV",
    "t_waits": "TIMEOUT: more than 20 s",
    "t_lacks": "PASS",
}


def test_what_passes_without_operators_is_vacuous(tmp_path: Path) -> None:
    found = {
        "t_empty": ("PASS", 2.0),
        "t_right": ("PASS", 0.1),
        "t_ends": ("PASS", 0.1),
        "t_waits": ("PASS", 0.1),
        "t_lacks": ("GAP: Pad", 0.1),
    }
    one = controlled(tmp_path, THERE)
    assert "1 stood still for 26 s" in one.mark("test_a.py", found)
    assert {test: verdict for test, (verdict, _) in found.items()} == {
        "t_empty": "VACUOUS",
        "t_right": "PASS",
        "t_ends": "PASS",
        "t_waits": "PASS",
        "t_lacks": "GAP: Pad",
    }


def test_stored_rows_get_their_control_together(tmp_path: Path) -> None:
    rows: dict[str, dict[str, object]] = {
        "a.py": {"PASS": 4, control.NAME: control.NOT_DONE, "t_lacks": "GAP: Pad"},
        "b.py": {"PASS": 1, control.NAME: control.NOT_DONE},
    }
    there = {f"a.py::{test}": verdict for test, verdict in THERE.items()}
    one = controlled(tmp_path, {**there, "b.py::t_wrong": "FAIL: differs"})
    assert one.of_stored(rows) == {
        "a.py": {"PASS": 3, "t_lacks": "GAP: Pad", "t_empty": "VACUOUS"},
        "b.py": {"PASS": 1},
    }


@pytest.mark.parametrize("said", [{}, {"b.py::t_one": "TIMEOUT: not tried, after 3 others"}])
def test_a_file_that_was_not_run_with_others_is_run_alone(tmp_path: Path, said: dict[str, str]) -> None:
    rows: dict[str, dict[str, object]] = {"a.py": {"PASS": 1}, "b.py": {"PASS": 1}}
    one = controlled(tmp_path, {})
    asked = []

    def judge(names: str) -> workers.Found:
        asked.append(names)
        alone = {"b.py::t_one": "PASS"} if names == "b.py" else {"a.py::t_one": "FAIL: differs", **said}
        return {test: (verdict, 0.1) for test, verdict in alone.items()}

    one.worker.judge = judge  # type: ignore[method-assign, assignment]
    assert one.of_stored(rows) == {"a.py": {"PASS": 1}, "b.py": {"PASS": 0, "t_one": "VACUOUS"}}
    assert asked == ["a.py:b.py", "b.py"]


def test_rows_of_other_tests_are_refused(tmp_path: Path) -> None:
    one = controlled(tmp_path, {f"a.py::{test}": verdict for test, verdict in THERE.items()})
    with pytest.raises(RuntimeError, match="4 tests are stored as PASS, and 5 were run"):
        one.of_stored({"a.py": {"PASS": 4}})
    # A file that cannot be imported there has no test that passes.
    one = controlled(tmp_path, {"(import)": "FAIL: ValueError"})
    assert one.of_stored({"a.py": {"PASS": 4}}) == {"a.py": {"PASS": 4}}


def test_what_a_list_knows_by_its_control_is_kept() -> None:
    known: dict[str, dict[str, object]] = {
        "a.py": {"PASS": 1, "t_empty": "VACUOUS"},
        "b.py": {"PASS": 1, control.NAME: control.NOT_DONE},
    }
    mark = {control.NAME: control.NOT_DONE}
    found = {"a.py": {"t_right": "PASS", "t_empty": "PASS", **mark}, "b.py": {"t_one": "PASS", **mark}}
    control.kept(known, found)
    assert found == {"a.py": {"t_right": "PASS", "t_empty": "VACUOUS"}, "b.py": {"t_one": "PASS", **mark}}
    # One that has come to fail is no longer VACUOUS.
    found = {"a.py": {"t_right": "PASS", "t_empty": "FAIL: differs", **mark}}
    control.kept(known, found)
    assert found == {"a.py": {"t_right": "PASS", "t_empty": "FAIL: differs"}}
    # One that has come to pass has not been tried there.
    found = {"a.py": {"t_right": "PASS", "t_empty": "PASS", "t_new": "PASS", **mark}}
    control.kept({"a.py": {**known["a.py"], "t_new": "GAP: Pad"}}, found)
    assert found == {"a.py": {"t_right": "PASS", "t_empty": "VACUOUS", "t_new": "PASS", **mark}}


def test_what_is_vacuous_stays_so_when_a_list_is_written_twice() -> None:
    known: dict[str, dict[str, object]] = {"a.py": {"one": "VACUOUS", "two": "GAP", "PASS": 0}}
    found = {"a.py": {"one": "PASS", "two": "PASS", control.NAME: control.NOT_DONE}}
    control.kept(known, found)
    assert found["a.py"] == {"one": "VACUOUS", "two": "PASS", control.NAME: control.NOT_DONE}
    again = {"a.py": {"one": "PASS", "two": "PASS", control.NAME: control.NOT_DONE}}
    control.kept(dict(found), again)
    assert again == found
