"""The real torch_npu on this runtime: memory, streams, task queue, processes. Needs no more than a few operators."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import ascendcl
import forked
import pytest

START = "import torchport.vnpu; torchport.vnpu.activate(force=True); import torch\n"
QUIET = {"TORCH_NPU_WARNING_DISABLE": "1"}


def output(program: str, run: Callable[..., CompletedProcess[str]] = forked.python, **variables: str) -> str:
    """What `program` prints, after torch has been imported on the virtual NPU. It must succeed."""
    result = run(f"{START}{program}", **QUIET, **variables)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_out_of_memory_is_torch_s_exception_and_leaves_the_process_usable() -> None:
    program = """
try:
    torch.empty(100 << 30, dtype=torch.uint8, device="npu")
except torch.OutOfMemoryError as error:
    print(str(error).split(".If")[0])
print(torch.ones(3).npu().cpu().sum().item())
"""
    words, rest = output(program).splitlines()
    assert words.startswith("NPU out of memory. Tried to allocate 100.00 GiB (NPU 0; 60.97 GiB total capacity; ")
    assert rest == "3.0"


@pytest.mark.parametrize("expandable", ["True", "False"])
def test_host_limit_is_an_out_of_memory_error_too(expandable: str) -> None:
    result = forked.python(
        START + "torch.empty(200 << 20, dtype=torch.uint8, device='npu')",
        VNPU_HOST_LIMIT="100MiB",
        PYTORCH_NPU_ALLOC_CONF=f"expandable_segments:{expandable}",
        **QUIET,
    )
    assert result.returncode != 0
    assert "torch.OutOfMemoryError: NPU out of memory" in result.stderr
    assert "raise VNPU_HOST_LIMIT" in result.stderr


@pytest.mark.parametrize("queue", ["0", "1", "2"])
@pytest.mark.parametrize("expandable", ["True", "False"])
def test_round_trip(queue: str, expandable: str) -> None:
    program = """
x = torch.randn(1000, 1000)
y = x.npu()
z = (y + y).cpu()
print(torch.equal(z, x + x))
del y
torch.npu.empty_cache()
print(torch.npu.memory_reserved())
"""
    variables = {"TASK_QUEUE_ENABLE": queue, "PYTORCH_NPU_ALLOC_CONF": f"expandable_segments:{expandable}"}
    assert output(program, **variables) == "True\n0\n"


def test_growing_and_shrinking_segments_leave_no_growth() -> None:
    program = """
import re
def shared():
    return int(re.search(r"RssShmem:\\s+(\\d+)", open("/proc/self/status").read())[1]) >> 10
def cycle():
    tensors = [torch.ones(n, 1 << 20, dtype=torch.uint8).npu() for n in (1, 5, 30, 2)]
    del tensors
    torch.npu.synchronize()
    torch.npu.empty_cache()
cycle()
before = shared()
for _ in range(50):
    cycle()
print(shared() - before, torch.npu.memory_allocated())
"""
    growth, allocated = output(program, PYTORCH_NPU_ALLOC_CONF="expandable_segments:True").split()
    assert (abs(int(growth)) <= 1, allocated) == (True, "0")


def test_streams_and_events() -> None:
    program = """
first, second = torch.npu.Stream(), torch.npu.Stream()
start, end = (torch.npu.Event(enable_timing=True) for _ in range(2))
x = torch.arange(1000.).npu()
torch.npu.synchronize()
with torch.npu.stream(first):
    start.record()
    for _ in range(20):
        x.add_(1)
    end.record()
second.wait_event(end)
with torch.npu.stream(second):
    total = x.sum().item()
print(total == sum(range(1000)) + 20 * 1000, start.elapsed_time(end) > 0, first.query(), end.query())
"""
    assert output(program) == "True True True True\n"


@pytest.mark.parametrize("queue", ["0", "1", "2"])
def test_a_failing_operator_surfaces_at_synchronisation_with_its_name(queue: str, tmp_path: Path) -> None:
    program = """
weight, index = torch.ones(4, 2).npu(), torch.tensor([99]).npu()
other = torch.npu.Stream()
torch.npu.synchronize()
result = torch.nn.functional.embedding(index, weight)
try:
    torch.npu.synchronize()
except RuntimeError as error:
    message = str(error)
    print("507035" in message, "aclnnEmbedding" in message, "virtual NPU" in message, "frame #" in message)
with torch.npu.stream(other):
    print(weight.add(1).sum().item())
