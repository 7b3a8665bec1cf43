"""Streams: first in, first out, truly asynchronous, independent of each other; and host functions in them."""

from __future__ import annotations

import ctypes
import os
import threading
import time

import ascendcl
import compiled
import pytest
from ascendcl import Gate, HostFunction, acl, ask, code, device_memory, event, stream
from waiting import until
from waits import falls_asleep

pytestmark = [pytest.mark.device, pytest.mark.usefixtures("npu")]
COMPLETE, NOT_READY = 0, 1
STOP_ON_FAILURE = 1
TRIES = 200  # of which some hit the moment in which two calls meet


def status(handle: int) -> int:
    return int(ask("aclrtStreamQuery", handle, kind=ctypes.c_int))


def fail(handle: int) -> None:
    """Have a task fail on `handle`: a wait of 10 ms for an event behind a closed gate."""
    with stream() as other, event() as never, Gate(other):
        acl("aclrtRecordEvent", never, other)
        acl("aclrtStreamWaitEventWithTimeout", handle, never, 10)
        until(lambda: status(handle) == COMPLETE)


def test_a_launch_returns_before_the_task_has_run() -> None:
    with stream() as queue, Gate(queue) as gate:
        assert status(queue) == NOT_READY
        gate.open()
        acl("aclrtSynchronizeStream", queue)
        assert status(queue) == COMPLETE


def test_order_within_a_stream() -> None:
    seen: list[int] = []
    functions = [HostFunction(lambda _, i=i: seen.append(i)) for i in range(200)]
    with stream() as queue:
        for function in functions:
            acl("aclrtLaunchHostFunc", queue, function, 0)
        acl("aclrtSynchronizeStream", queue)
    assert seen == list(range(200))


def test_streams_do_not_wait_for_each_other() -> None:
    with stream() as blocked, stream() as free, device_memory(16) as address, Gate(blocked):
        acl("aclrtMemsetAsync", address, 16, 1, 16, free)
        acl("aclrtSynchronizeStream", free)
        assert status(blocked) == NOT_READY
        assert ascendcl.read(address, 16) == b"\x01" * 16


def test_null_is_the_default_stream_of_the_thread_s_device() -> None:
    handle = ascendcl.answer("aclrtCtxGetCurrentDefaultStream")
    identity = ask("aclrtStreamGetId", 0, kind=ctypes.c_int32)
    assert ask("aclrtStreamGetId", handle, kind=ctypes.c_int32) == identity
    acl("aclrtSetDevice", 1)
    assert ask("aclrtStreamGetId", 0, kind=ctypes.c_int32) != identity
    acl("aclrtSetDevice", 0)


def test_synchronise_with_time_out() -> None:
    with stream() as queue, Gate(queue):
        start = time.monotonic()
        assert code("aclrtSynchronizeStreamWithTimeout", queue, 50) == ascendcl.RT_STREAM_TIMEOUT
        assert time.monotonic() - start >= 0.05
        assert "did not finish its tasks within the time-out" in ascendcl.message()
        assert code("aclrtSynchronizeDeviceWithTimeout", 50) == ascendcl.RT_STREAM_TIMEOUT
        assert code("aclrtSynchronizeStreamWithTimeout", queue, -2) == ascendcl.RT_PARAM_INVALID
        ascendcl.message()


def test_device_synchronise_covers_every_stream() -> None:
    done: list[int] = []

    def synchronise() -> None:
        acl("aclrtSetDevice", 0)
        acl("aclrtSynchronizeDevice")
        done.append(1)

    thread = threading.Thread(target=synchronise)
    with stream() as first, stream() as second, Gate(first) as one, Gate(second) as other:
        thread.start()
        assert falls_asleep(thread)
        one.open()
        acl("aclrtSynchronizeStream", first)
        assert falls_asleep(thread), "it waits for the second stream, too"
        other.open()
        thread.join()
    assert done == [1]


