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
        "trace_view.json", "kernel_details.csv", "operator_details.csv", "op_statistic.csv", "api_statistic.csv",
        "step_trace_time.csv", "memory_record.csv", "operator_memory.csv", "npu_module_mem.csv", "task_time.csv",
        "ascend_pytorch_profiler.db", "analysis.db",
    } <= {path.name for path in output(folder).iterdir()}  # fmt: skip


def kernels(folder: Path) -> list[timeline.Task]:
    """What the event log has of the profiled steps: the last two."""
    log = timeline.read(folder / "log")
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


def test_steps_take_what_the_model_says(folder: Path) -> None:
    steps = [e for e in trace(folder) if e["name"].startswith("ProfilerStep") and e["ph"] == "X"]
    assert len(steps) == 2
    computing = [float(row["Computing"]) for row in table(folder, "step_trace_time.csv")]
    rows = table(folder, "kernel_details.csv")
    assert sum(computing) == pytest.approx(sum(float(row["Duration(us)"]) for row in rows), abs=1)
    # A step ends with a wait for the device, and the host launches one behind another: the log has when.
    per_step = len(rows) // 2
    logged = kernels(folder)[-len(rows) :]
    between = (logged[per_step].virtual_queued - logged[0].virtual_queued) / 1000
    assert steps[0]["dur"] == pytest.approx(between, rel=0.25)


def test_every_kernel_has_an_arrow_from_its_operator(folder: Path) -> None:
    events = trace(folder)
    ends = [e for e in events if e["ph"] == "f" and e.get("cat") == "async_npu"]
    assert len(ends) >= len(table(folder, "kernel_details.csv"))
    details = table(folder, "operator_details.csv")
    mm = [row for row in details if row["Name"] == "aten::addmm"]
    assert mm and all(float(row["Device Total Duration(us)"]) > 0 for row in mm)


def test_memory_agrees_with_the_allocator(folder: Path) -> None:
    rows = [row for row in table(folder, "memory_record.csv") if row["Component"] == "PTA"]
    peak, reserved = (int(word) / 2**20 for word in (folder / "peak").read_text().split())
    assert max(float(row["Total Allocated(MB)"]) for row in rows) == pytest.approx(peak, abs=1e-6)
    assert all(float(row["Total Reserved(MB)"]) == pytest.approx(reserved, abs=1e-6) for row in rows)
    times = [float(row["Timestamp(us)"]) for row in rows]
    assert times == sorted(times)


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
    assert computing == pytest.approx(
        [float(row["Computing"]) for row in table(folder, "step_trace_time.csv")], abs=1
    )
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


def kineto(program: str, path: Path, queue: str) -> None:
    """Every kernel of torch.profiler has an arrow from an operation of the program."""
    run(
        f"""
from torch.profiler import ProfilerActivity, profile
a = torch.randn(16, 16).npu()
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as prof:
    {program}
    torch.npu.synchronize()
prof.export_chrome_trace({str(path)!r})
assert "Self NPU" in prof.key_averages().table()
""",
        TASK_QUEUE_ENABLE=queue,
    )
    events = json.loads(path.read_text())["traceEvents"]
    kernels = [e for e in events if e.get("cat") == "kernel"]
    ends = {
        (e["pid"], e["tid"], e["ts"]): e["id"] for e in events if e.get("cat") == "ac2g" and e["ph"] == "f"
    }
    starts = {e["id"] for e in events if e.get("cat") == "ac2g" and e["ph"] == "s"}
    assert [e["name"] for e in kernels] == ["aclnnMatmul", "aclnnAdd"]
    assert all(e["args"]["type"] in ("AI_CORE", "AI_VECTOR_CORE", "AI_CPU") for e in kernels)
    assert [e["name"] for e in kernels if ends.get((e["pid"], e["tid"], e["ts"])) not in starts] == []


@pytest.mark.parametrize("queue", ["0", "1"])
def test_kineto_has_kernels_with_arrows(tmp_path: Path, queue: str) -> None:
    """With torch_npu's queue too, where another thread launches than the one that the operation is in."""
    kineto("c = a @ a; d = c + a", tmp_path / "kineto.json", queue)
