"""What the tests of the Python packages share."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """A job that a shell starts in the background ignores Ctrl-C, and so would every process started here."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def _seconds(module: str) -> float:
    """Processor time of importing `module` in a process of its own; torch must not be among what it brings."""
    clock = "time.process_time()"
    code = f"import sys, time; t = {clock}; import {module}; print({clock} - t, 'torch' in sys.modules)"
    command = [sys.executable, "-c", code]
    environment = {"PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    run = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    seconds, torch = run.stdout.split()
    assert torch == "False", module
    return float(seconds)


@pytest.fixture
def imports_quickly() -> Callable[[str], bool]:
    """Whether a module is imported within 50 ms of processor time, once in six tries. What else the machine does slows
    even that: asyncio, which takes longer on a quiet one, is imported in turn with it and is then the measure."""

    def quickly(module: str) -> bool:
        fastest = {module: float("inf"), "asyncio": float("inf")}
        for _ in range(6):
            for name, before in fastest.items():
                fastest[name] = min(before, _seconds(name))
            if fastest[module] < 0.05:
                return True
        return fastest[module] < fastest["asyncio"]

    return quickly
