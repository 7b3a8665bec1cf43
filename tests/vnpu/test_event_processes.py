"""Events that one process records and another waits for."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import ascendcl
import pytest
from ascendcl import Gate, acl, code, event, stream

pytestmark = pytest.mark.usefixtures("npu")
IPC = 0x40  # ACL_EVENT_IPC
RECORDED_NOT_READY, RECORDED_COMPLETE = 0, 1


class Handle(ctypes.Structure):
    """aclrtIpcEventHandle."""

    _fields_ = (("reserved", ctypes.c_char * 64),)


def handle_of(mark: int) -> bytes:
    handle = Handle()
    acl("aclrtIpcGetEventHandle", mark, ctypes.byref(handle))
    return bytes(handle)


def opened(handle: bytes) -> int:
    out = ctypes.c_void_p()
    acl("aclrtIpcOpenEventHandle", Handle.from_buffer_copy(handle), ctypes.byref(out))
    assert out.value is not None
    return out.value


# Says its event's handle, then does what each line asks for.
RECORDER = """
import sys
import ascendcl, test_event_processes as here
ascendcl.acl("aclInit", None)
ascendcl.acl("aclrtSetDevice", 0)
mark = ascendcl.answer("aclrtCreateEventExWithFlag", here.IPC)
queue = ascendcl.answer("aclrtCreateStream")
gate = ascendcl.Gate(queue)
ascendcl.acl("aclrtRecordEvent", mark, queue)
print(here.handle_of(mark).hex(), flush=True)
for line in sys.stdin:
    if line == "go on\\n":
        gate.open()
        ascendcl.acl("aclrtSynchronizeStream", queue)
    elif line == "expect pending\\n":
        assert ascendcl.code("aclrtSynchronizeEventWithTimeout", mark, 100) == ascendcl.RT_EVENT_TIMEOUT
    elif line == "wait\\n":
        ascendcl.acl("aclrtSynchronizeEvent", mark)
    elif line == "destroy\\n":
        ascendcl.acl("aclrtDestroyEvent", mark)
    print("done", flush=True)
"""


class Recorder:
    """A process with an event that its stream has not come to."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", RECORDER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent,
        )
        assert self.process.stdout is not None
        self.handle = bytes.fromhex(self.process.stdout.readline())

    def ask(self, line: str) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        print(line, file=self.process.stdin, flush=True)
        assert self.process.stdout.readline() == "done\n"


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    made = Recorder()
    yield made
    made.process.kill()
    made.process.communicate()


def test_a_stream_waits_for_another_process(recorder: Recorder) -> None:
    mark = opened(recorder.handle)
    status = ctypes.c_int()
    with stream() as queue:
        acl("aclrtStreamWaitEvent", queue, mark)
        acl("aclrtStreamQuery", queue, ctypes.byref(status))
        assert status.value == 1, "its stream waits"
        acl("aclrtQueryEventStatus", mark, ctypes.byref(status))
        assert status.value == RECORDED_NOT_READY
        assert code("aclrtSynchronizeEventWithTimeout", mark, 100) == ascendcl.RT_EVENT_TIMEOUT
        recorder.ask("go on")
        acl("aclrtSynchronizeStream", queue)
    acl("aclrtSynchronizeEvent", mark)
    acl("aclrtQueryEventStatus", mark, ctypes.byref(status))
    assert status.value == RECORDED_COMPLETE
    acl("aclrtDestroyEvent", mark)


def test_a_process_that_ends_keeps_nobody_waiting(recorder: Recorder) -> None:
    mark = opened(recorder.handle)
    with stream() as queue:
        acl("aclrtStreamWaitEvent", queue, mark)
        recorder.process.kill()
        recorder.process.communicate()
        assert code("aclrtSynchronizeEvent", mark) == ascendcl.RT_INVALID_HANDLE
        assert "has ended" in ascendcl.message()
        assert code("aclrtSynchronizeStream", queue) != 0
        assert "has ended" in ascendcl.message()
    acl("aclrtDestroyEvent", mark)


