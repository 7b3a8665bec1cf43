"""What tests/conformance has found: the lists are well-formed, and they keep the promise made of them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

STATUS = Path(__file__).parents[1] / "conformance/status.json"
STATUSES = {"PASS", "FAIL", "GAP", "NOT_OFFERED"}  # nothing may stay in CRASH or TIMEOUT
DTYPES = {"float32", "float16", "bfloat16", "int64", "int32", "bool", "refusals", "layouts"}
WHO_REFUSES = {"fallback", "torch_npu", "cann", "op_db"}


def test_lists_are_well_formed_and_no_pair_crashes_or_hangs() -> None:
    rows = json.loads(STATUS.read_text(encoding="utf-8"))
    assert len(rows) > 600
    for op, row in rows.items():
        for dtype, verdict in row.items():
            status, _, reason = verdict.partition(": ")
            assert dtype in DTYPES and status in STATUSES, (op, dtype, verdict)
            assert (status == "PASS") == (reason == ""), (op, dtype, verdict)
            if status == "NOT_OFFERED":
                assert reason.partition(":")[0] in WHO_REFUSES, (op, dtype, verdict)


def test_of_what_torch_npu_offers_95_percent_pass() -> None:
    rows = json.loads(STATUS.read_text(encoding="utf-8"))
    counts = Counter(verdict.partition(":")[0] for row in rows.values() for verdict in row.values())
    offered = counts.total() - counts["NOT_OFFERED"]
    assert counts["PASS"] >= 0.95 * offered, counts
