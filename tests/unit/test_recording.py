"""The recording: survives a kill, is read whole or to the last whole line; a recorded script notices nothing."""

import math
import os
import signal
import subprocess
import sys

import pytest
from recordings import losses
from recordings import write as write_recording

from torchport import startup
from torchport.errors import TorchportError
from torchport.findings import Result
from torchport.record import recording
from torchport.record.recording import End, Journal, Recording
from torchport.record.session import Options, describe_failure
from torchport.record.sites import Sites


@pytest.fixture
def folder(tmp_path):
    Result("record", data={"recording": recording.VERSION}).write(tmp_path / recording.HEAD)
    return tmp_path


def write(folder, *values):
    journal = Journal(folder)
    for value in values:
        journal.write_event("loss", site="a.py:1", by="backward", value=value, device="cpu", launches=None, elapsed=1.0)
    journal.close()
    return folder / recording.PROCESSES / str(os.getpid()) / recording.JOURNAL


def curve(folder):
    (process,) = Recording.from_directory(folder).processes
    return process.collect_curves()["a.py:1"]


def test_values_come_back(folder):
    write(folder, 2.5, math.nan, -math.inf, 1e-300)
    read = curve(folder)
    assert read[0] == 2.5
    assert math.isnan(read[1])
    assert read[2:] == [-math.inf, 1e-300]
    assert Recording.from_directory(folder).status is None
    assert Recording.from_directory(folder).steps == 4


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_cut_tail_is_dropped(folder, cut):
    path = write(folder, 3.0, 2.0, 1.0)
    path.write_bytes(path.read_bytes()[:-cut])
    assert curve(folder) == [3.0, 2.0]


def test_damage_elsewhere_is_named(folder):
    path = write(folder, 3.0, 2.0)
    path.write_bytes(b"\0\0\n" + path.read_bytes())
    with pytest.raises(TorchportError, match=r"steps\.jsonl:1: damaged line"):
        Recording.from_directory(folder)


@pytest.mark.parametrize(
    "line",
    [
        "5",
        "[]",
        "{}",
        '{"kind": 1}',
        '{"kind": "loss"}',
        '{"kind": "loss", "site": "a", "by": "grad", "value": "x", "device": "cpu", "launches": null}',
        '{"kind": "end", "launches": "many"}',
        '{"kind": "weights", "name": "a"}',
        '{"kind": "precision"}',
    ],
)
def test_a_line_that_is_no_event_is_named(folder, line):
    path = write(folder, 3.0)
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(TorchportError, match=r"steps\.jsonl:2: damaged line"):
        Recording.from_directory(folder)


def test_how_a_run_ended_is_kept_beside_what_it_recorded(folder):
    write(folder, 3.0)
    End(-9, 2.5, "timeout", 2.0, "train.py", 7).write_to(folder)
    read = Recording.from_directory(folder)
    assert (read.status, read.stopped, read.end.line) == (-9, "timeout", 7)
    (folder / recording.END).write_text('{"status": 1, "other": 2}')
    with pytest.raises(TorchportError, match="is damaged"):
        Recording.from_directory(folder)


def test_kill_leaves_every_written_step(folder):
    code = (
        "import sys, os, signal; from pathlib import Path; from torchport.record.recording import Journal\n"
        "journal = Journal(Path(sys.argv[1]))\n"
        "for step in range(100): journal.write_event('loss', site='a.py:1', by='backward', value=1.0, device='cpu', "
        "launches=None, elapsed=0.0)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    ended = subprocess.run([sys.executable, "-c", code, folder], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert len(curve(folder)) == 100


def test_what_is_not_a_recording_is_refused(tmp_path):
    with pytest.raises(TorchportError, match=r"it has no recording\.json"):
        Recording.from_directory(tmp_path)
    Result("convert").write(tmp_path / recording.HEAD)
    with pytest.raises(TorchportError, match="not a recording of version 2 or 3"):
        Recording.from_directory(tmp_path)
    Result("record", data={"recording": 1}).write(tmp_path / recording.HEAD)
    with pytest.raises(TorchportError, match="not a recording of version"):
        Recording.from_directory(tmp_path)


def test_ranks_are_in_their_order_and_the_slowest_counts(tmp_path):
    read = write_recording(tmp_path, losses([3.0, 2.0, 1.0]), losses([3.0, 2.0]), [])
    assert [one.rank for one in read.trained] == [0, 1]
    assert [one.rank for one in read.processes] == [0, 1, 2]
    assert read.steps == 2


SCRIPT = """
import atexit, os, pickle, sys
print(__name__, __file__, sys.argv, sys.path[0], __doc__, __spec__)
class Thing: pass
atexit.register(lambda: print(pickle.loads(pickle.dumps(Thing())).__class__.__module__))
def fail(): raise ValueError("no good")
exec(sys.argv[1])
"""


def recorded(folder, words, **variables):
    """Run a command as the driver does: Python loads the recorder by itself."""
    environment = {**os.environ, "PYTHONPATH": startup.FOLDER, "TORCHPORT_RECORD": Options(str(folder)).to_variable()}
    return subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env=environment | variables,
    )