def test_a_failure_shows_at_the_next_synchronisation_once_and_nowhere_else() -> None:
    with stream() as queue, stream() as other, device_memory(16) as address:
        fail(queue)
        acl("aclrtMemsetAsync", address, 16, 1, 16, queue)  # the call itself succeeds, and the task still runs
        assert code("aclrtSynchronizeStream", queue) == ascendcl.RT_EVENT_TIMEOUT
        assert "EventWait: " in ascendcl.message()
        acl("aclrtSynchronizeStream", other)
        acl("aclrtSynchronizeStream", queue)
        assert ascendcl.read(address, 16) == b"\x01" * 16


def refused(handle: int, mark: int) -> bool:
    """Whether calls that use the stream get CANN's error now; they must not leave anybody waiting."""
    if code("aclrtRecordEvent", mark, handle) == 0:
        return False
    said = ascendcl.message()  # the second, where the stream went while the call was at work
    assert "is not a live stream" in said or "was destroyed while this call was using it" in said
    assert code("aclrtStreamWaitEvent", handle, mark) == ascendcl.RT_INVALID_HANDLE
    assert code("aclrtSynchronizeStream", handle) == ascendcl.RT_INVALID_HANDLE
    ascendcl.message()
    return True


@pytest.mark.parametrize("end", ["aclrtDestroyStream", "aclrtResetDeviceForce"])
def test_a_stream_that_another_thread_takes_away_is_refused(end: str) -> None:
    """From the moment at which that call begins, and although it still waits for what is queued."""
    acl("aclrtSetDevice", 1)
    queue = ascendcl.answer("aclrtCreateStream")
    codes: list[int] = []

    def take_away() -> None:
        acl("aclrtSetDevice", 1)
        codes.append(code(end, queue if end == "aclrtDestroyStream" else 1))

    with event() as mark:
        with Gate(queue):
            thread = threading.Thread(target=take_away)
            thread.start()
            until(lambda: refused(queue, mark), 0.001)
            assert codes == []  # it waits for the gate
        thread.join()
        assert codes == [0]
        acl("aclrtSynchronizeEvent", mark)
    acl("aclrtSetDevice", 0)


def test_a_record_that_is_refused_leaves_its_event_as_it_was() -> None:
    """Also where the stream goes in the middle of the call, which a few hundred tries hit."""
    acl("aclrtSetDevice", 1)
    with event() as mark:
        for _ in range(TRIES):
            queue = ascendcl.answer("aclrtCreateStream")
            thread = threading.Thread(target=acl, args=("aclrtDestroyStream", queue))
            thread.start()
            while code("aclrtRecordEvent", mark, queue) == 0:
                pass
            ascendcl.message()
            thread.join()
            acl("aclrtSynchronizeEvent", mark)
    acl("aclrtSetDevice", 0)


def test_a_stream_that_stops_on_failure_runs_nothing_more() -> None:
    with stream() as queue, device_memory(16) as address:
        acl("aclrtSetStreamFailureMode", queue, STOP_ON_FAILURE)
        fail(queue)
        acl("aclrtMemsetAsync", address, 16, 1, 16, queue)
        assert code("aclrtSynchronizeStream", queue) == ascendcl.RT_EVENT_TIMEOUT
        assert code("aclrtSynchronizeStream", queue) == ascendcl.RT_EVENT_TIMEOUT
        assert ascendcl.read(address, 16) == bytes(16)
        # but whoever waits for it goes on
        with event() as mark, stream() as other:
            acl("aclrtRecordEvent", mark, queue)
            acl("aclrtStreamWaitEvent", other, mark)
            acl("aclrtSynchronizeStream", other)
            assert code("aclrtSynchronizeEvent", mark) == ascendcl.RT_EVENT_TIMEOUT