def test_who_has_opened_it_records_it_too(recorder: Recorder) -> None:
    mark = opened(recorder.handle)
    recorder.ask("go on")
    status = ctypes.c_int()
    with stream() as queue:
        with Gate(queue):
            acl("aclrtRecordEvent", mark, queue)
            acl("aclrtQueryEventStatus", mark, ctypes.byref(status))
            assert status.value == RECORDED_NOT_READY
            recorder.ask("expect pending")
        acl("aclrtSynchronizeStream", queue)
    recorder.ask("wait")
    acl("aclrtDestroyEvent", mark)


def test_who_made_it_does_not_wait_for_one_that_has_ended() -> None:
    mark = ascendcl.answer("aclrtCreateEventExWithFlag", IPC)
    program = "\n".join(
        (
            "import os, ascendcl, test_event_processes as here",
            "ascendcl.acl('aclInit', None)",
            "ascendcl.acl('aclrtSetDevice', 0)",
            f"mark = here.opened(bytes.fromhex('{handle_of(mark).hex()}'))",
            "queue = ascendcl.answer('aclrtCreateStream')",
            "gate = ascendcl.Gate(queue)",
            "ascendcl.acl('aclrtRecordEvent', mark, queue)",
            "os._exit(0)",
        )
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parent)
    assert code("aclrtSynchronizeEvent", mark) == ascendcl.RT_INVALID_HANDLE
    assert "has ended" in ascendcl.message()
    acl("aclrtDestroyEvent", mark)


def test_what_is_no_more_cannot_be_opened(recorder: Recorder) -> None:
    recorder.ask("go on")
    recorder.ask("destroy")
    out = ctypes.c_void_p()
    found = [code("aclrtIpcOpenEventHandle", Handle.from_buffer_copy(recorder.handle), ctypes.byref(out))]
    words = [ascendcl.message()]
    recorder.process.kill()
    recorder.process.communicate()
    for handle in (recorder.handle, bytes(64)):
        found.append(code("aclrtIpcOpenEventHandle", Handle.from_buffer_copy(handle), ctypes.byref(out)))
        words.append(ascendcl.message())
    assert found == [ascendcl.RT_PARAM_INVALID] * 3
    assert "has destroyed it" in words[0]
    assert "has ended" in words[1]


def test_an_event_of_this_process_alone_has_no_handle() -> None:
    handle = Handle()
    with event() as mark:
        assert code("aclrtIpcGetEventHandle", mark, ctypes.byref(handle)) == ascendcl.RT_PARAM_INVALID
    assert "ACL_EVENT_IPC" in ascendcl.message()


def test_a_place_that_is_used_again_lets_those_go_on_who_waited() -> None:
    """The waiting is for a record of the event that had the place before."""
    with stream() as queue, stream() as other:
        with Gate(queue), event(IPC) as mark:
            acl("aclrtRecordEvent", mark, queue)
            first = opened(handle_of(mark))
            acl("aclrtStreamWaitEvent", other, first)
        acl("aclrtSynchronizeStream", queue)
        acl("aclrtSynchronizeStream", other)
        for _ in range(100):
            with event(IPC) as mark:
                acl("aclrtRecordEvent", mark, queue)
                acl("aclrtStreamWaitEvent", other, mark)
        acl("aclrtSynchronizeStream", other)
        acl("aclrtDestroyEvent", first)


PARENT = """
import subprocess, sys
import torch, torch_npu
mark = torch.npu.Event(interprocess=True)
mark.record()
child = "import sys, torch, torch_npu; " \\
    "mark = torch.npu.Event.from_ipc_handle(torch.device('npu:0'), bytes.fromhex(sys.argv[1])); " \\
    "mark.wait(); mark.synchronize(); torch.npu.synchronize(); print(mark.query())"
subprocess.run([sys.executable, "-c", child, bytes(mark.ipc_handle()).hex()], check=True)
"""


def test_torch_events_between_processes() -> None:
    run = subprocess.run([sys.executable, "-c", PARENT], capture_output=True, text=True, check=False)
    assert run.stdout == "True\n", run.stderr
