"""torch_npu.profiler of the real wheel on the virtual NPU: a small training, every file of it, and their sums."""

from __future__ import annotations

import csv
import json
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import forked
import pytest

from torchport.predict import timeline
from torchport.vnpu import chips

TRAINING = """
import sys, torch, torch_npu
P = torch_npu.profiler
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)).npu()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(32, 64).npu(), torch.randint(0, 10, (32,)).npu()
def step():
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()
step()
def profiler(folder, level, kinds, **more):
    level = getattr(P.ProfilerLevel, level)
    config = P._ExperimentalConfig(profiler_level=level, export_type=[getattr(P.ExportType, kind) for kind in kinds], **more)
    return P.profile(
        activities=[P.ProfilerActivity.CPU, P.ProfilerActivity.NPU], record_shapes=True, profile_memory=True,
        with_stack=True, schedule=P.schedule(wait=0, warmup=1, active=2, repeat=1, skip_first=0),
        experimental_config=config, on_trace_ready=P.tensorboard_trace_handler(folder))
def run(profiler, steps=3):
    with profiler:
        for _ in range(steps):
            step()
            profiler.step()
"""


def run(program: str, **variables: str) -> subprocess.CompletedProcess[str]:
    done = forked.python(TRAINING + program, **variables)
    assert done.returncode == 0, done.stderr[-4000:]
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("profiles")
    run(
        f"""
torch.npu.reset_peak_memory_stats()
run(profiler({str(folder / "level1")!r}, "Level1", ["Text", "Db"], aic_metrics=P.AiCMetrics.PipeUtilization))
open({str(folder / "left")!r}, "w").write(str(torch.npu.memory_allocated()))
open({str(folder / "peak")!r}, "w").write(f"{{torch.npu.max_memory_allocated()}} {{torch.npu.memory_reserved()}}")
""",
        VNPU_TIMELINE=str(folder / "log"),
    )
    return folder


def output(folder: Path) -> Path:
    (found,) = folder.glob("*/*_ascend_pt/ASCEND_PROFILER_OUTPUT")
    return found


def table(folder: Path, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader((output(folder) / name).read_text().splitlines()))


def trace(folder: Path) -> list[dict[str, Any]]:
    return json.loads((output(folder) / "trace_view.json").read_text())  # type: ignore[no-any-return]


def test_every_file_is_there(folder: Path) -> None:
    assert {
        "trace_view.json",
        "kernel_details.csv",
        "operator_details.csv",
        "op_statistic.csv",
        "api_statistic.csv",
        "step_trace_time.csv",
        "memory_record.csv",
        "operator_memory.csv",
        "npu_module_mem.csv",
        "task_time.csv",
        "ascend_pytorch_profiler.db",
        "analysis.db",
    } <= {path.name for path in output(folder).iterdir()}


def kernels(folder: Path) -> list[timeline.Task]:
    """What the event log has of the profiled steps: the last two."""
    log = timeline.read_timeline(folder / "log")
    tasks = [task for task in log.tasks if task.unit not in ("none", "host_copy", "collective")]
    assert len(tasks) % 4 == 0 or len(tasks) > 40
    return tasks


def test_kernel_times_are_those_of_the_event_log(folder: Path) -> None:
    rows = table(folder, "kernel_details.csv")
    logged = kernels(folder)[-len(rows) :]
    assert len(rows) > 20
    assert [row["Name"].split("_")[0] for row in rows] == [task.name for task in logged]
    for row, task in zip(rows, logged, strict=True):
        assert float(row["Duration(us)"]) == pytest.approx(task.virtual_time / 1000, abs=0.001)
    assert sum(float(row["Duration(us)"]) for row in rows) == pytest.approx(
        sum(task.virtual_time for task in logged) / 1000, abs=1
    )
    statistic = table(folder, "op_statistic.csv")
    assert sum(float(row["Total Time(us)"]) for row in statistic) == pytest.approx(
        sum(float(row["Duration(us)"]) for row in rows), abs=1
    )


