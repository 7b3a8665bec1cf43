"""Why tests do not pass: causes.toml, which people have written."""

from __future__ import annotations

import functools
import json
import re
import tomllib
from pathlib import Path
from typing import Any

from verdicts import status_of

TABLE = Path(__file__).parent / "causes.toml"
# torch_npu leaves these tests out on hardware (DISABLED_TESTS_FILE, its test/README.md). They are run here all the same.
GIVEN_UP = {"status": "IMPOSSIBLE", "name": "in torch_npu's own list of tests that hardware does not pass"}


@functools.cache
def table() -> list[dict[str, Any]]:
    return tomllib.loads(TABLE.read_text(encoding="utf-8")).get("cause", [])


def cause_of(file: str, test: str, verdict: str) -> dict[str, Any] | None:
    """The first row that fits: `tests` the file and test, `says` the verdict."""
    for row in table():
        if re.search(row.get("tests", ""), f"{file} {test}") and re.search(row.get("says", ""), verdict):
            return row
    return None


def given_up(folder: Path, name: str | None) -> frozenset[str]:
    """Class.method of the tests that the source's own list leaves out, which is file `name` in its folder of tests."""
    if name is None:
        return frozenset()
    listed = json.loads((folder / name).read_text(encoding="utf-8"))
    found = (re.fullmatch(r"(\w+) \((?:\w+\.)*(\w+)\)", test) for test in listed)
    return frozenset(f"{one[2]}.{one[1]}" for one in found if one)


def settled(file: str, row: dict[str, str], without: frozenset[str] = frozenset()) -> dict[str, str]:
    """Verdicts as they are stored: what fails has its cause, by name, and a row may say that it is IMPOSSIBLE. Of tests
    in `without` a failure says nothing of us; a crash or a test without end does."""
    result = {}
    for test, verdict in row.items():
        status = status_of(verdict)
        if status in ("FAIL", "CRASH", "TIMEOUT", "GAP"):
            listed = GIVEN_UP if test in without and status in ("FAIL", "GAP") else None
            if cause := listed or cause_of(file, test, verdict):
                verdict = f"{cause.get('status', status)}: {cause['name']}"
        result[test] = verdict
    return result


def show(verdicts: dict[str, dict[str, str]]) -> None:
    groups: dict[str, list[str]] = {}
    for file, row in verdicts.items():
        for test, verdict in row.items():
            if status_of(verdict) not in ("PASS", "VACUOUS", "SKIP"):
                groups.setdefault(verdict, []).append(f"{file} {test}")
    for verdict, tests in sorted(groups.items(), key=lambda group: -len(group[1])):
        print(f"  {len(tests)}  {verdict}")
        for test in tests:
            print(f"       {test}")
