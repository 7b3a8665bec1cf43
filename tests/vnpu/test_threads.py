"""Threads that call in while another destroys a stream, resets a device or captures."""

from __future__ import annotations

import os

import compiled
import pytest

pytestmark = pytest.mark.device
SECONDS = float(os.environ.get("TORCHPORT_THREADS_SECONDS", "2"))


@pytest.mark.timeout(SECONDS + 600)
@pytest.mark.parametrize("mode", ["mix", "destroy", "reset", "capture"])
def test_threads(mode: str) -> None:
    result = compiled.run("threads", mode, str(SECONDS), VNPU_DEVICES="2")
    assert result.returncode == 0, result.stderr[-6000:]
    rounds, _, refused = (int(word) for word in result.stdout.split() if word.isdigit())
    assert rounds > 5 * SECONDS  # it goes on for as long as that takes
    # The calls that lose get an error, and only there.
    assert (refused > 0) == (mode in ("destroy", "reset"))