def test_steps_take_what_the_event_log_says(folder: Path) -> None:
    """On the device a step goes from its first kernel to that of the next, the last one to its last kernel's end."""
    rows = table(folder, "kernel_details.csv")
    logged = kernels(folder)[-len(rows) :]
    of_step = [
        [task for row, task in zip(rows, logged, strict=True) if row["Step Id"] == number] for number in ("1", "2")
    ]
    assert all(of_step) and sum(map(len, of_step)) == len(rows)
    ends = [of_step[1][0].virtual_began, of_step[1][-1].virtual_ended]
    steps = table(folder, "step_trace_time.csv")
    assert [row["Step"] for row in steps] == ["1", "2"]
    for row, tasks, end in zip(steps, of_step, ends, strict=True):
        computing = sum(task.virtual_time for task in tasks) / 1000
        whole = (end - tasks[0].virtual_began) / 1000
        assert float(row["Computing"]) == pytest.approx(computing, abs=1)
        assert float(row["Stage"]) == pytest.approx(whole, abs=1)
        assert float(row["Free"]) == pytest.approx(whole - computing, abs=1)
    # On the host it begins between the wait at the end of the one before and its first launch.
    (first, _) = (e["dur"] for e in trace(folder) if e["name"].startswith("ProfilerStep") and e["ph"] == "X")
    launch = chips.select_chip()[1]["time"]["host_us"]["value"]
    assert first == pytest.approx((ends[0] - of_step[0][0].virtual_began) / 1000, abs=launch)


def test_operators_are_in_the_queue_only_shortly(folder: Path) -> None:
    """However far ahead of the kernels, which this machine computes, the program was."""
    spans = [e for e in trace(folder) if e["ph"] == "X" and e.get("cat") in ("enqueue", "dequeue")]
    times = {(e["cat"], e["args"]["correlation_id"]): (float(e["ts"][6:]), e["dur"]) for e in spans}
    numbers = {number for kind, number in times if kind == "dequeue"}
    assert len(numbers) > 30
    launch = chips.select_chip()[1]["time"]["host_us"]["value"]
    waits = []
    for number in numbers:
        (put, lasting), (taken, _) = times["enqueue", number], times["dequeue", number]
        assert put < taken
        waits.append(taken - put - lasting)
    assert max(waits) < launch


def test_every_kernel_has_an_arrow_from_its_operator(folder: Path) -> None:
    events = trace(folder)
    ends = [e for e in events if e["ph"] == "f" and e.get("cat") == "async_npu"]
    assert len(ends) >= len(table(folder, "kernel_details.csv"))
    details = table(folder, "operator_details.csv")
    mm = [row for row in details if row["Name"] == "aten::addmm"]
    assert mm and all(float(row["Device Total Duration(us)"]) > 0 for row in mm)


def test_shapes_stacks_modules_and_units_are_there(folder: Path) -> None:
    addmm = [row for row in table(folder, "operator_details.csv") if row["Name"] == "aten::addmm"]
    assert len(addmm) == 4 and {row["Input Shapes"] for row in addmm} >= {"128;32,64;64,128;;"}
    assert all("in step" in row["Call Stack"] or ": step" in row["Call Stack"] for row in addmm)
    names = {event["name"] for event in trace(folder) if event["ph"] == "X"}
    assert {"nn.Module: Sequential_0", "nn.Module: Linear_0", "nn.Module: Linear_1"} <= names
    products = [row for row in table(folder, "kernel_details.csv") if row["Accelerator Core"] == "AI_CORE"]
    assert {row["Input Shapes"] for row in products} >= {'"128;32,64;64,128"'}
    for row in products:
        assert 0 < float(row["aic_mac_time(us)"]) <= float(row["aicore_time(us)"]) == float(row["Duration(us)"])


