"""Programs that run on an NPU as they are, with a fallback or a branch of their own, run there after conversion too.

The cases stand in tests/blind/cases/no_harm.diff. As a negative control each is given a wrong edit, and some are
converted without what protects them.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import forked
import pytest

from torchport.convert import convert_tree

sys.path.insert(0, str(Path(__file__).parents[1] / "blind"))

import casefile

CASES = {case.name: case for case in casefile.load() if case.category == "no_harm"}
# Functions that protect a case, after the module that asks them.
PROTECTED = {
    "kernel_fallback": ("torchport.convert.inspection", "find_kernel_guards"),
    "npu_sibling_flag": ("torchport.rules.npu_flags", "list_deciding_values", "list_siblings_of_npu"),
    "match_npu_case": ("torchport.convert.inspection", "find_npu_ranges"),
    "npu_platform_class": ("torchport.convert.inspection", "find_npu_ranges"),
}
# The wrong edits that a converter once made of the cases, all together: file, old text, new text.
IS_AVAILABLE = "torch.cuda.is_available()", "torch.npu.is_available()"
WRONG = {
    "fixture_of_devices": [("main.py", *IS_AVAILABLE)],
    "kernel_fallback": [("main.py", 'x.device.type == "cuda"', 'x.device.type == "npu"')],
    "match_npu_case": [("main.py", 'case "cuda":', 'case "npu":')],
    "npu_flags_elsewhere": [("devices.py", *IS_AVAILABLE)],
    "npu_pairs": [("main.py", '"cuda", "nccl"', '"npu", "hccl"')],
    "npu_platform_class": [("platforms/__init__.py", *IS_AVAILABLE)],
    "npu_sibling_flag": [("main.py", *IS_AVAILABLE)],
    "slice_of_device": [("main.py", '"cuda:0"', '"npu:0"'), ("main.py", '[:4] == "cuda"', '[:4] == "npu"')],
    "transferred_type": [("main.py", 'type == "cuda"', 'type == "npu"')],
}
CANNOT_RUN = {"slice_of_device"}  # it names CUDA
# In a process without threads: only such a one is copied for the workers, with the functions that are replaced here.
CONVERT_WITHOUT = """
import importlib, sys
from pathlib import Path
from torchport.convert import convert_tree
source, output, module, *functions = sys.argv[1:]
for function in functions:
    assert callable(getattr(importlib.import_module(module), function))
    setattr(importlib.import_module(module), function, lambda *_: [])
convert_tree(Path(source), Path(output))
"""


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
    assert CASES.keys() == WRONG.keys() > PROTECTED.keys()


@pytest.mark.parametrize("name", CASES)
def test_what_ran_runs_after_the_conversion(tmp_path: Path, name: str) -> None:
    source = write(CASES[name], tmp_path / "in")
    assert runs(source) == (name not in CANNOT_RUN)
    convert_tree(source, tmp_path / "out")
    assert runs(tmp_path / "out")


@pytest.mark.parametrize("name", WRONG)
def test_wrong_edits_break_it(tmp_path: Path, name: str) -> None:
    source = write(CASES[name], tmp_path)
    for file, old, new in WRONG[name]:
        text = (source / file).read_text()
        assert old in text
        (source / file).write_text(text.replace(old, new))
    assert not runs(source)


@pytest.mark.parametrize("name", PROTECTED)
def test_without_its_protection_it_is_broken(tmp_path: Path, name: str) -> None:
    source, output = write(CASES[name], tmp_path / "in"), tmp_path / "out"
    subprocess.run([sys.executable, "-c", CONVERT_WITHOUT, source, output, *PROTECTED[name]], check=True)
    assert not runs(output)
