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
    """Processor time of importing `module`, the least of three processes; torch must not be among what it brings."""
    clock = "time.process_time()"
    code = f"import sys, time; t = {clock}; import {module}; print({clock} - t, 'torch' in sys.modules)"
    fastest = float("inf")
    for _ in range(3):
        command = [sys.executable, "-c", code]
        environment = {"PYTHONPATH": str(Path(__file__).parents[2] / "src")}
        run = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        seconds, torch = run.stdout.split()
        assert torch == "False", module
        fastest = min(fastest, float(seconds))
    return fastest


@pytest.fixture
def imports_quickly() -> Callable[[str], bool]:
    """Whether a module is imported within 50 ms of processor time. What else the machine does slows even that: then
    asyncio, which takes as long on a quiet one, is the measure."""
    return lambda module: _seconds(module) < 0.05 or _seconds(module) < _seconds("asyncio")
