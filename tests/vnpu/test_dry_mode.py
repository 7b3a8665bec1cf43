"""VNPU_MODE=dry: what is checked and queued is not computed; memory and operators are those of an exact run."""

from __future__ import annotations

from pathlib import Path

from forked import python

from torchport.predict.timeline import read_timeline

STEP = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8 * 36, 10)
).npu()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(3):
    x, y = torch.randn(16, 3, 8, 8).npu(), torch.randint(10, (16,)).npu()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item(), torch.npu.max_memory_allocated(), torch.npu.max_memory_reserved())
"""


def ran(folder: Path, program: str, **variables: str) -> tuple[list[str], list[tuple[str, list[tuple[int, ...]]]]]:
    """The words that the program prints, and its operators with their shapes."""
    log = folder / f"log-{len(list(folder.iterdir()))}"
    done = python(program, VNPU_TIMELINE=str(log), **variables)
    assert done.returncode == 0, done.stderr
    tasks = [task for task in read_timeline(log).tasks if not task.name.startswith(("Event", "Memcpy", "Memset"))]
    return done.stdout.split(), [(task.name, [tensor.shape for tensor in task.tensors]) for task in tasks]


def test_operators_and_memory_are_those_of_an_exact_run(tmp_path: Path) -> None:
    exact, exact_operators = ran(tmp_path, STEP)
    dry, dry_operators = ran(tmp_path, STEP, VNPU_MODE="dry")
    assert float(exact[0]) > 0.1 and float(dry[0]) == 0
    assert dry[1:] == exact[1:]
    assert len(exact_operators) > 50 and dry_operators == exact_operators
    # The comparison sees one operator more.
    _, more = ran(tmp_path, STEP.replace("    loss.backward()", "    loss.abs()\n    loss.backward()"), VNPU_MODE="dry")
    assert more != exact_operators


def test_memory_is_the_chips_and_not_this_machines() -> None:
    program = """
import resource, torch
held = [torch.ones(4 << 30, dtype=torch.uint8, device="npu") for _ in range(14)]
torch.npu.synchronize()
print(torch.npu.memory_allocated() >> 30, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 20)
try:
    torch.ones(5 << 30, dtype=torch.uint8, device="npu")
except torch.OutOfMemoryError:
    print("full")
"""
    done = python(program, VNPU_MODE="dry", VNPU_HOST_LIMIT="1GiB")
    assert done.stdout.split() == ["56", "0", "full"], done.stderr


def test_what_the_program_uploads_is_there_and_what_a_kernel_would_compute_is_zero() -> None:
    program = """
import ctypes, torch
count = ctypes.CDLL("libvnpu.so").vnpuUnknownReads
x = torch.arange(1000.0)
up = x.npu()
assert torch.equal(up.cpu(), x) and count() == 0
up += 1
assert up.cpu().count_nonzero() == 0 and count() == 1
assert up.sum().item() == 0.0 and not bool((up > -1).all())
large = torch.ones(2 << 20).npu()
assert large.cpu().count_nonzero() == 0
assert (torch.ones(10).npu() * 2).nonzero().shape == (10, 1)
print("done")
"""
    done = python(program, VNPU_MODE="dry")
    assert done.stdout == "done\n", done.stderr
    assert python(program).returncode != 0


def test_shapes_that_depend_on_data_are_a_share_or_what_is_said() -> None:
    program = """
