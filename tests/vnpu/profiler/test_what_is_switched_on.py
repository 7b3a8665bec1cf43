"""What a user switches on: levels, marks, analyse() afterwards, dynamic profiling, replayed graphs, memory snapshots."""

from __future__ import annotations

import csv
import json
import pickle
import re
import struct
from pathlib import Path
from typing import Any

import ascendcl
import pytest
from session_logs import msprof
from test_torch_npu_profiler import output, run, table, trace

from torchport import vnpu
from torchport.predict import timeline
from torchport.vnpu import backend

COMMON = {"trace_view.json", "operator_details.csv", "memory_record.csv", "operator_memory.csv"}
LEVEL0 = COMMON | {"kernel_details.csv", "step_trace_time.csv", "task_time.csv"}
LEVEL1 = LEVEL0 | {"op_statistic.csv", "api_statistic.csv"}


@pytest.mark.profiles
@pytest.mark.parametrize(("level", "files"), [("Level_none", COMMON), ("Level0", LEVEL0), ("Level2", LEVEL1)])
def test_levels(tmp_path: Path, level: str, files: set[str]) -> None:
    run(f'run(profiler({str(tmp_path / "one")!r}, "{level}", ["Text"]))')
    assert files <= {path.name for path in output(tmp_path).iterdir()}
    calls = [e for e in trace(tmp_path) if e["ph"] == "X" and str(e["name"]).startswith("AscendCL@")]
    assert bool(calls) == (level == "Level2")  # torch_npu leaves them out below level 1
    kernels = [e for e in trace(tmp_path) if e.get("args", {}).get("Task Type") == "AI_CORE"]
    assert bool(kernels) == (level != "Level_none")


@pytest.mark.profiles
def test_marks_are_on_host_and_device(tmp_path: Path) -> None:
    run(
        f"""
import torch_npu
with profiler({str(tmp_path / "one")!r}, "Level1", ["Text"], mstx=True) as prof:
    for _ in range(3):
        torch_npu.npu.mstx.mark("a mark")
        number = torch_npu.npu.mstx.range_start("a range", torch.npu.current_stream())
        step()
        torch_npu.npu.mstx.range_end(number)
        prof.step()
"""
    )
    spans = [e for e in trace(tmp_path) if e["ph"] == "X"]
    marked = [e for e in spans if e["name"] == "a mark"]
    ranges = [e for e in spans if e["name"] == "a range"]
    assert len(marked) == 2 and {e["dur"] for e in marked} == {0.0}
    assert len(ranges) == 2 and all(e["dur"] > 100 for e in ranges)
    assert sum(e["name"] == "mstx a range" for e in spans) == 4  # where the stream came to its begin and its end


@pytest.mark.profiles
def test_analysed_afterwards(tmp_path: Path) -> None:
    run(
        f"""
from torch_npu.profiler.profiler import analyse
with P.profile(on_trace_ready=P.tensorboard_trace_handler({str(tmp_path / "one")!r}, analyse_flag=False)) as prof:
    step()
analyse({str(tmp_path / "one")!r})
"""
    )
    assert {"trace_view.json", "kernel_details.csv"} <= {path.name for path in output(tmp_path).iterdir()}


@pytest.mark.profiles
def test_a_replayed_graph_lists_its_operators(tmp_path: Path) -> None:
    run(
        f"""
a, b = torch.randn(16, 16).npu(), torch.randn(16, 16).npu()
graph = torch.npu.NPUGraph()
torch.npu.synchronize()
with torch.npu.graph(graph):
    c = torch.relu(a @ b)
with profiler({str(tmp_path / "one")!r}, "Level1", ["Text"]) as prof:
    for _ in range(3):
        graph.replay()
        torch.npu.synchronize()
        prof.step()
"""
    )
    rows = table(tmp_path, "kernel_details.csv")
    assert [row["Type"] for row in rows] == ["Matmul", "Relu"] * 2 or [row["Type"] for row in rows] == [
        "Mm",
        "Relu",
    ] * 2
    flows = [e for e in trace(tmp_path) if e.get("cat") == "HostToDevice" and e["ph"] == "f"]
    assert len(flows) >= 4


@pytest.mark.profiles
def test_dynamic_profiling(tmp_path: Path) -> None:
    run(
        f"""
import json, time
from pathlib import Path
from torch_npu.profiler import dynamic_profile
folder = {str(tmp_path)!r}
dynamic_profile.init(folder)
path = folder + "/profiler_config.json"
config = None
while config is None:
    try:
        config = json.load(open(path))
    except (OSError, ValueError):
        time.sleep(0.1)
config.update(prof_dir=folder + "/one", start_step=-1, active=2, analyse=True)  # -1: with the step that finds this
time.sleep(1.1)  # for another time of change
json.dump(config, open(path, "w"))
while not list(Path(folder).rglob("kernel_details.csv")):
    step()
    dynamic_profile.step()
    time.sleep(0.1)
"""
    )
    assert {"trace_view.json", "kernel_details.csv"} <= {path.name for path in output(tmp_path).iterdir()}


EH_FRAME = struct.pack("<I", 0x6474E550)  # PT_GNU_EH_FRAME


def unwindable(library: bytes) -> bool:
    """Whether an ELF file's program headers name a table for unwinding."""
    (start,), (size, count) = struct.unpack_from("<Q", library, 32), struct.unpack_from("<HH", library, 54)
    return any(library[start + size * i :][:4] == EH_FRAME for i in range(count))


