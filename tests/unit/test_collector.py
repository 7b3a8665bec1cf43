"""The objects that the garbage collector of a recorded run sees: mostly with a small module in torch's place."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from torchport import startup
from torchport.findings import Result
from torchport.record import recording, session

TORCH = """
import gc
print("while torch is imported:", gc.isenabled())
class Node: pass
first = Node(); first.itself = first
"""
AFTER = """
import gc
from torchport import collector
collector.spare_modules()
{before}
try:
    import torch
except ImportError as error:
    print(error)
print("after:", gc.isenabled(), gc.get_freeze_count() > 1000)
class Node:
    def __del__(self): print("collected")
node = Node(); node.itself = node; del node
gc.collect()
"""


def run(folder: Path, module: str, before: str = "") -> list[str]:
    (folder / "torch.py").write_text(module)
    (folder / "script.py").write_text(AFTER.format(before=before))
    run = subprocess.run([sys.executable, folder / "script.py"], capture_output=True, text=True, check=True)
    return run.stdout.splitlines()


def test_torch_is_spared_and_garbage_of_the_script_is_not(tmp_path: Path) -> None:
    assert run(tmp_path, TORCH) == ["while torch is imported: False", "after: True True", "collected"]


def test_a_collector_that_the_script_has_switched_off_stays_off(tmp_path: Path) -> None:
    assert run(tmp_path, TORCH, "gc.disable()")[1] == "after: False True"


@pytest.mark.parametrize("before", ["", "gc.disable()"])
def test_an_import_that_fails_leaves_the_collector_as_it_was(tmp_path: Path, before: str) -> None:
    found = run(tmp_path, "raise ImportError('no torch here')", before)
    assert found == ["no torch here", f"after: {not before} False", "collected"]


@pytest.mark.processes
def test_the_reference_of_a_port_spares_torch(tmp_path: Path) -> None:
    script = "import torch, gc; print(gc.isenabled(), gc.get_freeze_count() > 100_000)"
    Result(recording.COMMAND, data={"recording": recording.VERSION}).write(tmp_path / recording.HEAD)
    options = session.Options(str(tmp_path), side=session.REFERENCE)
    environment = os.environ | {
        "PYTHONPATH": startup.FOLDER,
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        session.VARIABLE: options.to_variable(),
    }
    words = [sys.executable, "-c", script]
    run = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    assert run.stdout == "True True\n"
