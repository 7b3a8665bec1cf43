"""How a process that has trained ends: exit code 0 and nothing of a corrupted heap on standard error, with every task
queue of torch_npu, with and without its devices stopped. TORCHPORT_EXITS says how many processes of each (`make exits`).
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from torchport import vnpu
from torchport.vnpu import backward_threads

RUNS = int(os.environ.get("TORCHPORT_EXITS", "2"))
pytestmark = pytest.mark.timeout(600 + 60 * RUNS)
# What glibc and the C++ runtime write when a process ends itself.
LAST_WORDS = ("corrupted", "double free", "free():", "terminate called", "Segmentation fault", "core dumped")

TRAINING = """
import torch, torch_npu
x = torch.randn(64, 64, device="npu", requires_grad=True)
for _ in range(5):
    (x @ x).relu().sum().backward()
side = torch.npu.Stream()
with torch.npu.stream(side):
    y = x * 2
mark = torch.npu.Event()
mark.record()
"""
# stop_device has torch_npu's queue end its work; what is launched afterwards is refused.
STOP = """
torch_npu.npu.stop_device(0)
try:
    (x + 1).sum().item()
except RuntimeError as error:
    print("refused", type(error).__name__)
"""


def what_is_wrong(status: int, errors: str) -> str:
    """Why this is no clean end; empty where it is one."""
    found = [words for words in LAST_WORDS if words in errors]
    return f"exit status {status}: {', '.join(found)}\n{errors[-3000:]}" if status != 0 or found else ""


def start(program: str, queue: str) -> subprocess.Popen[str]:
    environ = os.environ | vnpu.environment() | {"TASK_QUEUE_ENABLE": queue, "OMP_NUM_THREADS": "1"}
    environ |= {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    activated = "import torchport.vnpu; torchport.vnpu.activate(force=True)\n" + program
    return subprocess.Popen(
        [sys.executable, "-c", activated], env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize(
    ("queue", "stopped"),
    [
        pytest.param("0", False, marks=pytest.mark.exits),
        pytest.param("0", True, marks=pytest.mark.exits),
        ("1", False),
        pytest.param("1", True, marks=pytest.mark.exits),
        pytest.param("2", False, marks=pytest.mark.exits),
        ("2", True),
    ],
)
def test_a_process_that_has_trained_ends_cleanly(queue: str, stopped: bool) -> None:
    program = TRAINING + (STOP if stopped else "")
    wrong = []
    for _ in range(0, RUNS, 2):  # two at a time
        for process in [start(program, queue), start(program, queue)]:
            _, errors = process.communicate()
            if fault := what_is_wrong(process.returncode, errors):
                wrong.append(fault)
    assert not wrong, f"{len(wrong)} of {RUNS}: {wrong[0]}"


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("import os; os.abort()", "exit status -6"),
        ("import sys; sys.stderr.write('free(): double free detected in tcache 2')", "double free"),
        ("raise SystemExit(1)", "exit status 1"),
    ],
)
def test_an_unclean_end_is_seen(program: str, words: str) -> None:
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert words in what_is_wrong(result.returncode, result.stderr)


def test_a_backward_thread_at_work_is_waited_for() -> None:
    """It drops a Python object when its pass is over, and a process that ends before that is aborted."""
    started, done = threading.Event(), []

    def work() -> None:
        ctypes.CDLL(None).prctl(15, b"pt_autograd_0")  # PR_SET_NAME
        started.set()
        for _ in range(50):  # without the GIL
            hashlib.sha256(bytes(2**22))
        done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    started.wait()
    backward_threads.await_backward()
    ended = list(done)
    thread.join()
    assert ended == [True]


def test_a_backward_thread_that_waits_for_work_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    named, asleep, looks = threading.Event(), threading.Event(), []

    def wait() -> None:
        ctypes.CDLL(None).prctl(15, b"pt_autograd_0")
        named.set()
        asleep.wait()

    thread = threading.Thread(target=wait)
    thread.start()
    named.wait()
    look = backward_threads._is_one_at_work
    monkeypatch.setattr(backward_threads, "_is_one_at_work", lambda: looks.append(look()) or looks[-1])
    backward_threads.await_backward()
    asleep.set()
    thread.join()
    assert looks[-2:] == [False, False]
