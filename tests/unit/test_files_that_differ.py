"""Which files that differ speak against a port."""

from __future__ import annotations

from typing import Any

import port_results
import pytest

from torchport.findings import Severity
from torchport.port.driver import _files_findings
from torchport.results.codec import from_json
from torchport.results.comparison import Comparison
from torchport.results.port import FileRow

CALLS = {"kind": "call", "reference": 5, "port": 5}


@pytest.mark.parametrize(
    ("kind", "changes", "severity"),
    [
        ("checkpoint", {}, Severity.ERROR),
        ("npz", {}, Severity.ERROR),
        ("csv", {}, Severity.ERROR),
        ("text", {}, Severity.INFO),
        ("image", {}, Severity.INFO),
        ("checkpoint", {"method": "statistically"}, Severity.INFO),
        ("checkpoint", {"method": "step by step at first, then statistically"}, Severity.INFO),
        ("checkpoint", {"tolerance": {"dtype": "bfloat16", "given": None}}, Severity.INFO),
        ("checkpoint", {"tolerance": {"dtype": "float32", "given": 0.1}}, Severity.INFO),
        ("checkpoint", {"forced": {"steps": 20, "bytes": 5}}, Severity.INFO),
        ("text", {"method": "statistically", "steps": CALLS}, Severity.ERROR),
    ],
)
def test_a_file_that_differs(kind: str, changes: dict[str, Any], severity: Severity) -> None:
    more = {"tolerance": {"dtype": "float32", "given": None}} | changes
    data = from_json(Comparison, port_results.comparison(**more))
    rows = [
        FileRow("out", kind, "1 tensor", "1 tensor", equal, 0.5, "largest difference in w: 0.5")
        for equal in (True, None, False)
    ]
    (found,) = _files_findings(rows, data)
    assert (found.code, found.severity) == ("TP348", severity)
