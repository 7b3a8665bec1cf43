"""The table of all calls in a report: filtered and sorted, with few rows in the page however many there are."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib import resources
from pathlib import Path

import port_results
import pytest

from torchport.compare.culprit import Culprit
from torchport.compare.replay import Replay, Row
from torchport.report.html.culprit import render_culprit_section

ROWS = 100_000
PROGRAM = Path(__file__).parent / "data" / "calls_table.mjs"


@pytest.mark.skipif(shutil.which("node") is None, reason="a browser's script needs node to run here")
def test_a_hundred_thousand_calls_are_filtered_and_sorted(tmp_path):
    rows = [
        Row(0, number, "judged", f"aten::op{number % 97}", module=f"layers.{number % 331}.fc", score=1 + number % 1000)
        for number in range(ROWS)
    ]
    data = Culprit([], Replay(rows, {0: [0]}), (1, 1)).to_json()
    page = tmp_path / "page.html"
    page.write_text(render_culprit_section(port_results.compare(culprit=data)))
    script = resources.files("torchport.report.html").joinpath("page.js")
    ended = subprocess.run(["node", str(PROGRAM), str(page), str(script)], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert not found["hidden"]
    first, some, none, all_, score, scroll = found["said"]
    assert first["count"] == all_["count"] == f"{ROWS} of {ROWS}"
    assert first["first"][:3] == [0, 0, "aten::op0"]
    wanted = [row for row in rows if "op12" in row.operator and "layers.7" in row.module]
    assert some["count"] == f"{len(wanted)} of {ROWS}"
    assert some["first"][1:3] == [wanted[0].call, wanted[0].operator]
    assert none["count"] == f"0 of {ROWS}" and none["first"] == []
    assert score["first"][5] == 1000
    assert max(one["rows"] for one in found["said"]) < 100
    assert scroll["first"][5] < score["first"][5]
    # Quick, also on a machine that does much else: a look took 0.05 s where this was written.
    assert max(one["milliseconds"] for one in found["said"]) < 3000
