"""What the tests of the Python packages share."""

import os
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# By default an example may take 200 ms, and ten may take a second to be drawn.
settings.register_profile("without a clock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("without a clock")


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """A job that a shell starts in the background ignores Ctrl-C, and so would every process started here."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


HEAVY = {"asyncio", "h5py", "multiprocessing", "numpy", "onnx", "sympy", "torch", "torch_npu", "torchvision"}
MODULES = 160  # asyncio brings 110, and torch 1,500
# The lines that Python executes to find and to compile modules depend on whether it has compiled them before.
IMPORT = """
import sys
lines = 0
def count(frame, event, argument):
    global lines
    if frame.f_code.co_filename.startswith("<frozen "):
        return None
    lines += event == "line"
    return count
before, processes = set(sys.modules), []
sys.addaudithook(lambda event, _: processes.append(event) if event in {"subprocess.Popen", "os.fork"} else None)
sys.settrace(count)
__import__(sys.argv[1])
sys.settrace(None)
print(lines, len(processes), *sorted(set(sys.modules) - before))
"""


def _imported(module: str) -> tuple[int, int, set[str]]:
    """The lines executed and the processes started by importing `module` in a process of its own, and all modules that
    it brings."""
    # -S: without what is imported whenever Python starts, such as torchport.cuda_builds.
    command = [sys.executable, "-S", "-c", IMPORT, module]
    paths = [str(Path(__file__).parents[2] / "src"), sysconfig.get_path("purelib")]
    environment = {"PYTHONPATH": os.pathsep.join(paths)}
    run = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    lines, processes, *modules = run.stdout.split()
    return int(lines), int(processes), set(modules)


@pytest.fixture
def imports_little() -> Callable[[str], bool]:
    """Whether the import of a module executes less than that of asyncio, which takes 50 ms on a quiet machine, starts
    no process, and brings few modules and none of the heavy ones."""
    most, _, _ = _imported("asyncio")

    def little(module: str) -> bool:
        lines, processes, modules = _imported(module)
        return lines < most and not processes and len(modules) < MODULES and modules.isdisjoint(HEAVY)

    return little
