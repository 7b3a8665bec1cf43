"""A command that torchport starts finds its input at its end, and a terminal if torchport has one."""

from __future__ import annotations

import os
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from torchport.compare.causes import explain_failure

KEPT = """
import os, sys
from pathlib import Path
from torchport.launch.keeper import run_with_keeper

folder = Path(sys.argv[1])
command = ["sh", "-c", "stty size; cat; cat; test -t 0 && echo terminal; echo end"]
run_with_keeper(command, os.environ, folder, folder / "out", folder / "err", lambda seconds: "")
"""


@pytest.mark.parametrize(
    ("terminal", "out"), [(True, "31 77\nterminal\nend\n"), (False, "end\n")], ids=["terminal", "none"]
)
def test_input_is_at_its_end(terminal: bool, out: str, tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (31, 77))
    subprocess.run(
        [sys.executable, "-c", KEPT, str(tmp_path)], stdin=theirs if terminal else subprocess.DEVNULL, check=True
    )
    os.close(ours)
    os.close(theirs)
    assert (tmp_path / "out").read_text() == out
    said = (tmp_path / "err").read_text()
    assert said == "" if terminal else "Inappropriate ioctl for device" in said
    assert explain_failure(said)[0] == ("" if terminal else "it asks for a terminal, and there is none")
