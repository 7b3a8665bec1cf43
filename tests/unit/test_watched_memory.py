"""tests/conformance/watched.py: how much memory a group of processes has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "conformance"))

import watched

GROUP = """
import os, signal
kept = bytearray(os.urandom(1 << 20)) * 64
for _ in range(4):
    if os.fork() == 0:
        own = bytearray(os.urandom(1 << 20)) * 8
        print("ready", flush=True)
        signal.pause()
print("ready", flush=True)
signal.pause()
"""


def test_what_forks_have_in_common_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 MiB and four times 8 of their own, beside Python; without a look into it, each has the 64."""
    with subprocess.Popen(
        [sys.executable, "-S", "-c", GROUP], stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        try:
            for _ in range(5):
                process.stdout.readline()
            monkeypatch.setattr(watched, "MUCH_KIB", 1 << 10)
            once = watched.group_resident(process.pid) >> 10
            monkeypatch.setattr(watched, "MUCH_KIB", 1 << 30)
            each = watched.group_resident(process.pid) >> 10
        finally:
            os.killpg(process.pid, 9)
    assert 96 <= once < 160
    assert each > 320