"""
    trace = tmp_path / "trace"
    printed = output(program, TASK_QUEUE_ENABLE=queue, VNPU_TRACE=str(trace)).splitlines()
    assert printed[-2:] == ["True True True False", "16.0"]
    lines = trace.read_text()
    launch = r"call aclnnEmbedding\(weight=float32\[4, 2\], indices=int64\[1\], out=float32\[1, 2\], stream=0x\w+\) -> launch"
    assert re.search(launch, lines)
    assert re.search(r"run aclnnEmbedding stream=\d+ device=0 -> aclnnEmbedding failed on .*index out of range", lines)


def test_worker_threads_follow_set_num_threads() -> None:
    """An operator's worker makes its own OpenMP team, as large as the count that torch has at the launch."""
    program = """
import os
threads = lambda: len(os.listdir("/proc/self/task"))
x = torch.ones(1 << 22).npu()
torch.set_num_threads(1)
torch.exp(x); torch.npu.synchronize()
alone = threads()
torch.set_num_threads(3)
torch.exp(x); torch.npu.synchronize()
print(threads() - alone)
"""
    assert output(program, TASK_QUEUE_ENABLE="0") == "2\n"


def test_a_profiler_sees_the_operator_and_not_how_the_device_computes_it() -> None:
    """Small operators run on the program's thread at TASK_QUEUE_ENABLE=0, and ATen's kernels with them."""
    program = """
x = torch.ones(4).npu()
torch.add(x, x); torch.npu.synchronize()
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
    torch.add(x, x)
    torch.npu.synchronize()
print([event.name for event in profile.events() if event.name.startswith("aten::add")])
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
    torch.add(x.cpu(), 1)
print([event.name for event in profile.events() if event.name.startswith("aten::add")])
"""
    assert output(program, TASK_QUEUE_ENABLE="0") == "['aten::add']\n['aten::add']\n"


def test_a_forked_child_gets_a_clear_error() -> None:
    program = """
import multiprocessing, sys
x = torch.ones(2).npu()
def child(queue):
    try:
        torch.ones(2).npu()
    except RuntimeError as error:
        queue.put(str(error))
context = multiprocessing.get_context("fork")
queue = context.Queue()
process = context.Process(target=child, args=(queue,))
process.start()
print(queue.get().splitlines()[0])
process.join()
"""
    assert "Cannot re-initialize NPU in forked subprocess" in output(program)


@pytest.mark.parametrize("queue", ["0", "1"])
def test_a_forked_child_reads_what_to_do(queue: str) -> None:
    """Factories do not meet torch_npu's own check: what it makes of a null descriptor would be "selfRef is null"."""
    program = """
import os
torch.ones(2, device="npu").sum().item()
read, write = os.pipe()
if os.fork() == 0:
    try:
        torch.ones(4, device="npu")
    except RuntimeError as error:
        os.write(write, str(error).encode())
    os._exit(0)
os.close(write)
print(os.read(read, 65536).decode())
"""
    printed = output(program, TASK_QUEUE_ENABLE=queue)
    assert "start the child with the spawn method" in printed
    assert "is null" not in printed


@pytest.mark.parametrize(
    "question",
    ["get_device_properties(0).total_memory > 2**34", "mem_get_info()[1] > 2**34", "get_device_name() == NAME"],
)
def test_a_fresh_process_may_ask_before_it_uses_the_device(question: str) -> None:
    """torch_npu tells aclInit a default device (acl_default.json), which the first call that needs one chooses."""
    program = f"NAME = 'Ascend910B1'\nprint(torch.npu.{question})"
    assert output(program) == "True\n"


def test_a_forked_process_of_multiprocessing_gets_torch_npu_s_error() -> None:
    program = """
import torch.multiprocessing
def child(queue):
    try:
        torch.npu.set_device(1)
        queue.put("set")
    except RuntimeError as error:
        queue.put(str(error))
torch.npu.set_device(0)
torch.npu.init()
context = torch.multiprocessing.get_context("fork")
queue = context.SimpleQueue()
process = context.Process(target=child, args=(queue,))
process.start()
print(queue.get())
process.join()
"""
    assert "Cannot re-initialize NPU in forked subprocess" in output(program)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_data_loader_workers_with_pinned_memory(method: str) -> None:
    program = f"""
from torch.utils.data import DataLoader, TensorDataset
if __name__ == "__main__":
    data = TensorDataset(torch.arange(64.))
    torch.ones(1).npu()
    total = torch.zeros(1).npu()
    loader = DataLoader(data, batch_size=8, num_workers=2, pin_memory=True, multiprocessing_context="{method}")
    for (batch,) in loader:
        assert batch.is_pinned()
        total += batch.npu(non_blocking=True).sum()
    print(total.item())
"""
    # What spawn starts runs the program again.
    run = forked.python if method == "fork" else ascendcl.python
    assert output(program, run) == "2016.0\n"


def test_the_process_ends_with_work_in_flight() -> None:
    program = """
x = torch.ones(256, 256).npu()
for _ in range(50):
    x = x @ x * 0.001
print("end")
"""
    assert output(program, ascendcl.python) == "end\n"


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="counts threads in /proc")
def test_thirty_two_streams_start_no_threads_until_used() -> None:
    program = """
import os
x = torch.ones(2).npu(); torch.npu.synchronize()
before = len(os.listdir("/proc/self/task"))
streams = [torch.npu.Stream() for _ in range(32)]
print(len(os.listdir("/proc/self/task")) - before)
"""
    assert output(program, TASK_QUEUE_ENABLE="0") == "0\n"
