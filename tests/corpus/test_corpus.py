"""Thousands of files of real packages: nothing breaks, and every rule does as much as it did yesterday.

`make corpus` runs it; it needs a package index once. `counts.json` holds what each rule did to each package; after a
change that is meant to do more or less, `make corpus UPDATE=1` stores the new counts, and the commit shows them.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conversion import Counts, convert
from packages import FOLDER, trees

ROOT = Path(__file__).parents[2]
STORED = Path(__file__).parent / "counts.json"


@pytest.fixture(scope="module")
def counted(request: pytest.FixtureRequest) -> dict[str, Counts]:
    counted = {}
    begin, scratch = time.monotonic(), FOLDER / "converted"
    for name, tree in trees().items():
        shutil.rmtree(scratch, ignore_errors=True)
        counted[name] = convert(tree, scratch / tree.name)
    shutil.rmtree(scratch, ignore_errors=True)
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        _print(counted, time.monotonic() - begin)
    return counted


def _print(counted: dict[str, Counts], seconds: float) -> None:
    print(f"\n{'package':<30}{'files':>7}{'python':>8}{'changed':>9}{'edits':>7}{'CUDA %':>8}")
    total = Counts()
    for name, one in counted.items():
        _row(name, one)
        for field in ("files", "python", "changed", "edits", "cuda_edits"):
            setattr(total, field, getattr(total, field) + getattr(one, field))
    _row("all", total)
    print(f"two conversions and all checks in {seconds:.0f} s")


def _row(name: str, one: Counts) -> None:
    share = f"{100 * one.cuda_edits / one.edits:.1f}" if one.edits else ""
    print(f"{name:<30}{one.files:>7}{one.python:>8}{one.changed:>9}{one.edits:>7}{share:>8}")


def test_is_large(counted: dict[str, Counts]) -> None:
    assert sum(one.python for one in counted.values()) >= 2000


def test_nothing_goes_wrong(counted: dict[str, Counts]) -> None:
    """No crash, no file given up; what compiled compiles; bytes outside of edits and files without CUDA are the same;
    converting again changes nothing."""
    assert [f"{name}: {problem}" for name, one in counted.items() for problem in one.wrong] == []


def test_changes_are_about_cuda(counted: dict[str, Counts]) -> None:
    """But for the import that a started file gets, whatever it says."""
    edits = sum(one.edits - one.rules["TP001 applied"] for one in counted.values())
    about = sum(one.cuda_edits for one in counted.values())
    assert about >= 0.95 * edits, f"{about} of {edits}"


def test_the_named_set_is_fast_and_small(counted: dict[str, Counts]) -> None:
    """Under 2 s on two idle cores, which is 4 s of CPU time whatever else the machine does, and under 300 MiB."""
    assert counted
    command = [sys.executable, ROOT / "benchmarks" / "convert.py", "--json", "--repeat", "2"]
    figures = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert 90 <= figures["python_files"] <= 110, "the named set was not measured"
    assert figures["cpu_seconds"] / 2 < 2
    assert figures["all_processes_mib"] < 300


def test_counts_are_those_stored(counted: dict[str, Counts], request: pytest.FixtureRequest) -> None:
    now = {name: one.flat() for name, one in counted.items()}
    if request.config.getoption("--update-counts"):
        STORED.write_text(json.dumps(now, indent=1) + "\n")
    stored = json.loads(STORED.read_text())
    differences = [
        f"{package} {name}: {stored.get(package, {}).get(name, 0)} -> {now.get(package, {}).get(name, 0)}"
        for package in sorted(stored.keys() | now.keys())
        for name in sorted(stored.get(package, {}).keys() | now.get(package, {}).keys())
        if stored.get(package, {}).get(name, 0) != now.get(package, {}).get(name, 0)
    ]
    assert not differences, "\n".join(differences)
