"""What operators allocate on the host besides their operands, as the trace of the operators' tests tells it.

`workspace.json` holds it for each operator that allocates: "in", the ATen functions its kernel calls that do, and
"most", the largest sum of what was allocated at one time over the bytes of all operands. `pytest tests/vnpu/ops
--update-workspace` stores it anew, docs/reference/workspace.md shows it, and test_coverage.py compares.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

STORED = Path(__file__).with_name("workspace.json")
SCRATCH = re.compile(r" call scratch\((\w+), bytes=(\d+), in=([^,]+), (.*)\) -> ok$")
TENSOR = re.compile(r"\b([A-Za-z]+\d*)\[([\d, ]*)\]")  # as in self=float32[2, 3]
BYTES = {
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "float16": 2,
    "bfloat16": 2,
    "int16": 2,
    "UInt16": 2,
    "float32": 4,
    "int32": 4,
    "UInt32": 4,
    "float64": 8,
    "int64": 8,
    "UInt64": 8,
    "ComplexHalf": 4,
    "ComplexFloat": 8,
    "ComplexDouble": 16,
}
NUMBERS = 24  # bytes: what mere numbers take says nothing


def operand_bytes(arguments: str) -> int:
    """Bytes of the tensors in a traced call."""
    return sum(
        BYTES.get(dtype, 1) * math.prod(int(size) for size in sizes.split(",") if size.strip())
        for dtype, sizes in TENSOR.findall(arguments)
    )


def measured(trace: Iterable[str]) -> dict[str, dict[str, Any]]:
    """What the lines of a trace say, in the form of `workspace.json`."""
    found: dict[str, dict[str, Any]] = {}
    for line in trace:
        if (match := SCRATCH.search(line.rstrip())) is None:
            continue
        name, held, functions, arguments = match.groups()
        if int(held) < NUMBERS:
            continue
        row = found.setdefault(name, {"in": set(), "most": 0.0})
        row["in"].update(functions.split("+"))
        row["most"] = max(row["most"], int(held) / max(operand_bytes(arguments), 256))
    return {name: {"in": sorted(row["in"]), "most": round(row["most"], 1)} for name, row in sorted(found.items())}


def stored() -> dict[str, dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = json.loads(STORED.read_text(encoding="utf-8"))
    return rows


def store(rows: dict[str, dict[str, Any]]) -> None:
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
    STORED.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
