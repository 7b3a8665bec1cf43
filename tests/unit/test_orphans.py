"""Nothing goes on for a port that was killed, however early."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import until

from torchport.port.tee import ending_with_parent

# Ports that are killed after the seconds given, and one when its command has started: each runs a command that leaves
# processes of other sessions.
KILLED = """
import os, signal, sys, time
from pathlib import Path
from torchport.launch import keeper

folder = Path(sys.argv[1])
for number, delay in enumerate([*sys.argv[2:], "started"]):
    port = os.fork()
    if port == 0:
        text = "sleep 9999 & setsid sleep 9999 & setsid sh -c 'sleep 9999 & sleep 9999' & echo here; wait"
        command = ["sh", "-c", text]
        out, err = (folder / f"{number}.{name}" for name in ("out", "err"))
        keeper.run_with_keeper(command, os.environ, folder, out, err, lambda seconds: "")
        os._exit(0)
    started = folder / f"{number}.out"
    while delay == "started" and not (started.exists() and started.read_text()):
        time.sleep(0.01)
    time.sleep(0 if delay == "started" else float(delay))
    os.kill(port, signal.SIGKILL)
    os.waitpid(port, 0)
"""


def marked(mark: str) -> list[int]:
    """The processes with these words in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except OSError:  # it ended, or is another user's
            continue
    return found


def test_a_port_that_is_killed_early_leaves_no_process(tmp_path: Path) -> None:
    mark = f"MARK_OF_THIS_TEST={tmp_path}"
    name, _, value = mark.partition("=")
    delays = [0.0, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.1, 1.5]
    subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), *map(str, delays)],
        env={**os.environ, name: value},
        capture_output=True,
        text=True,
        check=True,
    )
    try:
        until(lambda: not marked(mark), 0.1)
    finally:
        for one in marked(mark):
            os.kill(one, signal.SIGKILL)


@pytest.mark.parametrize("gone", [True, False])
def test_a_child_whose_parent_went_first_ends(gone: bool) -> None:
    told, tell = os.pipe()
    hold, release = os.pipe()
    parent = os.fork()
    if parent == 0:
        end_with_parent, own = ending_with_parent(), os.getpid()
        if os.fork() == 0:
            os.close(release)
            if gone:
                until(lambda: os.getppid() != own, 0.001)
            end_with_parent()
            os.write(tell, b"alive")
            os._exit(0)
        if gone:
            os._exit(0)
        os.close(tell)
        os.close(release)
        os.read(hold, 1)
        os._exit(0)
    os.close(tell)
    os.close(hold)
    try:
        assert os.read(told, 10) == (b"" if gone else b"alive")
    finally:
        os.close(release)
        os.close(told)
        os.waitpid(parent, 0)
