"""The data of results as JSON: names as an earlier torchport wrote them, and values that do not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from torchport.findings import Result
from torchport.results import codec
from torchport.results.comparison import Comparison, Curve, Difference
from torchport.results.conversion import Summary
from torchport.results.port import ControlRun, Conversion, Judged, Port, Run

# Of a port of examples/digits by torchport at 5ddd62a, whose reports read the data by key; long lists are cut.
WRITTEN = Path(__file__).parent / "data" / "results"
KINDS: dict[str, type[Any]] = {
    "convert": Conversion,
    "reference": Run,
    "control": ControlRun,
    "npu": Run,
    "compare": Judged,
    "port": Port,
}


@pytest.mark.parametrize("name", KINDS)
def test_names_and_values_are_those_of_before(name: str) -> None:
    before = json.loads((WRITTEN / f"{name}.json").read_text())
    result = Result.read(WRITTEN / f"{name}.json").typed(KINDS[name])
    again = json.loads(result.text())
    assert select_names(again, before) == before | {"tool": again["tool"]}


def select_names(value: Any, before: Any) -> Any:
    """The value without names that were added since: a later torchport says more."""
    if isinstance(value, dict) and isinstance(before, dict):
        return {name: select_names(one, before[name]) for name, one in value.items() if name in before}
    if isinstance(value, list) and isinstance(before, list):
        return [select_names(*pair) for pair in zip(value, before, strict=True)]
    return value


def test_every_file_has_a_class() -> None:
    assert {path.stem for path in WRITTEN.iterdir()} == set(KINDS)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"steps": "9"}, "steps is '9', which is no int"),
        ({"steps": True}, "steps is True, which is no int"),
        ({"steps": 9.0}, "steps is 9.0, which is no int"),
        ({"seconds": "9"}, "seconds is '9', which is no number"),
        ({"seconds": None}, "seconds is None, which is no number"),
        ({"status": "0"}, "status is '0', which is no int"),
        ({"skipped": 0}, "skipped is 0, which is no bool"),
        ({"device": None}, "device is None, which is no str"),
        ({"notes": "text"}, "notes is 'text', which is no tuple"),
        ({"notes": [1]}, "notes[0] is 1, which is no str"),
        ({"files": [{"path": 1}]}, "files[0].path is 1, which is no str"),
        ({"files": [{}]}, "files[0].path is missing"),
        ({"files": ["a.pt"]}, "files[0] is 'a.pt', which is no object"),
        ({"evidence": []}, "evidence is [], which is no object"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_its_place(change: dict[str, Any], said: str) -> None:
    data = json.loads((WRITTEN / "npu.json").read_text())["data"]
    assert codec.from_json(Run, data).steps > 0
    with pytest.raises(TypeError, match=r".") as raised:
        codec.from_json(Run, data | change)
    assert str(raised.value) == said


def test_a_missing_value_is_named() -> None:
    data = json.loads((WRITTEN / "npu.json").read_text())["data"]
    del data["device"]
    with pytest.raises(TypeError, match=r"^device is missing$"):
        codec.from_json(Run, data)


def test_a_later_torchport_may_say_more() -> None:
    data = json.loads((WRITTEN / "port.json").read_text())["data"]
    assert codec.from_json(Port, data | {"new": [1]}) == codec.from_json(Port, data)


def test_no_number_is_a_text_on_disk(tmp_path: Path) -> None:
    curve = Curve("a.py:1", reference=(1.0, float("inf")), port=(1.0, None), errors=(0.0, float("inf")))
    Result("curve", (), curve).write(tmp_path / "curve.json")
    kept = Result.read(tmp_path / "curve.json")
    assert kept.data["reference"] == [1.0, "inf"] and kept.data["port"] == [1.0, None]
    assert kept.typed(Curve).data == curve


@pytest.mark.parametrize("value", [1, 1.5, "9bc2d41b", None])
def test_a_difference_is_of_numbers_or_of_checksums(value: object) -> None:
    row = {"step": 1, "kind": "upload", "name": "a.py:1", "reference": value, "port": value, "error": None}
    assert codec.from_json(Difference, row).port == value


def test_summaries_add_up() -> None:
    one = Summary(1, 2, 3, 4, 5, rules={"TP101": 2, "TP102": 1})
    other = Summary(1, 1, 1, 1, 1, rules={"TP101": 1, "TP001": 1})
    assert one + other == Summary(2, 3, 4, 5, 6, rules={"TP001": 1, "TP101": 3, "TP102": 1})
    assert (one + other).changes == 7 and (one + other).left == 11


def test_a_comparison_knows_whether_steps_were_judged() -> None:
    data = json.loads((WRITTEN / "port.json").read_text())["data"]["comparison"]
    assert codec.from_json(Comparison, data).is_stepwise
    assert not codec.from_json(Comparison, data | {"chance": ["dropout"]}).is_stepwise
    assert not codec.from_json(Comparison, data | {"method": "statistically"}).is_stepwise
