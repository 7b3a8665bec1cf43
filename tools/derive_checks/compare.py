"""What a derived table knows, and which single decisions of a list it confirms."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from table import Row, dtypes_on
from words import ORDER

# The types that torch has.
COMPARED = set(ORDER[:16])


def accepted(row: Row, parameter: str, chip: str = "910B") -> set[str] | None:
    """What a row accepts of a parameter: by the code or the definition, else by the page; None where neither says."""
    known = row["parameters"].get(parameter, {})
    dtypes = dtypes_on(known, chip)
    if dtypes is None and "page" in known and "except" not in known:
        dtypes = str(known["page"])
    if dtypes is None:
        return None
    return set(dtypes.split()) & COMPARED


def compare(rows: dict[str, Row], corrections: Path | None) -> Iterator[str]:
    """The lines to print."""
    evidence = Counter(str(row["evidence"]) for row in rows.values())
    yield f"{len(rows)} operators: " + ", ".join(f"{count} {kind}" for kind, count in evidence.most_common())
    ranks = sum(any("max_rank" in p for p in row["parameters"].values()) for row in rows.values())
    yield f"{ranks} operators limit the rank of a parameter"
    if corrections:
        yield from confirmed(rows, corrections)


def confirmed(rows: dict[str, Row], corrections: Path) -> Iterator[str]:
    """How many corrections the table confirms, and the others."""
    listed = json.loads(corrections.read_text(encoding="utf-8"))["corrections"]
    single = [row for row in listed if row["parameter"] != "*"]
    others = []
    for correction in single:
        name, parameter, word = correction["operator"], correction["parameter"], correction["dtype"]
        now = accepted(rows[name], parameter) if name in rows else None
        said = None if now is None else "accept" if word in now else "refuse"
        if said != correction["should_be"]:
            others.append(f"  {name} {parameter} {word}: {correction['should_be']}, the table: {said or 'no list'}")
    yield f"{len(single) - len(others)} of {len(single)} corrections confirmed; not:"
    yield from others
