"""Ctrl-C while torch_npu waits for a device that will not finish, as one whose peer is late."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from waiting import until

from torchport import vnpu

PROGRAM = """
import ctypes, signal
import torch
signal.signal(signal.SIGINT, signal.default_int_handler)
word = torch.zeros(8, dtype=torch.int64, device="npu")
other = torch.ones(4).npu()
torch.npu.synchronize()
acl = ctypes.CDLL("libascendcl.so")
stream = ctypes.c_void_p(torch.npu.current_stream().npu_stream)
assert acl.aclrtValueWait(ctypes.c_void_p(word.data_ptr()), ctypes.c_uint64(1), ctypes.c_uint32(1), stream) == 0
print("waiting", flush=True)
while True:
    try:
        WAIT
        break
    except KeyboardInterrupt:  # it came before the wait had begun
        pass
print("over", flush=True)
"""
HINT = "a second Ctrl-C ends it"
WAITS = {
    "synchronize": "torch.npu.synchronize()",
    "value": "other.sum().item()",
    "event": "mark = torch.npu.Event(); mark.record(); mark.synchronize()",
}


@pytest.mark.parametrize("queue", ["0", "1"])
@pytest.mark.parametrize("wait", WAITS)
def test_the_second_ends_the_process(wait: str, queue: str, tmp_path: Path) -> None:
    """The second of which the wait takes notice: one that comes earlier is repeated."""
    errors = tmp_path / "stderr"
    with errors.open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-u", "-c", PROGRAM.replace("WAIT", WAITS[wait])],
            env=os.environ | vnpu.environment() | {"TASK_QUEUE_ENABLE": queue},
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "waiting\n", errors.read_text()

            def noticed() -> bool:
                process.send_signal(signal.SIGINT)
                time.sleep(1)  # most often enough for the hint; a third signal comes to a process that has ended
                return HINT in errors.read_text() or process.poll() is not None

            until(noticed)
            process.send_signal(signal.SIGINT)
            assert process.wait() == -signal.SIGINT
            assert errors.read_text().count(HINT) == 1
            assert process.stdout.read() == ""
        finally:
            process.kill()
