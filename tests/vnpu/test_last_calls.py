"""What a C++ program still calls when the variables of its threads are gone."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import ascendcl
import pytest

pytestmark = pytest.mark.device

SOURCE = Path(__file__).with_name("data") / "last_calls.cpp"


def test_a_static_destructor_may_call_and_fail(tmp_path: Path) -> None:
    program = tmp_path / "last_calls"
    library = ascendcl.LIBRARY
    # The sanitizers' runtime, which `tools/sanitized` loads in front, is for the program.
    plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    command = ["g++", "-std=c++20", SOURCE, "-o", program, library, f"-Wl,-rpath,{library.parent}"]
    subprocess.run(command, env=plain, check=True)

    ended = subprocess.run([program], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    first, last = ended.stdout.splitlines()
    assert first == f"main: {ascendcl.RT_INVALID_HANDLE}"
    assert last.startswith(f"exit: {ascendcl.RT_CONTEXT_NULL} [PID: ")
    assert "Invalid_Argument(EE1001): The argument is invalid. Reason: the context is a null pointer." in last
    assert "This thread has not chosen a device" in last
