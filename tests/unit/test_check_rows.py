"""check_rows.py: which of a correction, the code and the page counts, on which chip."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

TABLES = Path(__file__).parents[2] / "csrc/opapi/aclnn"
sys.path.insert(0, str(TABLES))

import check_rows  # noqa: E402

SIGNATURES = {
    "aclnnX": {
        "params": [
            ["const aclTensor*", "self", "in"],
            ["const aclScalar*", "alpha", "in"],
            ["bool", "flag", "in"],
            ["int64_t", "mode", "in"],
            ["aclTensor*", "out", "out"],
        ]
    }
}


def row(tmp_path: Path, check: dict[str, Any], corrections: str = "") -> check_rows.Row:
    (tmp_path / "checks.json").write_text(json.dumps({"aclnnX": {"evidence": "code+page", **check}}))
    (tmp_path / "corrections.toml").write_text(corrections)
    return check_rows.rows(tmp_path, SIGNATURES)["aclnnX"]


def taken(found: check_rows.Row, generation: str = "910B", parameter: str = "self") -> str | None:
    dtypes = found.parameters[parameter][generation].dtypes if parameter in found.parameters else None
    return None if dtypes is None else " ".join(dtypes)


@pytest.mark.parametrize(
    ("of", "on_910b", "on_910a"),
    [
        ({"dtypes": "f16 bf16", "910A": "f16", "page": "f32"}, "f16 bf16", "f16"),
        ({"dtypes": "", "910A": "f16", "page": "f32"}, "", "f16"),
        ({"dtypes": None, "page": "f16 bf16"}, "f16 bf16", "f16"),
        ({"dtypes": None, "except": "f16", "page": "f16 f32"}, "f32", "f32"),
        ({"dtypes": "f32", "sometimes": True, "page": "f16 f32"}, "f16 f32", "f16 f32"),
        ({"dtypes": "f32", "sometimes": True}, "f32", "f32"),
        ({"dtypes": None}, None, None),
    ],
)
def test_the_code_counts_before_the_page(
    of: dict[str, Any], on_910b: str | None, on_910a: str | None, tmp_path: Path
) -> None:
    found = row(tmp_path, {"parameters": {"self": of}})
    assert (taken(found), taken(found, "910A")) == (on_910b, on_910a)


def test_a_page_behind_the_code_is_behind_it_for_results_too(tmp_path: Path) -> None:
    of = {"dtypes": "f16 f64", "910A": "f16", "page": "f16", "differs": True}
    found = row(tmp_path, {"parameters": {"self": of, "out": {"dtypes": None, "page": "f16 f32"}}})
    assert taken(found, parameter="out") == "f16 f32 f64"
    assert taken(found, "910A", "out") == "f16 f32"


def test_a_correction_counts_before_both(tmp_path: Path) -> None:
    check = {"parameters": {"self": {"dtypes": "f32", "max_rank": 8, "page": "f16"}}}
    found = row(tmp_path, check, '[aclnnX]\nsource = "read"\nself.dtypes = "f16 bf16"\n')
    assert (taken(found), taken(found, "310P")) == ("f16 bf16", "f16")
    assert found.parameters["self"]["910B"].max_rank == 8
    found = row(tmp_path, check, '[aclnnX]\nsource = "read"\nself.max_rank = 3\n')
    assert (taken(found), found.parameters["self"]["910B"].max_rank) == ("f32", 3)


@pytest.mark.parametrize(
    ("corrections", "error"),
    [
        ('[aclnnX]\nself.dtypes = "f16"\n', "aclnnX has no source"),
        ('[aclnnX]\nsource = "read"\nslef.dtypes = "f16"\n', "aclnnX has no parameter slef"),
        ('[aclnnY]\nsource = "read"\nself.dtypes = "f16"\n', "aclnnY has no parameter self"),
    ],
)
def test_a_correction_that_fits_nothing_is_refused(corrections: str, error: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=error):
        row(tmp_path, {"parameters": {"self": {}}}, corrections)


def test_a_definition_without_the_chip_refuses_nothing(tmp_path: Path) -> None:
    """Kernels of an earlier package may be there; code that refuses the chip is another matter."""
    parameters = {"self": {"dtypes": "", "page": "f16"}, "alpha": {"dtypes": "f32"}}
    found = row(tmp_path, {"evidence": "definition", "parameters": parameters})
    assert taken(found) == "f16" and "alpha" not in found.parameters
    found = row(tmp_path, {"evidence": "code", "parameters": parameters})
    assert taken(found) == "" and taken(found, parameter="alpha") == "f32"


def test_ranks_and_pairs(tmp_path: Path) -> None:
    parameters = {"self": {"dtypes": None, "max_rank": {"910B": 8, "310P": 4}}, "out": {"max_rank": 0}}
    found = row(tmp_path, {"parameters": parameters, "same": [["out", "self"], ["alpha", "self"]]})
    ranks = [found.parameters["self"][each].max_rank for each in check_rows.GENERATIONS]
    assert ranks == [8, None, 4]
    assert "out" not in found.parameters  # 0 is the rank of a reduced result, which an attribute decides
    assert found.same == [("out", "self")]


def test_what_has_no_common_dtype_is_asked_for_one(tmp_path: Path) -> None:
    promotable = [["self", "alpha"], ["self", "flags"]]
    for dtypes, expected in (("i32 u32", [("self", "alpha")]), ("u8 i32", [])):
        of = {"self": {"dtypes": dtypes}}
        assert row(tmp_path, {"parameters": of, "promotable": promotable}).promotable == expected


def test_numbers_are_those_of_the_chip_and_of_corrections(tmp_path: Path) -> None:
    check = {"parameters": {}, "attributes": {"mode": {"910B": "0..2", "910A": "..", "310P": "0..1"}}}
    assert row(tmp_path, check).numbers == {"mode": {"910B": "0..2", "910A": "..", "310P": "0..1"}}
    one = {"parameters": {}, "attributes": {"mode": "0..2"}}
    assert row(tmp_path, one).numbers == {"mode": dict.fromkeys(("910B", "910A", "310P"), "0..2")}
    source = '[aclnnX]\nsource = "seen on a 910B"\n'
    assert row(tmp_path, one, source + 'mode.numbers = "0 7"').numbers["mode"]["910A"] == "0 7"
    assert row(tmp_path, one, source + 'mode.numbers = ".."').numbers == {}


def test_what_the_page_does_not_list_is_marked(tmp_path: Path) -> None:
    parameters = {"self": {"dtypes": "i8 f16 f32", "page": "f16 bf16", "differs": True}}
    found = row(tmp_path, {"parameters": parameters})
    assert found.unconfirmed == {"self": "i8 f32"} and found.evidence == "code and page"
    assert row(tmp_path, {"evidence": None, "parameters": {}}).evidence == "unknown"