import torch
x = torch.arange(100).npu().reshape(10, 10)
mask = x > 3
print(*x.nonzero().shape, *x[mask].shape, *x.masked_select(mask).shape)
values, places, counts = x.unique(return_inverse=True, return_counts=True)
print(*values.shape, *places.shape, *counts.shape, x.unique(dim=1).shape[1], *x.nonzero().shape)
"""

    def dry(**variables: str) -> list[int]:
        done = python(program, VNPU_MODE="dry", **variables)
        assert done.returncode == 0, done.stderr
        return [int(word) for word in done.stdout.split()]

    # The places of unique() are as many as its input has: that does not depend on data.
    assert dry() == [100, 2, 100, 100, 100, 10, 10, 100, 10, 100, 2]
    assert dry(VNPU_DRY_SHARE="0.25") == [25, 2, 25, 25, 25, 10, 10, 25, 3, 25, 2]
    assert dry(VNPU_DRY_COUNTS="3,0,7,50") == [3, 2, 0, 7, 50, 10, 10, 50, 3, 0, 2]
    # Exact runs find out.
    program = "import torch; print(len(torch.zeros(100).npu().nonzero()))"
    assert python(program, VNPU_DRY_SHARE="0.25", VNPU_DRY_COUNTS="7").stdout == "0\n"


def test_settings_that_are_none_are_refused() -> None:
    for variables, words in (
        ({"VNPU_MODE": "wet"}, "VNPU_MODE=wet is neither exact nor dry"),
        ({"VNPU_TIME": "tea"}, "VNPU_TIME=tea is neither wall"),
        ({"VNPU_DRY_SHARE": "2"}, "VNPU_DRY_SHARE=2 is not a number above 0"),
        ({"VNPU_DRY_COUNTS": "3,"}, "VNPU_DRY_COUNTS=3, is no list of numbers"),
        ({"VNPU_DRY_COUNTS": "-3"}, "VNPU_DRY_COUNTS=-3 is no list of numbers"),
        ({"VNPU_TIMELINE": "/no/such/folder/log"}, "VNPU_TIMELINE=/no/such/folder/log cannot be opened"),
    ):
        done = python("import torch; torch.ones(1).npu()", **variables)
        assert done.returncode != 0 and words in done.stderr


def test_checks_are_as_ever() -> None:
    program = "import torch; torch.ones(3, 4).npu() @ torch.ones(3, 4).npu(); torch.npu.synchronize()"
    done = python(program, VNPU_MODE="dry")
    assert done.returncode != 0 and "aclnn" in done.stderr


def test_legacy_operators_do_not_run() -> None:
    program = """
import torch, torch_npu
x = torch.full((4, 4), 2.0).npu()
y = torch_npu.npu_transpose(x, (1, 0))
print(y.cpu().sum().item())
"""
    assert python(program).stdout == "32.0\n"
    assert python(program, VNPU_MODE="dry").stdout == "0.0\n"


def test_events_carry_the_models_time() -> None:
    program = """
import torch
a = torch.ones(4096, 4096, dtype=torch.bfloat16, device="npu")
first, last = (torch.npu.Event(enable_timing=True) for _ in range(2))
first.record()
for _ in range(100):
    b = a @ a
last.record()
torch.npu.synchronize()
print(first.elapsed_time(last))
"""
    milliseconds = float(python(program, VNPU_MODE="dry", VNPU_TIME="model").stdout)
    # 2 x 4096^3 operations at 84 % of 363.7 TFLOP/s, a hundred times, and 1.6 us for each at least.
    expected = 100 * (2 * 4096**3 / (24 * 4096 * 2 * 1.85e9 * 0.84) * 1e3 + 1.6e-3)
    assert abs(milliseconds / expected - 1) < 0.02
    assert float(python(program, VNPU_MODE="dry", VNPU_TIME="model").stdout) == milliseconds
    slower = python(program, VNPU_MODE="dry", VNPU_TIME="model", VNPU_SOC="Ascend910B4").stdout
    assert float(slower) > 1.2 * milliseconds


def test_streams_wait_for_each_other_on_the_virtual_clock() -> None:
    program = """
import torch
a = torch.ones(4096, 4096, dtype=torch.bfloat16, device="npu")
side = torch.npu.Stream()
marks = [torch.npu.Event(enable_timing=True) for _ in range(3)]
marks[0].record()
for _ in range(10):
    a @ a
marks[1].record()
if WAIT:
    side.wait_event(marks[1])
with torch.npu.stream(side):
    a + a
    marks[2].record()
torch.npu.synchronize()
print(marks[0].elapsed_time(marks[1]), marks[0].elapsed_time(marks[2]))
"""
    main, side = map(float, python("WAIT = 1\n" + program, VNPU_MODE="dry", VNPU_TIME="model").stdout.split())
    assert side > main
    main, side = map(float, python("WAIT = 0\n" + program, VNPU_MODE="dry", VNPU_TIME="model").stdout.split())
    assert side < main