def test_every_library_can_be_unwound() -> None:
    """torch.npu.memory walks the stack at each allocation, and warns of each library that has no table for that."""
    folders = (vnpu.library_directory(), backend.HOME / "lib64")
    libraries = [path for folder in folders for path in folder.rglob("*.so")]
    assert len(libraries) > 20
    assert [path.name for path in libraries if not unwindable(path.read_bytes())] == []
    without = libraries[0].read_bytes().replace(EH_FRAME, b"\0\0\0\0")
    assert not unwindable(without)


@pytest.mark.profiles
def test_memory_snapshots_come_without_warnings(tmp_path: Path) -> None:
    """And torch's visualiser makes its pages and its tables of them."""
    path = tmp_path / "snapshot.pickle"
    done = ascendcl.python(
        f"""
import os, torch, torch_npu
os.chdir({str(tmp_path)!r})  # torch_npu leaves a table of its own where it is
torch.npu.memory._record_memory_history()
a = torch.randn(1000, 1000).npu()
b = a @ a
del b
torch.npu.synchronize()
torch.npu.memory._dump_snapshot({str(path)!r})
open("allocated", "w").write(str(torch.npu.memory_allocated()))
"""
    )
    assert done.returncode == 0, done.stderr
    assert "PT_GNU_EH_FRAME" not in done.stderr
    snapshot: dict[str, Any] = pickle.loads(path.read_bytes())  # ours, of a moment ago
    actions = [event["action"] for event in snapshot["device_traces"][0]]
    assert {"alloc", "free_completed", "segment_alloc"} <= set(actions)
    assert any("<string>" in frame["filename"] for event in snapshot["device_traces"][0] for frame in event["frames"])
    assert sum(segment["total_size"] for segment in snapshot["segments"]) >= 8_000_000
    allocated = sum(
        block["size"]
        for segment in snapshot["segments"]
        for block in segment["blocks"]
        if block["state"].startswith("active")
    )
    assert allocated == int((tmp_path / "allocated").read_text())
    from torch.cuda import _memory_viz

    for page in (_memory_viz.trace_plot(snapshot), _memory_viz.segment_plot(snapshot)):
        assert "MemoryViz" in page and len(page) > 1000
    assert "memory" in _memory_viz.segsum(snapshot) and "alloc" in _memory_viz.trace(snapshot)


@pytest.mark.profiles
def test_ranks_tell_of_their_communication(tmp_path: Path) -> None:
    program = Path(__file__).parents[2] / "profiles" / "programs" / "ddp.py"
    done = ascendcl.python(
        f"""
import subprocess, sys
command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone", {str(program)!r}]
sys.exit(subprocess.run([*command, {str(tmp_path)!r}], check=False).returncode)
""",
        VNPU_TIMELINE=str(tmp_path / "log.%p"),
    )
    assert done.returncode == 0, done.stderr[-3000:]
    logs = {log.rank: log for log in map(timeline.read_timeline, tmp_path.glob("log.*")) if log.tasks}
    found = sorted(tmp_path.glob("*_ascend_pt/ASCEND_PROFILER_OUTPUT"))
    assert len(found) == 2
    times = []
    for one in found:
        steps = json.loads((one / "communication.json").read_text())
        for ops in steps.values():
            del ops["collective"]["Total Op Info"]
        times.append({op: info for ops in steps.values() for op, info in ops["collective"].items()})
        rows = list(csv.DictReader((one / "step_trace_time.csv").read_text().splitlines()))
        elapsed = sum(info["Communication Time Info"]["Elapse Time(ms)"] for info in times[-1].values())
        assert sum(float(row["Communication"]) for row in rows) == pytest.approx(elapsed * 1000, abs=1)
        rank = int(re.findall(r"_(\d)\.db", " ".join(path.name for path in one.iterdir()))[0])
        transit = [info["Communication Time Info"]["Transit Time(ms)"] for info in times[-1].values()]
        logged = [task.virtual_time / 1e6 for task in logs[rank].tasks if task.unit == "collective"]
        assert any(
            logged[start : start + len(transit)] == pytest.approx(transit, abs=1e-6)
            for start in range(len(logged) - len(transit) + 1)
        )
        assert len(transit) == 4
    assert times[0].keys() == times[1].keys()  # one name for one collective on all ranks
    for op, info in times[0].items():
        other = times[1][op]["Communication Time Info"]
        assert info["Communication Time Info"]["Transit Time(ms)"] == pytest.approx(other["Transit Time(ms)"])


@pytest.mark.profiles
def test_a_killed_program_leaves_no_file_that_looks_whole(tmp_path: Path) -> None:
    done = ascendcl.python(
        f"""
import os, signal, torch, torch_npu
P = torch_npu.profiler
a = torch.randn(16, 16).npu()
with P.profile(on_trace_ready=P.tensorboard_trace_handler({str(tmp_path)!r})):
    for i in range(5000):
        a = a + 1
        if i == 4000:
            os.kill(os.getpid(), signal.SIGKILL)
"""
    )
    assert done.returncode == -9
    (profile,) = tmp_path.glob("*_ascend_pt/PROF_*")
    made = msprof("--export=on", f"--output={profile}")
    assert made.returncode == 1 and "has no end" in made.stderr
    assert not (profile / "mindstudio_profiler_output").exists()
