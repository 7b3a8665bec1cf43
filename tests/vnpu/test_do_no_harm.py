"""Programs that run on an NPU as they are, with a fallback or a branch of their own, run there after conversion too.

The cases stand in tests/blind/cases/no_harm.diff. As a negative control, each is converted without what protects it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import forked
import pytest

from torchport.convert import convert_tree, inspection
from torchport.rules import npu_branches

sys.path.insert(0, str(Path(__file__).parents[1] / "blind"))

import casefile

CASES = {case.name: case for case in casefile.load() if case.category == "no_harm"}
# The function that protects a case, and the module that asks it.
PROTECTED = {
    "kernel_fallback": (inspection, "find_kernel_guards"),
    "npu_sibling_flag": (npu_branches.npu_flags, "list_deciding_values"),
    "match_npu_case": (inspection, "find_npu_ranges"),
    "npu_platform_class": (inspection, "find_npu_ranges"),
}


def write(case: casefile.Case, folder: Path) -> Path:
    for file in case.files:
        (folder / file.path).parent.mkdir(parents=True, exist_ok=True)
        (folder / file.path).write_bytes(file.data())
    return folder


def runs(folder: Path) -> bool:
    """Whether main.py of the folder prints OK, on the virtual NPU and without torchport's redirection."""
    program = f"import os, runpy, sys\nos.chdir({str(folder)!r})\nsys.path.insert(0, {str(folder)!r})\n"
    ended = forked.python(program + "import torch_npu\nrunpy.run_path('main.py', run_name='__main__')")
    return ended.returncode == 0 and ended.stdout.split()[-1:] == ["OK"]


def test_every_case_has_its_control() -> None:
    assert CASES.keys() - PROTECTED.keys() == {"slice_of_device"}  # which names CUDA, and does not run as it is


@pytest.mark.parametrize("name", CASES)
def test_what_ran_runs_after_the_conversion(tmp_path: Path, name: str) -> None:
    source = write(CASES[name], tmp_path / "in")
    assert runs(source) == (name in PROTECTED)
    convert_tree(source, tmp_path / "out")
    assert runs(tmp_path / "out")


@pytest.mark.parametrize("name", PROTECTED)
def test_without_its_protection_it_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    module, function = PROTECTED[name]
    monkeypatch.setattr(module, function, lambda *_: [])
    if name == "npu_sibling_flag":
        monkeypatch.setattr(module, "list_siblings_of_npu", lambda *_: [])
    convert_tree(write(CASES[name], tmp_path / "in"), tmp_path / "out")
    assert not runs(tmp_path / "out")