@pytest.mark.parametrize(
    "statement", ["pass", "sys.exit()", "sys.exit(7)", "sys.exit('bye')", "fail()", "os._exit(5)", "1/0", "assert ()"]
)
def test_a_recorded_script_behaves_as_under_python(folder, tmp_path, statement):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    words = [str(script), statement, "--out", "x"]
    plain = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    ours = recorded(folder, words)
    assert (ours.returncode, ours.stdout) == (plain.returncode, plain.stdout)
    assert ours.stderr == plain.stderr
    (process,) = Recording.from_directory(folder).processes
    assert bool(process.of_kind("end")) is ("os._exit" not in statement)
    assert bool(process.of_kind("error")) is (statement in ("fail()", "1/0", "assert ()"))


def test_an_exception_that_is_caught_to_leave_is_told(folder, tmp_path):
    """As hydra leaves."""
    script = tmp_path / "script.py"
    script.write_text("import sys\ntry:\n    1 / 0\nexcept Exception:\n    sys.exit(int(sys.argv[1]))\n")
    recorded(folder, [str(script), "1"])
    (error,) = Recording.from_directory(folder).of_kind("error")
    assert (error["error"], error["line"]) == ("ZeroDivisionError: division by zero", 3)


def test_an_exception_is_placed_in_the_script(folder, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    recorded(folder, [str(script), "fail()"])
    (error,) = Recording.from_directory(folder).of_kind("error")
    assert (error["error"], os.path.basename(error["path"]), error["line"]) == ("ValueError: no good", "script.py", 6)


def test_an_exception_of_the_recorder_is_called_ours(folder, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nfrom torchport.record.recording import parse_event\nparse_event(b'5' if sys.argv[1:] else b'{}')\n"
    )
    recorded(folder, [str(script), "x"])
    (error,) = Recording.from_directory(folder).of_kind("error")
    assert (error["ours"], error["line"]) == (True, 3)
    script.write_text("def parse(): raise ValueError(5)\nparse()\n")
    recorded(folder, [str(script)])
    assert sorted(error["ours"] for error in Recording.from_directory(folder).of_kind("error")) == [False, True]


def test_children_are_recorded_in_journals_of_their_own(folder, tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'raise KeyError(5)'])\n")
    assert recorded(folder, [str(script)]).returncode == 0
    assert len(Recording.from_directory(folder).processes) == 2
    assert [event["error"] for event in Recording.from_directory(folder).of_kind("error")] == ["KeyError: 5"]


@pytest.mark.parametrize(
    ("last", "kept"),
    [
        ("[ERROR] 2026-11-22-05:47:35 (PID:14934, Device:0, RankID:-1) ERR01007 OPS", "ERR01007 OPS"),
        (
            "[PID: 16662] 2026-11-22-05:50:43.431.205 Invalid_Argument(EE1001): The argument is invalid.",
            "Invalid_Argument(EE1001): The argument is invalid.",
        ),
        ("EZ9999[PID: 16662] 2026-11-22-05:50:43.431.205 (EZ9999): The error", "EZ9999(EZ9999): The error"),
        ("[ERROR] of the script's own", "[ERROR] of the script's own"),
    ],
)
def test_an_error_is_told_without_stamps(last, kept):
    assert (
        describe_failure(RuntimeError(f"refused\n{last}"), Sites("", {}))["error"]
        == f"RuntimeError: refused ... {kept}"
    )