def test_destroying_runs_what_is_queued() -> None:
    with device_memory(16) as address:
        with stream() as queue:
            for value in range(1, 100):
                acl("aclrtMemsetAsync", address, 16, value, 16, queue)
        assert ascendcl.read(address, 16) == b"\x63" * 16
    assert code("aclrtSynchronizeStream", queue) == ascendcl.RT_INVALID_HANDLE
    assert "is not a live stream" in ascendcl.message()


def test_freeing_memory_waits_for_its_device() -> None:
    with stream() as queue, Gate(queue) as gate:
        address = ascendcl.malloc(16)
        acl("aclrtMemsetAsync", address, 16, 1, 16, queue)
        thread = threading.Thread(target=acl, args=("aclrtFree", address))
        thread.start()
        assert falls_asleep(thread), "the memory was freed while a task used it"
        gate.open()
        thread.join()


def test_priority_and_flags_are_kept() -> None:
    handle = ascendcl.answer("aclrtCreateStreamWithConfig", 5, 3)
    assert ask("aclrtStreamGetPriority", handle) == 5
    assert ask("aclrtStreamGetFlags", handle) == 3
    acl("aclrtDestroyStreamForce", handle)
    out = ctypes.c_void_p()
    assert code("aclrtCreateStreamWithConfig", ctypes.byref(out), 8, 0) == ascendcl.RT_PARAM_INVALID
    ascendcl.message()


def test_overflow_switch_is_kept() -> None:
    with stream() as queue:
        assert ask("aclrtGetStreamOverflowSwitch", queue) == 0
        acl("aclrtSetStreamOverflowSwitch", queue, 1)
        assert ask("aclrtGetStreamOverflowSwitch", queue) == 1


def test_a_host_function_must_not_wait_for_its_own_stream() -> None:
    codes: list[int] = []
    with stream() as queue:
        function = HostFunction(lambda _: codes.append(code("aclrtSynchronizeStream", queue)))
        acl("aclrtLaunchHostFunc", queue, function, 0)
        acl("aclrtSynchronizeStream", queue)
    assert codes == [ascendcl.RT_PARAM_INVALID]


def test_a_host_function_must_not_destroy_its_own_stream() -> None:
    codes: list[int] = []
    with stream() as queue:
        function = HostFunction(lambda _: codes.append(code("aclrtDestroyStream", queue)))
        acl("aclrtLaunchHostFunc", queue, function, 0)
        acl("aclrtSynchronizeStream", queue)
    assert codes == [ascendcl.RT_PARAM_INVALID]


@pytest.mark.skipif(
    "libasan" in os.environ.get("LD_PRELOAD", ""),
    reason="AddressSanitizer keeps freed addresses aside, so that none comes again",
)
def test_a_new_stream_has_nothing_of_one_that_had_its_address() -> None:
    # In a process of its own: where much has been freed before, it can be long until an address comes again.
    ended = ascendcl.python("""
from ascendcl import acl, ask, stream
acl("aclrtSetDevice", 0)
seen = set()
for _ in range(2000):
    with stream() as queue:
        assert ask("aclrtGetStreamResLimit", queue, 0) == 24
        acl("aclrtSubscribeReport", 1, queue)
        acl("aclrtSetStreamResLimit", queue, 0, 6)
        acl("aclrtSetStreamOverflowSwitch", queue, 1)
    if queue in seen:
        break
    seen.add(queue)
else:
    raise SystemExit("no address came again, so nothing was shown")
""")
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("block", [False, True])
def test_callbacks_run_in_the_subscribed_thread(block: bool) -> None:
    ran_in: list[int] = []
    function = HostFunction(lambda _: ran_in.append(threading.get_ident()))
    ready, stop = threading.Event(), threading.Event()

    def report() -> None:
        ready.set()
        while not stop.is_set():
            code("aclrtProcessReport", 20)

    thread = threading.Thread(target=report, daemon=True)
    thread.start()
    ready.wait()
    assert thread.ident is not None
    with stream() as queue:
        assert code("aclrtLaunchCallback", function, 0, block, queue) == 107015
        acl("aclrtSubscribeReport", thread.ident, queue)
        assert code("aclrtSubscribeReport", thread.ident, queue) == 107011
        for _ in range(3):
            acl("aclrtLaunchCallback", function, 0, block, queue)
        acl("aclrtSynchronizeStream", queue)
        if block:
            assert len(ran_in) == 3
        until(lambda: len(ran_in) == 3)
        acl("aclrtUnSubscribeReport", thread.ident, queue)
    stop.set()
    thread.join()
    assert ran_in == [thread.ident] * 3


