"""`--update-counts` stores what was counted, after a change that was meant."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-counts", action="store_true", help="store the counts of this run as counts.json")