def test_memory_agrees_with_the_allocator(folder: Path) -> None:
    rows = [row for row in table(folder, "memory_record.csv") if row["Component"] == "PTA"]
    peak, reserved = (int(word) / 2**20 for word in (folder / "peak").read_text().split())
    assert max(float(row["Total Allocated(MB)"]) for row in rows) == pytest.approx(peak, abs=1e-6)
    assert all(float(row["Total Reserved(MB)"]) == pytest.approx(reserved, abs=1e-6) for row in rows)
    times = [float(row["Timestamp(us)"]) for row in rows]
    assert times == sorted(times)
    left = int((folder / "left").read_text()) / 2**20
    assert float(rows[-1]["Total Allocated(MB)"]) == pytest.approx(left, abs=1e-6)


def test_torch_npu_writes_the_columns_that_it_names(folder: Path) -> None:
    from torch_npu.profiler.analysis.prof_view import (
        _memory_view_parser,
        _operator_view_parser,
        _trace_step_time_parser,
    )

    named = {
        "step_trace_time.csv": _trace_step_time_parser.TraceStepTimeParser.title,
        "operator_details.csv": _operator_view_parser.OperatorViewParser.OPERATOR_HEADERS,
        "memory_record.csv": _memory_view_parser.MemoryViewParser.HEADERS_RECORD,
        "operator_memory.csv": _memory_view_parser.MemoryViewParser.HEADERS_OPERATOR,
    }
    for name, headers in named.items():
        rows = table(folder, name)
        assert rows and list(rows[0]) == list(headers), name


def test_files_say_that_they_are_predicted(folder: Path) -> None:
    assert {row["Predicted"] for row in table(folder, "kernel_details.csv")} == {"true"}
    device = [e for e in trace(folder) if e["ph"] == "X" and "Task Type" in e.get("args", {})]
    assert device and all(e["args"]["predicted"] is True for e in device)


def test_databases_are_whole(folder: Path) -> None:
    connection = sqlite3.connect(output(folder) / "ascend_pytorch_profiler.db")
    assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]
    (count,) = connection.execute("select count(*) from COMPUTE_TASK_INFO").fetchone()
    assert count == len(table(folder, "kernel_details.csv"))
    connection.close()
    connection = sqlite3.connect(output(folder) / "analysis.db")
    computing = [row[0] for row in connection.execute("select computing from StepTraceTime order by step")]
    assert computing == pytest.approx([float(row["Computing"]) for row in table(folder, "step_trace_time.csv")], abs=1)
    connection.close()


def test_nothing_was_complained_of(folder: Path) -> None:
    for log in folder.glob("*/*_ascend_pt/logs/*"):
        assert "[ERROR]" not in log.read_text(), log


def test_started_twice_and_without_room(tmp_path: Path) -> None:
    """The script goes on and ends as it would; one sentence says what is missing."""
    done = run(
        f"""
import os
first = profiler({str(tmp_path / "first")!r}, "Level0", ["Text"])
run(first)
blocked = {str(tmp_path / "blocked")!r}
import ctypes
acl = ctypes.CDLL("libascendcl.so")
acl.aclprofCreateConfig.restype = ctypes.c_void_p
assert acl.aclprofInit({str(tmp_path / "raw").encode()!r}, {len(str(tmp_path / "raw"))}) == 0
assert acl.aclprofInit(b"/tmp/other", 10) == 100042
devices = (ctypes.c_uint32 * 1)(0)
config = ctypes.c_void_p(acl.aclprofCreateConfig(devices, 1, 1, None, ctypes.c_uint64(3)))
assert acl.aclprofStart(config) == 0
assert acl.aclprofStart(config) == 100042
step()
assert acl.aclprofStop(config) == 0
assert acl.aclprofStop(config) == 100043
assert acl.aclprofFinalize() == 0
assert acl.aclprofFinalize() == 100043
assert acl.aclprofInit(b"/proc/nowhere", 13) == 0
assert acl.aclprofStart(config) == 500005
assert acl.aclprofFinalize() == 0
step()
print("went on")
"""
    )
    assert done.stdout.splitlines()[-1] == "went on"
    assert "is not started again" in done.stderr
    assert "The NPU's part of the profile is missing" in done.stderr
    assert len(list(tmp_path.glob("raw/PROF_*"))) == 1
