"""aclrtDeviceTaskAbort: what is queued is dropped, what waits ends, what comes later runs."""

from __future__ import annotations

import ctypes
import threading

import ascendcl
import pytest
from ascendcl import Gate, HostFunction, acl, code, device_memory, event, read, stream
from waits import falls_asleep

pytestmark = [pytest.mark.device, pytest.mark.usefixtures("npu")]
TASK_ABORT = 107022  # ACL_ERROR_RT_DEVICE_TASK_ABORT


def test_a_wait_ends_and_what_is_behind_it_is_dropped() -> None:
    answers: list[tuple[int, str]] = []
    with stream() as queue, device_memory(64) as memory:
        acl("aclrtMemset", memory, 64, 0, 64)
        acl("aclrtValueWait", memory, 1, 1, queue)  # nobody writes it
        acl("aclrtMemsetAsync", memory + 8, 8, 7, 8, queue)

        def wait() -> None:
            acl("aclrtSetDevice", 0)
            answers.append((code("aclrtSynchronizeStream", queue), ascendcl.message()))

        waiting = threading.Thread(target=wait)
        waiting.start()
        assert falls_asleep(waiting)
        acl("aclrtDeviceTaskAbort", 0, 0)
        waiting.join()
        status, text = answers[0]
        assert status == TASK_ABORT
        assert "The tasks of virtual NPU 0 were aborted (aclrtDeviceTaskAbort)." in text
        assert read(memory + 8, 1) == bytes([0])

        acl("aclrtMemsetAsync", memory + 8, 8, 9, 8, queue)
        acl("aclrtSynchronizeStream", queue)
        assert read(memory + 8, 1) == bytes([9])


def test_who_waits_for_an_event_is_let_go() -> None:
    """The event's own stream belongs to another device, whose tasks go on."""
    with stream() as queue, event() as never:
        acl("aclrtSetDevice", 1)
        with stream() as other, Gate(other):
            acl("aclrtRecordEvent", never, other)
            acl("aclrtStreamWaitEvent", queue, never)
            acl("aclrtDeviceTaskAbort", 0, 0)
            acl("aclrtSynchronizeStream", queue)
            assert code("aclrtStreamQuery", other, ctypes.byref(ctypes.c_int())) == 0
        acl("aclrtSetDevice", 0)


def test_what_runs_is_not_stopped_and_the_time_limit_says_so() -> None:
    started, opened = threading.Event(), threading.Event()
    function = HostFunction(lambda _: (started.set(), opened.wait(ascendcl.SECONDS))[0])
    with stream() as queue:
        acl("aclrtLaunchHostFunc", queue, function, 0)
        started.wait()
        assert code("aclrtDeviceTaskAbort", 0, 50) == ascendcl.RT_STREAM_TIMEOUT
        assert "still runs a task that cannot be stopped" in ascendcl.message()
        opened.set()
        acl("aclrtDeviceTaskAbort", 0, 0)
        acl("aclrtSynchronizeStream", queue)


def test_a_device_that_is_not_there() -> None:
    assert code("aclrtDeviceTaskAbort", 99, 0) == ascendcl.RT_INVALID_DEVICE
