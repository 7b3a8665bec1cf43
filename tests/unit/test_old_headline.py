"""The summary of an analysis tells code that is too old from code that needs CUDA."""

from __future__ import annotations

import re
from pathlib import Path

from torchport.analyze import analyze_tree
from torchport.convert import convert_tree
from torchport.report import render_verdict
from torchport.report.html import render_page

OLD = """\
import torch
import timm
assert timm.__version__ == "0.3.2"
from torch._six import inf
def train(loader):
    x = torch.zeros(3).cuda()
    return torch.symeig(x)
"""


def test_the_first_lines_say_that_it_is_old(tmp_path: Path) -> None:
    (tmp_path / "util").mkdir()
    (tmp_path / "util" / "misc.py").write_text(OLD)
    result = analyze_tree(tmp_path)
    old = result.data["summary"].old
    assert (old.changes, old.left, old.unimportable, old.torch) == (1, 2, ("util/misc.py:3",), "2.13.0")
    first, counts, answer, *_ = render_verdict(result).splitlines()
    assert first == (
        "Old torch: 3 places need a change for torch 2.13 and the packages beside it, whatever the device; convert makes "
        "1, 2 are left to you; 1 file cannot be imported as it is: util/misc.py:3."
    )
    assert counts.startswith("CUDA to NPU: 1 file: 2 changes are automatic")
    assert answer == (
        "Of CUDA, nothing blocks the port, and nothing needs a decision. 100 % of the places are automatic."
    )
    page = render_page(result)
    heading = re.search(r"<section class=\"verdict (\w+)\">.*?<h2>(.*?)</h2><p>(.*?)</p>", page)
    assert heading and heading[1] == "bad" and heading[2] == first.rstrip(".") and "Of CUDA" in heading[3]
    assert result.to_json()["data"]["summary"]["old"]["unimportable"] == ["util/misc.py:3"]


def test_code_of_today_has_no_line_about_old_torch(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import torch\nx = torch.zeros(3).cuda()\n")
    result = analyze_tree(tmp_path)
    assert "Old torch" not in render_verdict(result) + render_page(result)
    assert result.data["summary"].old.places == 0


def test_a_converted_file_says_what_is_left_of_it(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(OLD)
    convert_tree(tmp_path / "a.py", tmp_path / "out")
    old = analyze_tree(tmp_path / "out").data["summary"].old
    assert (old.changes, old.left) == (0, 2)
