"""Small projects: what changes in which file, what is a finding, and what stays.

`data/static_cases.txt` has them: `=== name`, then each file (`--- path`), after conversion where it changes
(`+++ path`), and its findings that ask for a person (`!!! line code`).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchport.convert.tree import convert_project
from torchport.rules import Style

_FILE = Path(__file__).parent / "data" / "static_cases.txt"
_PART = re.compile(r"^(---|\+\+\+|!!!) (.*)\n", re.MULTILINE)


@dataclasses.dataclass
class Case:
    """A project before and after, and the places where a person has to look."""

    name: str
    before: dict[str, str] = dataclasses.field(default_factory=dict)
    after: dict[str, str] = dataclasses.field(default_factory=dict)
    findings: list[str] = dataclasses.field(default_factory=list)


def cases() -> Iterator[Case]:
    for text in re.split(r"^=== ", _FILE.read_text(), flags=re.MULTILINE)[1:]:
        name, _, body = text.partition("\n")
        case, path = Case(name), ""
        _, *parts = _PART.split(body)
        for mark, words, content in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
            if mark == "---":
                path = words
                case.before[path] = case.after[path] = content
            elif mark == "+++":
                case.after[path] = content
            else:
                case.findings.append(f"{path}:{words}")
        yield case


CASES = list(cases())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_project(tmp_path: Path, case: Case) -> None:
    for path, text in case.before.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    converted = convert_project(tmp_path, Style.NPU)
    output = {one.name: one.output.decode() if one.changed else case.before[one.name] for one in converted}
    assert output == case.after
    found = [
        f"{one.name}:{finding.location.line} {finding.code}"
        for one in converted
        for finding in one.findings
        if finding.location is not None and not finding.fix and finding.severity != "info"
    ]
    assert sorted(found) == sorted(case.findings)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_again_nothing_changes(tmp_path: Path, case: Case) -> None:
    for path, text in case.after.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert [one.name for one in convert_project(tmp_path, Style.NPU) if one.changed] == []


def test_cases_change_and_stay() -> None:
    assert len(CASES) > 40
    assert any(case.before == case.after for case in CASES)
    assert any(case.findings for case in CASES)
