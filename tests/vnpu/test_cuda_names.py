"""What a script under `torchport run` gets for each public name of torch.cuda: as stored, and nothing uncovered unsaid."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).parents[2] / "tools" / "cuda_names.py"
PAGE = TOOL.parents[1] / "docs" / "torch_cuda.md"
STORED = json.loads(Path(__file__).with_name("cuda_names.json").read_text("utf-8"))


def run(word: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, TOOL, word], capture_output=True, text=True, check=False)


def test_every_name_is_answered_as_stored() -> None:
    checked = run("--check")
    assert checked.returncode == 0, f"{checked.stdout}{checked.stderr}\nwhere it is meant: {TOOL.name} stores it"
    assert len(STORED) > 200


def test_page_is_up_to_date() -> None:
    assert PAGE.read_text("utf-8") == run("--page").stdout


def test_what_is_not_covered_is_explained() -> None:
    uncovered = {name: note for name, (kind, note) in STORED.items() if kind == "open"}
    assert all(uncovered.values()), uncovered
