"""Ctrl-C while torch_npu waits for a device that will not finish, as one whose peer is late."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

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
WAIT
print("over", flush=True)
"""
WAITS = {
    "synchronize": "torch.npu.synchronize()",
    "value": "other.sum().item()",
    "event": "mark = torch.npu.Event(); mark.record(); mark.synchronize()",
}


@pytest.mark.parametrize("queue", ["0", "1"])
@pytest.mark.parametrize("wait", WAITS)
def test_the_second_ends_the_process(wait: str, queue: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", PROGRAM.replace("WAIT", WAITS[wait])],
        env=os.environ | vnpu.environment() | {"TASK_QUEUE_ENABLE": queue},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline() == "waiting\n", process.stderr.read()
            for _ in range(2):
                time.sleep(1)  # the wait has become long
                assert process.poll() is None
                process.send_signal(signal.SIGINT)
            assert process.wait(20) == -signal.SIGINT
            assert "a second Ctrl-C ends it" in process.stderr.read()
        finally:
            process.kill()
