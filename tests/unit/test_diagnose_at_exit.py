"""What a script that `torchport run` has started says when an exception ends it; nothing else of it changes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from torchport import startup

FULL = "NPU out of memory. Tried to allocate 2.00 GiB (NPU 0; 60.97 GiB total capacity)"


def ended(program: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": startup.FOLDER,
        "TORCHPORT_DIAGNOSE": "1",
        "TORCHPORT_AUTO": "0",
        **variables,
    }
    return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("program", "status"),
    [
        ("print('fine')", 0),
        ("raise SystemExit(3)", 3),
        ("try:\n    1 / 0\nexcept ZeroDivisionError:\n    pass", 0),
        ("raise KeyError('label')", 1),  # no row knows more than Python has said
        ("import os; os._exit(5)", 5),
        ("raise KeyboardInterrupt", -2),
    ],
)
def test_nothing_is_added(program: str, status: int) -> None:
    one, other = ended(program), ended(program, TORCHPORT_DIAGNOSE="0")
    assert one.returncode == other.returncode == status
    assert (one.stdout, one.stderr) == (other.stdout, other.stderr)


def test_three_lines_behind_the_traceback() -> None:
    program = f"print('step 1')\nraise RuntimeError({FULL!r})"
    one, other = ended(program), ended(program, TORCHPORT_DIAGNOSE="0")
    assert (one.returncode, one.stdout) == (other.returncode, other.stdout) == (1, "step 1\n")
    assert one.stderr.startswith(other.stderr)
    said = one.stderr.removeprefix(other.stderr).splitlines()
    assert said[0].startswith("torchport: the device's memory is full") and said[0].endswith("(<string>:2)")
    assert said[2:] == ["  torchport explain memory.device-full"]


def test_a_rank_names_itself() -> None:
    said = ended(f"raise RuntimeError({FULL!r})", RANK="3", WORLD_SIZE="8").stderr
    assert "torchport: rank 3: the device's memory is full" in said


def test_a_closed_stderr_changes_nothing() -> None:
    program = f"import os\nos.close(2)\nraise RuntimeError({FULL!r})"
    assert ended(program).returncode == ended(program, TORCHPORT_DIAGNOSE="0").returncode == 1
