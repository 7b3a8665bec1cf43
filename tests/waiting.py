"""Waiting for what another process or thread does, without a clock that decides over a test."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")


def until(condition: Callable[[], Value], pause: float = 0.01) -> Value:
    """The first true value of `condition`, which is asked again after every `pause` (seconds).

    It has no deadline of its own: on a busy machine every deadline is too short at some time. A condition that never
    comes true is ended by pytest's `timeout` (pyproject.toml), with the stack of the test that waits. A condition that
    can become impossible, such as a file of a process that may have died, should raise then.
    """
    while not (value := condition()):
        time.sleep(pause)
    return value
