"""Runs a program of tests/mindspore/programs with MindSpore on the virtual NPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from torchport.vnpu import mindspore

PROGRAMS = Path(__file__).with_name("programs")
# What MindSpore and we write where something is wrong; at the end of a process there is none of them.
WRONG = ("[ERROR]", "[CRITICAL]", "Traceback", "virtual NPU,", "terminate called", "Segmentation")


def run(name: str, *words: str, cwd: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    """The ended process, with its output as text."""
    environ = {**os.environ, **mindspore.environment(), "OMP_NUM_THREADS": "1", "GLOG_v": "3", **variables}
    return subprocess.run(
        [sys.executable, str(PROGRAMS / name), *words],
        env=environ,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=500,
        check=False,
        cwd=cwd,
    )


def answers(result: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    """The lines of JSON that the program has printed."""
    return [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]


def clean(result: subprocess.CompletedProcess[str]) -> None:
    """It has ended well, without a word of an error."""
    text = result.stdout + result.stderr
    assert result.returncode == 0, text[-3000:]
    assert [line for line in text.splitlines() if any(word in line for word in WRONG)] == []


def cases(program: str, cwd: Path) -> dict[str, Any]:
    """What a program that tries one case after the other says of each, by name."""
    result = run(program, cwd=cwd)
    found = {each["case"]: each for each in answers(result)}
    if not any("error" in each for each in found.values()):
        clean(result)
    assert result.returncode == 0, result.stderr[-2000:]
    return found
