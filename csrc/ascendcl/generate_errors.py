"""Turn the table of faults into C++: generate_errors.py faults.toml errors.inc

Writes, for error.cpp, which has included CANN's headers and defined `Row` and `Answer`:

    static_asserts      that the numbers are those of the headers, for the names that these define
    row_of(FaultKind)   the row of a kind; a kind without one does not compile
    kInternal           the row of what is no fault

The head of faults.toml documents the keys. Runs at build with any Python >= 3.11.
"""

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

FACES = ("runtime", "operator", "collective")
OTHER_TABLES = {"codes", "defaults"}


def answer(name: str, face: str, row: dict[str, Any], table: dict[str, Any]) -> str:
    """The initializer of one answer; raises ValueError for one that breaks the schema."""
    code, report, text = row.get(face) or table["defaults"][face]
    if code not in table["codes"]:
        raise ValueError(f"faults.toml: {name}.{face} names {code}, which `codes` does not have")
    return f"{{{table['codes'][code]}, {json.dumps(report)}, {json.dumps(text)}}}"


def row(name: str, table: dict[str, Any]) -> str:
    """The initializer of one row."""
    answers = (answer(name, face, table[name], table) for face in FACES)
    return f"constexpr Row k{name} = {{{', '.join(answers)}}};"


def written(table: dict[str, Any]) -> str:
    """The whole of errors.inc."""
    kinds = [name for name in table if name not in OTHER_TABLES]
    lines = ["// Generated from faults.toml; do not edit."]
    lines += [
        f"static_assert({name} == {number});"
        for name, number in table["codes"].items()
        if name.startswith("ACL_ERROR_")
    ]
    lines += [row(name, table) for name in kinds]
    lines += ["const Row &row_of(FaultKind kind) {"]
    lines += ["    switch (kind) {"]
    lines += [f"        case FaultKind::{name}:\n            return k{name};" for name in kinds if name != "Internal"]
    lines += ["    }", "    return kInternal;", "}", ""]
    return "\n".join(lines)


def main(source: str, output: str) -> None:
    """Read `source` (TOML), write `output` (C++)."""
    table = tomllib.loads(Path(source).read_text(encoding="utf-8"))
    Path(output).write_text(written(table), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
