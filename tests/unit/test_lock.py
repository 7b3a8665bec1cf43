"""One port at a time in an output folder, and nothing left of one that was killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from torchport.errors import TorchportError
from torchport.port.lock import lock_folder

HOLD = """
import subprocess, sys
from pathlib import Path
from torchport.port.lock import lock_folder
with lock_folder(Path(sys.argv[1])):
    child = subprocess.Popen(["sleep", "infinity"], close_fds=False, stdout=subprocess.DEVNULL)
    print(child.pid, flush=True)
    sys.stdin.read()
"""


def holder(out: Path) -> tuple[subprocess.Popen[str], int]:
    """A process that has the lock, and the number of a program that it started."""
    command = [sys.executable, "-c", HOLD, str(out)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def test_a_second_one_is_told_who_works_there(tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    process, child = holder(out)
    try:
        with (
            pytest.raises(TorchportError, match=rf"another torchport port works in .*process {process.pid}\)"),
            lock_folder(out),
        ):
            pytest.fail("both have the lock")
        with lock_folder(tmp_path / "other"):
            pass
    finally:
        process.communicate()
        os.kill(child, signal.SIGKILL)
    with lock_folder(out):
        assert (out / ".lock").read_text() == str(os.getpid())


def test_a_killed_one_leaves_no_lock_even_where_its_children_live(tmp_path: Path) -> None:
    process, child = holder(tmp_path)
    process.kill()
    process.wait()
    os.kill(child, 0)  # it lives
    try:
        with lock_folder(tmp_path):
            pass
    finally:
        os.kill(child, signal.SIGKILL)


def test_an_error_inside_frees_it(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), lock_folder(tmp_path):
        raise KeyboardInterrupt
    with lock_folder(tmp_path):
        pass


def test_a_file_in_the_way_is_an_error_for_people(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(TorchportError, match="cannot write into the output folder"), lock_folder(tmp_path / "out"):
        pass
