"""The recording: survives a kill, is read whole or to the last whole line."""

import math
import os
import signal
import subprocess
import sys

import pytest

from torchport.errors import TorchportError
from torchport.findings import Result
from torchport.record import recording
from torchport.record.recording import Journal, Recording, end_from_outside


@pytest.fixture
def folder(tmp_path):
    Result("record", data={"recording": recording.VERSION}).write(tmp_path / recording.HEAD)
    return tmp_path


def write(folder, *losses):
    journal = Journal(folder)
    for step, loss in enumerate(losses):
        journal.write("step", step=step, loss=loss, seconds=None if step == 0 else 0.5, elapsed=1.0)
    journal.close()


def test_steps_come_back(folder):
    write(folder, 2.5, math.nan, -math.inf, 1e-300)
    read = Recording.read(folder)
    assert read.losses[0] == 2.5
    assert math.isnan(read.losses[1])
    assert read.losses[2:] == [-math.inf, 1e-300]
    assert [step.seconds for step in read.steps] == [None, 0.5, 0.5, 0.5]
    assert read.status is None


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_cut_tail_is_dropped(folder, cut):
    write(folder, 3.0, 2.0, 1.0)
    path = folder / recording.JOURNAL
    path.write_bytes(path.read_bytes()[:-cut])
    assert Recording.read(folder).losses == [3.0, 2.0]


def test_damage_elsewhere_is_named(folder):
    write(folder, 3.0, 2.0)
    path = folder / recording.JOURNAL
    path.write_bytes(b"\0\0\n" + path.read_bytes())
    with pytest.raises(TorchportError, match=r"steps\.jsonl:1: damaged line"):
        Recording.read(folder)


@pytest.mark.parametrize(
    "line",
    ["5", "[]", "{}", '{"kind": 1}', '{"kind": "step"}', '{"kind": "step", "step": 0, "loss": "x", "seconds": null}',
     '{"kind": "end", "status": "bad"}', '{"kind": "weights", "name": "a"}', '{"kind": "precision"}'],
)  # fmt: skip
def test_a_line_that_is_no_event_is_named(folder, line):
    write(folder, 3.0)
    path = folder / recording.JOURNAL
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(TorchportError, match=r"steps\.jsonl:2: damaged line"):
        Recording.read(folder)


def test_an_end_from_outside_replaces_the_cut_tail_and_no_end(folder):
    write(folder, 3.0, 2.0)
    path = folder / recording.JOURNAL
    path.write_bytes(path.read_bytes()[:-4])
    end_from_outside(folder, -9, "killed")
    end_from_outside(folder, 0, "too late")
    read = Recording.read(folder)
    assert (read.losses, read.status) == ([3.0], -9)


def test_kill_leaves_every_written_step(folder):
    code = (
        "import sys, os, signal; from pathlib import Path; from torchport.record.recording import Journal\n"
        "journal = Journal(Path(sys.argv[1]))\n"
        "for step in range(100): journal.write('step', step=step, loss=1.0, seconds=None, elapsed=0.0)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    ended = subprocess.run([sys.executable, "-c", code, folder], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert len(Recording.read(folder).steps) == 100


def test_what_is_not_a_recording_is_refused(tmp_path):
    with pytest.raises(TorchportError, match=r"it has no recording\.json"):
        Recording.read(tmp_path)
    Result("convert").write(tmp_path / recording.HEAD)
    with pytest.raises(TorchportError, match="not a recording of version 1"):
        Recording.read(tmp_path)


SCRIPT = """
import atexit, os, pickle, sys
print(__name__, __file__, sys.argv, sys.path[0], __doc__, __spec__)
class Thing: pass
atexit.register(lambda: print(pickle.loads(pickle.dumps(Thing())).__class__.__module__))
def fail(): raise ValueError("no good")
exec(sys.argv[1])
"""


@pytest.mark.parametrize(
    "statement",
    ["pass", "sys.exit()", "sys.exit(7)", "sys.exit('bye')", "fail()", "os._exit(5)", "1/0", "assert ()"],
)
def test_a_recorded_script_behaves_as_under_python(folder, tmp_path, statement):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    words = [str(script), statement, "--out", "x"]
    recorded = [sys.executable, "-P", "-m", "torchport.record", "--out", str(folder), "--", *words]
    plain, ours = (
        subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        for command in ([sys.executable, *words], recorded)
    )
    assert (ours.returncode, ours.stdout) == (plain.returncode, plain.stdout)
    assert ours.stderr == plain.stderr
    if "os._exit" not in statement:
        assert Recording.read(folder).status == plain.returncode


def test_an_exception_is_placed_in_the_script(folder, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    subprocess.run(
        [sys.executable, "-P", "-m", "torchport.record", "--out", folder, "--", script, "fail()"],
        capture_output=True,
        check=False,
    )
    (end,) = Recording.read(folder).of_kind("end")
    assert (end["error"], os.path.basename(end["path"]), end["line"]) == (
        "ValueError: no good",
        "script.py",
        6,
    )
