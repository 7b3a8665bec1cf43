"""What failed where nobody looks: an operator that the program does not wait for, a launch on torch_npu's own thread."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from ascendcl import python

from torchport import vnpu

START = "import torchport.vnpu; torchport.vnpu.activate(force=True); import torch, torch_npu\n"
QUIET = {"TORCH_NPU_WARNING_DISABLE": "1"}
# The row that is asked for does not exist, which the kernel finds when it runs.
FAILS = """
import sys, torch, torch_npu
rows = torch.ones(4, 8, device="npu")
chosen = torch.index_select(rows, 0, torch.tensor([99]).npu())
"""
WAITS = """
try:
    torch.npu.synchronize()
except RuntimeError:
    print("seen")
"""


def run(tmp_path: Path, program: str, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "script.py"
    script.write_text(program)
    environment = {**os.environ, **vnpu.environment(), **QUIET, **variables}
    return subprocess.run(
        [sys.executable, *command, script], env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("queue", [*"01", pytest.param("2", marks=pytest.mark.ports)])
def test_run_ends_with_1_and_names_the_operator(tmp_path: Path, queue: str) -> None:
    ended = run(tmp_path, FAILS, "-m", "torchport", "run", "--as-is", TASK_QUEUE_ENABLE=queue)
    assert ended.returncode == 1, ended.stderr
    last = ended.stderr.splitlines()[-1]
    assert last.startswith(
        "torchport run: an operator has failed and the program has not waited for it: aclnnIndexSelect "
    )
    assert "index out of range" in last


def test_a_redirected_script_does_as_well(tmp_path: Path) -> None:
    program = FAILS.replace(", torch_npu", "").replace('"npu"', '"cuda"').replace(".npu()", ".cuda()")
    ended = run(tmp_path, program, "-m", "torchport", "run", "-q")
    assert ended.returncode == 1, ended.stderr
    assert "has not waited for it: aclnnIndexSelect " in ended.stderr


@pytest.mark.parametrize(
    ("end", "status"), [("", 0), (FAILS + WAITS, 0), (FAILS + "sys.exit(3)", 3), (FAILS + "raise ValueError", 1)]
)
def test_run_leaves_every_other_status(tmp_path: Path, end: str, status: int) -> None:
    program = "import torch, torch_npu\nprint(torch.ones(2, device='npu').sum().item())\n" + end
    ended = run(tmp_path, program, "-m", "torchport", "run", "--as-is")
    assert ended.returncode == status, ended.stderr
    assert "torchport run:" not in ended.stderr
    assert ("seen" in ended.stdout) == (WAITS in end)


def test_plain_python_keeps_its_status(tmp_path: Path) -> None:
    ended = run(tmp_path, FAILS)
    assert ended.returncode == 0, ended.stderr


# An operator of CANN's older interface, whose launch torch_npu makes on its own thread; it is refused there.
REFUSED = """
try:
    one, two = torch.ones(1, device="npu"), torch.ones(2, device="npu")
    torch_npu._npu_silent_check(torch.ones(4, device="npu"), one, two, one, one, one, 1, 1.0, 1.0, 1.0, 1.0)
    torch.npu.synchronize()
except RuntimeError as error:
    print("first", "SilentCheck" in str(error))
for name, use in {
    "value": lambda: (torch.ones(3, device="npu") + 1).tolist(),
    "copy": lambda: torch.arange(4.0).npu().cpu().tolist(),
    "device": torch.npu.synchronize,
    "stream": torch.npu.current_stream().synchronize,
}.items():
    try:
        print(name, use())
    except RuntimeError as error:
        print(name, "SilentCheck" in str(error) or "synchronize failed, error code" in str(error))
"""


@pytest.mark.parametrize("queue", ["1", "2"])
def test_a_launch_that_torch_npu_has_dropped_is_not_forgotten(queue: str) -> None:
    result = python(START + REFUSED, TASK_QUEUE_ENABLE=queue, **QUIET)
    assert result.returncode == 0, result.stderr
    names = ("first", "value", "copy", "device", "stream")
    assert result.stdout.splitlines() == [f"{name} True" for name in names]


def test_who_gets_the_error_himself_may_go_on() -> None:
    """Without the queue the caller has the error in his hands: what he does after it is computed."""
    result = python(START + REFUSED, TASK_QUEUE_ENABLE="0", **QUIET)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [
        "first True",
        "value [2.0, 2.0, 2.0]",
        "copy [0.0, 1.0, 2.0, 3.0]",
        "device None",
        "stream None",
    ]
