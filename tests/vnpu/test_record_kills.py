"""A recorded run that is killed at any moment: every step that it had finished is whole, and no other is shown."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from torchport.record.operators.listing import build_overview
from torchport.record.operators.reading import Operators

SCRIPT = Path(__file__).parent / "data" / "killed_training.py"
KILLS = int(os.environ.get("TORCHPORT_KILLS", "3"))
# The block API in processes forked from one that has torch: a start of Python takes longer than a kill.
FORKED = """
import os, random, runpy, signal, sys, time
os.environ["OMP_NUM_THREADS"] = "1"
import torch, torchport
torch.set_num_threads(1)
import torch.optim.optimizer, torchport.record.operators.block, h5py
script, folder, kills, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
draw = random.Random(seed)
for number in range(kills):
    waits, delay = draw.random() < 0.9, draw.uniform(0, 0.4)
    out, into = os.pipe()
    child = os.fork()
    if not child:
        os.dup2(into, 2)
        with torchport.record(f"{folder}/{number}", level="tensor"):
            runpy.run_path(script)
        os._exit(1)
    os.close(into)
    while waits and b"step" not in os.read(out, 100):  # of a machine that is busy, any step takes long
        pass
    time.sleep(delay)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(out)
print("done")
"""


@pytest.mark.parametrize("seed", [0])
def test_killed_at_random(tmp_path: Path, seed: int) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", FORKED, str(SCRIPT), str(tmp_path), str(KILLS), str(seed)],
        env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.stdout == "done\n", ended.stderr
    steps = [look(tmp_path / str(number)) for number in range(KILLS) if (tmp_path / str(number)).exists()]
    assert sum(steps) > 0


def look(folder: Path) -> int:
    """How many whole steps there are; each is read from beginning to end, contents too."""
    if not (folder / "recording.json").exists():
        return 0
    shown = build_overview(folder)
    assert shown["damaged"] == []
    assert not shown["finished"]
    for process in Operators.read(folder).processes:
        assert process.missing == ()
        assert process.steps == list(range(len(process.steps))), "no step between others is lost"
        for number in process.steps:
            with process.step(number) as step:
                assert len(step) > 10
                for tensor in step.tensors():
                    assert tensor.statistics is None or tensor.values() is not None
        return len(process.steps)
    return 0


def test_show_says_what_a_kill_has_cost(tmp_path: Path) -> None:
    """The process is stopped while a file is being written: that step is said to be lost."""
    folder = tmp_path / "rec"
    ended = subprocess.run(
        [sys.executable, "-c", FORKED, str(SCRIPT), str(tmp_path), "1", "1"],
        env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    (tmp_path / "0").rename(folder)
    (pid,) = (path.name for path in (folder / "processes").iterdir())
    (folder / "operators" / f"process-{pid}.h5.unfinished").write_bytes(b"\x89HDF")
    said = subprocess.run(
        [sys.executable, "-m", "torchport", "record", "show", str(folder)], capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stderr
    assert "has not ended, or was killed" in said.stdout
    assert "cut within a step, which is lost" in said.stdout


FULL = """
import itertools, sys
import torch, torchport
from torch import nn
net = nn.Linear(64, 64)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
with torchport.record(sys.argv[1], level="tensor", on_full=sys.argv[2]):
    for number in itertools.count() if sys.argv[2] == "stop" else range(40):
        net(torch.randn(64, 64)).sum().backward()
        optimizer.step()
print("trained", number + 1)
"""


@pytest.mark.parametrize("on_full", ["stop", pytest.param("drop", marks=pytest.mark.recorded)])
def test_a_full_disk(tmp_path: Path, on_full: str) -> None:
    """As a limit on the size of files, which makes writes fail in the same place; SIGXFSZ is ignored by Python."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    ended = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path / "rec"), on_full],
        env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=limited,
    )
    assert "operators cannot be written to" in ended.stderr, ended.stderr
    assert ended.stderr.count("cannot be written") == 1
    assert "Traceback" not in ended.stderr
    if on_full == "stop":
        assert (ended.returncode, ended.stdout) == (2, "")
        assert "the run ends here" in ended.stderr
    else:
        assert (ended.returncode, ended.stdout) == (0, "trained 40\n")
        assert "the run goes on without" in ended.stderr
    assert not list((tmp_path / "rec").rglob("*.unfinished"))


def mounted(options: str, folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    """What the shell's `program` gives where `folder` is a file system of its own, which nobody else sees."""
    folder.mkdir()
    mount = f"mount -t tmpfs -o {options} none {folder} || exit 77\n"
    ended = subprocess.run(
        ["unshare", "--mount", "sh", "-c", mount + program],
        env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "FULL": FULL, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode == 77 or "unshare failed" in ended.stderr:
        pytest.skip(f"a file system cannot be mounted here: {ended.stderr.strip()}")
    return ended


@pytest.mark.recorded
@pytest.mark.parametrize("on_full", ["stop", "drop"])
@pytest.mark.parametrize("kib", [16, 300, 1000])
def test_a_disk_that_is_really_full(tmp_path: Path, on_full: str, kib: int) -> None:
    """Within the first step, where the journal has no room either, and later."""
    disk = tmp_path / "disk"
    program = f'"$PYTHON" -c "$FULL" {disk}/rec {on_full}; status=$?; find {disk} -name "*.unfinished"; exit $status'
    ended = mounted(f"size={kib}k", disk, program)
    assert "Traceback" not in ended.stderr, ended.stderr
    assert "No space left on device" in ended.stderr, ended.stderr
    assert ".unfinished" not in ended.stdout
    if on_full == "stop":
        assert (ended.returncode, ended.stdout) == (2, ""), ended.stderr
    else:
        assert (ended.returncode, ended.stdout) == (0, "trained 40\n"), ended.stderr


@pytest.mark.recorded
def test_a_folder_that_is_read_only(tmp_path: Path) -> None:
    """Said before the script starts; the control is the same folder where it can be written."""
    script = tmp_path / "train.py"
    script.write_text("print('started')\n")
    asked = f"-m torchport run --record {{}} --on cpu {script}"
    for options, status, said in (("ro", 2, ""), ("rw", 0, "started\n")):
        disk = tmp_path / options
        ended = mounted(options, disk, '"$PYTHON" ' + asked.format(disk / "rec"))
        assert (ended.returncode, ended.stdout) == (status, said), ended.stderr
        assert ("cannot be made: Read-only file system" in ended.stderr) is (options == "ro")
    ended = mounted("ro", tmp_path / "block", f'"$PYTHON" -c "$FULL" {tmp_path}/block/rec stop')
    assert ended.returncode != 0
    assert "cannot be made: Read-only file system" in ended.stderr
    assert "trained" not in ended.stdout


LARGE = """
import sys
import torch, torchport
with torchport.record(sys.argv[1], level="tensor") as recorded:
    for number in range(24):
        torch.full((4 << 20,), float(number))
    recorded.step()
print("done")
"""


@pytest.mark.recorded
def test_a_first_step_larger_than_what_may_wait(tmp_path: Path) -> None:
    """The run waits for the disk, and the disk's thread is there from the beginning."""
    ended = subprocess.run(
        [sys.executable, "-c", LARGE, str(tmp_path / "rec")],
        env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (0, "done\n"), ended.stderr
    with Operators.read(tmp_path / "rec").rank(0).step(0) as step:
        assert int(step.file.tables["contents"]["size"].sum()) == 24 * (16 << 20)
        assert step.call(23).outputs[0].values()[5] == 23  # type: ignore[union-attr]
