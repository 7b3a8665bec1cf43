"""Tests of MindSpore on the virtual NPU: `make mindspore` runs them with the Python of build/mindspore."""

from __future__ import annotations

import pytest

from torchport.vnpu import mindspore


def pytest_sessionstart(session: pytest.Session) -> None:
    if problems := mindspore.find_problems():
        sentences = " ".join(f"{each.sentence} ({each.command})" for each in problems)
        pytest.exit(f"tests/mindspore needs an environment of its own, `make mindspore`. {sentences}", 2)
