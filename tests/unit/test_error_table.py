"""faults.toml, what is compiled of it, and its page."""

from __future__ import annotations

import copy
import importlib.util
import re
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from torchport.knowledge.errors import answers

ROOT = Path(__file__).parents[2]
TABLE = tomllib.loads((ROOT / "src/torchport/knowledge/faults.toml").read_text(encoding="utf-8"))


def module(path: str) -> ModuleType:
    """A script that is no module of the package."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec and spec.loader
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def fault_kinds() -> list[str]:
    """The kinds that the device knows."""
    header = (ROOT / "csrc/device/fault.h").read_text(encoding="utf-8")
    body = re.search(r"enum class FaultKind \{(.*?)\};", header, re.DOTALL)
    assert body
    return re.findall(r"^\s*(\w+),", body[1], re.MULTILINE)


def test_every_kind_of_fault_has_a_row_and_no_row_is_left_over() -> None:
    assert len(fault_kinds()) > 20
    assert sorted(kind.name for kind in answers.load_fault_kinds()) == sorted([*fault_kinds(), "Internal"])


def test_reports_are_titles_with_codes() -> None:
    for kind in answers.load_fault_kinds():
        for answer in kind.answers.values():
            assert re.fullmatch(r"\w*\(E[A-Z1-9]\d{4}\)", answer.report), (kind.name, answer)


@pytest.mark.parametrize(
    ("kind", "face", "code", "report"),
    [
        ("InvalidArgument", "operator", 161002, "AclNN_Parameter_Error(EZ1001)"),
        ("NullArgument", "operator", 161001, "AclNN_Parameter_Error(EZ1001)"),
        ("KernelFailure", "runtime", 507015, "(EZ9999)"),
        ("VectorFailure", "runtime", 507035, "(EZ9999)"),
        ("DeviceCpuFailure", "runtime", 507018, "(E39999)"),
        ("GraphFailure", "runtime", 507011, "(EZ9999)"),
        ("OutOfMemory", "runtime", 207001, "Memory_Allocation_Failure(EL0004)"),
        ("HostOutOfMemory", "operator", 361001, "Memory_Allocation_Failure(EL0004)"),
        ("RankSilent", "runtime", 507048, "Communication_Error_Timeout(EI0002)"),
        ("Timeout", "collective", 9, "Communication_Error_Get_Socket(EI0006)"),
    ],
)
def test_what_logs_of_hardware_have(kind: str, face: str, code: int, report: str) -> None:
    row = next(row for row in answers.load_fault_kinds() if row.name == kind)
    assert (row.answers[face].code, row.answers[face].report) == (code, report)


def broken(change: str) -> dict[str, Any]:
    """The table with a mistake in it."""
    table = copy.deepcopy(TABLE)
    if change == "unknown code":
        table["Timeout"]["runtime"][0] = "ACL_ERROR_NONSENSE"
    elif change == "no runtime":
        del table["Timeout"]["runtime"]
    elif change == "no source":
        del table["Timeout"]["source"]
    elif change == "another key":
        table["Timeout"]["driver"] = table["Timeout"]["runtime"]
    return table


@pytest.mark.parametrize("change", ["unknown code", "no runtime", "no source", "another key"])
def test_a_row_that_breaks_the_schema_is_noticed(change: str) -> None:
    assert answers.parse_fault_kinds(broken("nothing")) == answers.load_fault_kinds()
    with pytest.raises(ValueError, match="Timeout"):
        answers.parse_fault_kinds(broken(change))


def test_what_is_compiled_is_the_table() -> None:
    written = module("csrc/ascendcl/generate_errors.py").written
    text = written(TABLE)
    for name in fault_kinds():
        assert text.count(f"case FaultKind::{name}:") == 1
    assert '{507035, "(EZ9999)", "The error from device(chipId:{device}, dieId:0), ' in text
    assert "static_assert(ACL_ERROR_RT_VECTOR_CORE_EXCEPTION == 507035);" in text
    with pytest.raises(ValueError, match="ACL_ERROR_NONSENSE"):
        written(broken("unknown code"))


def test_a_wrong_row_makes_another_page(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = module("tools/reference_pages.py")
    page = (ROOT / "docs/reference/errors.md").read_text(encoding="utf-8")
    assert pages.errors() == page
    for kind, change in (("VectorFailure", 507015), ("Internal", 3)):
        table = copy.deepcopy(TABLE)
        table["codes"][table[kind]["runtime"][0]] = change
        monkeypatch.setattr(pages, "load_fault_kinds", lambda table=table: answers.parse_fault_kinds(table))
        assert pages.errors() != page