def test_a_callback_whose_thread_is_unsubscribed_fails_and_holds_nothing_up() -> None:
    function = HostFunction(lambda _: None)
    with stream() as queue:
        acl("aclrtSubscribeReport", 1, queue)
        acl("aclrtLaunchCallback", function, 0, 1, queue)  # waits for a thread that never comes
        with Gate(queue):
            acl("aclrtLaunchCallback", function, 0, 0, queue)
            acl("aclrtUnSubscribeReport", 1, queue)
        assert code("aclrtSynchronizeStream", queue) == ascendcl.RT_PARAM_INVALID
        assert "its thread was unsubscribed" in ascendcl.message()
        acl("aclrtSynchronizeStream", queue)


def test_a_thread_without_subscription_has_no_reports() -> None:
    assert code("aclrtProcessReport", 10) == 107012
    with stream() as queue:
        acl("aclrtSubscribeReport", threading.get_ident(), queue)
        assert code("aclrtProcessReport", 10) == 507012
        acl("aclrtUnSubscribeReport", threading.get_ident(), queue)


def test_values_order_streams() -> None:
    with device_memory(16) as address, device_memory(16) as data, stream() as writer, stream() as reader:
        with Gate(writer):
            acl("aclrtMemsetAsync", data, 16, 5, 16, writer)
            acl("aclrtValueWrite", address, 7, 0, writer)
            acl("aclrtValueWait", address, 7, 1, reader)  # 1: equal
            assert status(reader) == NOT_READY
        acl("aclrtSynchronizeStream", reader)
        assert ascendcl.read(data, 16) == b"\x05" * 16
    assert code("aclrtValueWrite", address + 4, 7, 0, 0) == ascendcl.RT_PARAM_INVALID


def test_many_threads_and_streams() -> None:
    """Streams made, used and destroyed by several threads at once, on two devices."""
    failures: list[Exception] = []

    def work(number: int) -> None:
        try:
            acl("aclrtSetDevice", number % 2)
            for turn in range(40):
                with stream() as queue, stream() as other, event() as mark, device_memory(64) as address:
                    value = (number * 40 + turn) % 256
                    acl("aclrtMemsetAsync", address, 64, value, 64, queue)
                    acl("aclrtRecordEvent", mark, queue)
                    acl("aclrtStreamWaitEvent", other, mark)
                    target = ctypes.create_string_buffer(64)
                    acl("aclrtMemcpyAsync", target, 64, address, 64, ascendcl.DEVICE_TO_HOST, other)
                    acl("aclrtSynchronizeStream", other)
                    assert target.raw == bytes([value]) * 64
        except Exception as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_one_stream_fed_by_many_threads() -> None:
    counter = ctypes.c_int64(0)

    def bump(_: int) -> None:
        counter.value += 1  # only the stream's thread gets here

    function = HostFunction(bump)
    with stream() as queue:

        def launch() -> None:
            acl("aclrtSetDevice", 0)
            for _ in range(250):
                acl("aclrtLaunchHostFunc", queue, function, 0)

        threads = [threading.Thread(target=launch) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        acl("aclrtSynchronizeStream", queue)
    assert counter.value == 1000


def test_order_where_the_submitting_thread_runs_tasks() -> None:
    """Small operators are run by the thread that launches them; here with tasks of all kinds, from four threads."""
    result = compiled.run("stream_order")
    assert (result.returncode, result.stderr) == (0, "")
    assert int(result.stdout.split()[2]) > 0
