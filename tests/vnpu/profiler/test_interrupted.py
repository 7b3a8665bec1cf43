"""Profiles that come to nothing: the script ends as it would have, a sentence says what is missing, no file is half."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import ascendcl
import forked
import pytest
from session_logs import msprof

PROGRAM = """
import os, resource, signal, sys, torch, torch_npu
P = torch_npu.profiler
a = torch.randn(64).npu()
def work(count):
    for _ in range(count):
        b = a + 1
    torch.npu.synchronize()
def profiler(folder):
    activities = [P.ProfilerActivity.CPU, P.ProfilerActivity.NPU]
    return P.profile(activities=activities, on_trace_ready=P.tensorboard_trace_handler(folder))
"""
# What msprof makes of the session; the rest of torch_npu's folder is its own.
OURS = ("PROF_*/mindstudio_profiler_output/*", "PROF_*/analyze/*", "PROF_*/msprof_*.db")


def ours(folder: Path) -> list[str]:
    return [path.name for pattern in OURS for path in folder.glob(f"**/{pattern}")]


def said(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in done.stderr.splitlines() if line.startswith("torchport:")]


def nothing_half(folder: Path) -> None:
    """No file of ours, none of torch_npu's that takes one of ours for whole; msprof says why."""
    assert ours(folder) == []
    assert list(folder.glob("**/ASCEND_PROFILER_OUTPUT/*.csv")) == []
    (profile,) = folder.glob("**/PROF_*")
    made = msprof("--export=on", f"--output={profile}")
    assert made.returncode == 1 and "has no end: its process was killed or its disk was full" in made.stderr
    assert ours(folder) == []


def test_a_file_that_may_not_grow(tmp_path: Path) -> None:
    """As a full disk, for who is not root: writes fail from then on."""
    done = forked.python(
        f"""{PROGRAM}
with profiler({str(tmp_path)!r}):
    work(100)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
    work(10_000)
print("went on")
sys.exit(3)
"""
    )
    assert (done.returncode, done.stdout.splitlines()[-1]) == (3, "went on"), done.stderr[-3000:]
    (line,) = said(done)
    assert "ends early: File too large. No file will be made" in line
    nothing_half(tmp_path)


@pytest.mark.profiles
def test_a_full_disk(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    small = tmp_path / "small"
    small.mkdir()
    program = f"""{PROGRAM}
with profiler({str(small)!r}):
    work(20_000)
print("went on")
sys.exit(3)
"""
    (tmp_path / "program.py").write_text(program)
    # In a namespace of its own: the disk is gone with the process, so what there was on it is listed before.
    script = (
        f'mount -t tmpfs -o size=1m tmpfs "{small}" || exit 99; "$0" "{tmp_path}/program.py"; '
        f'status=$?; cp -r "{small}" "{tmp_path}/kept"; exit $status'
    )
    done = ascendcl.python(
        f"""
import subprocess, sys
command = ["unshare", "--mount", "bash", "-c", {script!r}, sys.executable]
sys.exit(subprocess.run(command, check=False).returncode)
"""
    )
    if done.returncode == 99 or "unshare" in done.stderr:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr[-200:]}")
    assert done.returncode == 3 and "went on" in done.stdout.splitlines(), done.stderr[-3000:]
    (line,) = said(done)
    assert "ends early: No space left on device. No file will be made" in line
    nothing_half(tmp_path / "kept")


@pytest.mark.profiles
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_script_that_is_killed(tmp_path: Path, number: int) -> None:
    """Its status is the signal's, as without a profiler."""
    program = f"""{PROGRAM}
with profiler({str(tmp_path)!r}):
    work(4000)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), {number})
    work(4000)
"""
    done = ascendcl.python(program)
    assert done.returncode == -number
    nothing_half(tmp_path)


@pytest.mark.profiles
def test_a_profile_of_a_killed_script_that_is_analysed(tmp_path: Path) -> None:
    done = ascendcl.python(
        f"""{PROGRAM}
with profiler({str(tmp_path)!r}):
    work(4000)
    os._exit(7)
"""
    )
    assert done.returncode == 7
    (folder,) = tmp_path.glob("*_ascend_pt")
    assert not (folder / "profiler_info.json").exists()  # torch_npu writes it at the end
    (folder / "profiler_info.json").write_text("{}")
    done = ascendcl.python(
        f"""
from torch_npu.profiler.profiler import analyse
analyse({str(tmp_path)!r})
"""
    )
    assert "Failed to export CANN" in done.stdout + done.stderr
    nothing_half(tmp_path)


@pytest.mark.profiles
def test_a_profiler_within_another(tmp_path: Path) -> None:
    """The second has nothing, and a sentence says so. torch_npu has one profiler in a process: that the second stops ends
    the first as well, whose files are whole."""
    done = forked.python(
        f"""{PROGRAM}
with profiler({str(tmp_path / "first")!r}):
    work(50)
    with profiler({str(tmp_path / "second")!r}):
        work(50)
    work(50)
print("went on")
sys.exit(3)
"""
    )
    assert (done.returncode, done.stdout.splitlines()[-1]) == (3, "went on"), done.stderr[-3000:]
    (line,) = said(done)
    assert "is going on; the one into" in line
    (table,) = tmp_path.glob("first/*/ASCEND_PROFILER_OUTPUT/kernel_details.csv")
    assert len(list(csv.DictReader(table.read_text().splitlines()))) == 100
    assert list(tmp_path.glob("second/*/ASCEND_PROFILER_OUTPUT/*")) == []


@pytest.mark.profiles
def test_one_profiled_rank_of_two(tmp_path: Path) -> None:
    """A rank that no profiler watches changes nothing for the one that is profiled, nor the other way round."""
    program = Path(__file__).parents[2] / "profiles" / "programs" / "ddp.py"
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone"]
    done = ascendcl.python(
        f"""
import subprocess, sys
sys.exit(subprocess.run({[*launch, str(program), str(tmp_path)]!r}, check=False).returncode)
""",
        PROFILED_RANK="1",
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (output,) = tmp_path.glob("*_ascend_pt/ASCEND_PROFILER_OUTPUT")
    steps = json.loads((output / "communication.json").read_text())
    assert all(ops["collective"]["Total Op Info"] for ops in steps.values()) and len(steps) == 2
    assert (output / "ascend_pytorch_profiler_1.db").exists()
