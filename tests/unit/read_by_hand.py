"""What people have read in CANN's sources of 60 operators, and the words it is written in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DOCUMENT: dict[str, Any] = json.loads(
    Path(__file__).with_name("data").joinpath("checks_read_by_hand.json").read_text(encoding="utf-8")
)
READ: dict[str, Any] = DOCUMENT["operators"]
# Of operators drawn by lot, what the first phase takes of each number, whatever else it is called with; null: any.
NUMBERS_READ: dict[str, dict[str, str | None]] = DOCUMENT["numbers"]
SIGNATURES: dict[str, Any] = json.loads((ROOT / "csrc/opapi/aclnn/signatures.json").read_text(encoding="utf-8"))
# In the order of the table; those that ATen does not have come behind, by name.
DTYPES = (
    *("bool", "u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64"),
    *("f16", "bf16", "f32", "f64", "c32", "c64", "c128"),
)
