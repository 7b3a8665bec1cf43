"""The lists in status/: one file a suite, one row a test file, in it how many tests pass and a line for each other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).parent / "status"

Verdicts = dict[str, dict[str, str]]  # of each test file, of each test
# The tests of a row that pass are not named.
COUNT = "PASS"


def read(suite: str) -> Verdicts:
    path = FOLDER / f"{suite}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def write(suite: str, found: Verdicts) -> None:
    FOLDER.mkdir(exist_ok=True)
    rows = ",\n".join(f"{json.dumps(file)}: {_lines(shortened(row))}" for file, row in sorted(found.items()))
    (FOLDER / f"{suite}.json").write_text("{\n" + rows + "\n}\n", encoding="utf-8")


def shortened(row: dict[str, str]) -> dict[str, object]:
    """A row as it is stored; one that has been read is so already."""
    if isinstance(row.get(COUNT), int):
        return dict(row)
    others = {test: verdict for test, verdict in sorted(row.items()) if verdict != "PASS"}
    return {COUNT: len(row) - len(others), **others}


def compared(known: Verdicts, found: Verdicts) -> Iterator[tuple[str, str, str]]:
    """Name, verdict before and verdict now of each test: what a stored row does not name has passed. Of a file without
    a row only what fails is worth a word."""
    for file, row in sorted(found.items()):
        before = known.get(file)
        for test, verdict in sorted(row.items()):
            if before is not None:
                yield f"{file} {test}", before.get(test, "PASS"), verdict
            elif not verdict.startswith(("PASS", "VACUOUS", "SKIP")):
                yield f"{file} {test}", "NEW", verdict


def _lines(row: dict[str, object]) -> str:
    return "{" + ",\n  ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in row.items()) + "}"
