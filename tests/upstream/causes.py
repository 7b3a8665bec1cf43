"""Why tests do not pass: causes.toml, which people have written."""

from __future__ import annotations

import functools
import re
import tomllib
from pathlib import Path
from typing import Any

from verdicts import status_of

TABLE = Path(__file__).parent / "causes.toml"


@functools.cache
def table() -> list[dict[str, Any]]:
    return tomllib.loads(TABLE.read_text(encoding="utf-8")).get("cause", [])


def cause_of(file: str, test: str, verdict: str) -> dict[str, Any] | None:
    """The first row that fits: `tests` the file and test, `says` the verdict."""
    for row in table():
        if re.search(row.get("tests", ""), f"{file} {test}") and re.search(row.get("says", ""), verdict):
            return row
    return None


def settled(file: str, row: dict[str, str]) -> dict[str, str]:
    """Verdicts as they are stored: what fails has its cause, by name, and a row may say that it is IMPOSSIBLE."""
    result = {}
    for test, verdict in row.items():
        status = status_of(verdict)
        if status in ("FAIL", "CRASH", "TIMEOUT", "GAP") and (cause := cause_of(file, test, verdict)):
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
