"""docs/doctor.md and docs/virtual_npu.md name what is there: every check of the doctor, every failure to provoke."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from torchport.doctor import packages
from torchport.vnpu.variables import VARIABLES

ROOT = Path(__file__).parents[2]


def names() -> set[str]:
    """The names of checks that stand in the code as they are."""
    found = set()
    for path in (ROOT / "src/torchport/doctor").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Call(func=ast.Name(id="Check"), args=[ast.Constant(value=str(name)), *_]):
                    found.add(name)
    return found


def test_every_check_is_on_the_page() -> None:
    rows = re.findall(r"^\| (`.+?) \|", (ROOT / "docs/doctor.md").read_text("utf-8"), re.MULTILINE)
    listed = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    # Variables have checks of their names, which the row of `environment` speaks of.
    missing = {name for name in names() if not name.isupper()} - listed
    assert missing == set()
    made = {"torch", "torch_npu", *packages.NEEDED, "cmake", "ninja", "torchvision", "torchaudio"}
    assert listed == {name for name in names() if not name.isupper()} | made


def test_every_failure_to_provoke_is_on_its_page_and_has_a_source() -> None:
    code = (ROOT / "csrc/device/injection.cpp").read_text("utf-8")
    forms = re.findall(r'\{"([a-z]+@[^"]+)", "', code)
    assert len(forms) == 9
    page = (ROOT / "docs/virtual_npu.md").read_text("utf-8")
    rows = {
        row[0]: row[1:] for row in re.findall(r"^\| `([a-z]+@[^`]+)` \| (.+) \| (.+) \| (.*?) ?\|$", page, re.MULTILINE)
    }
    assert list(rows) == forms
    for form, (_, raised, source) in rows.items():
        assert bool(source.strip()) == (raised != "nothing"), form
    (variable,) = (one for one in VARIABLES if one.name == "VNPU_FAULTS")
    for form in forms:
        assert form.partition(":")[0] in str(variable), form
