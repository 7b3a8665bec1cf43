"""Events: recorded in one stream, waited for in another or by the host."""

from __future__ import annotations

import ctypes
import time

import ascendcl
import pytest
from ascendcl import Gate, acl, ask, code, device_memory, event, stream

pytestmark = [pytest.mark.device, pytest.mark.usefixtures("npu")]
RECORDED_NOT_READY, RECORDED_COMPLETE = 0, 1
WAIT_COMPLETE, WAIT_NOT_READY = 0, 1


def recorded(handle: int) -> int:
    return int(ask("aclrtQueryEventStatus", handle, kind=ctypes.c_int))


def waited(handle: int) -> int:
    return int(ask("aclrtQueryEventWaitStatus", handle, kind=ctypes.c_int))


def test_status_follows_the_stream() -> None:
    with stream() as queue, event() as mark:
        assert recorded(mark) == RECORDED_COMPLETE  # nothing to wait for
        with Gate(queue):
            acl("aclrtRecordEvent", mark, queue)
            assert recorded(mark) == RECORDED_NOT_READY
        acl("aclrtSynchronizeEvent", mark)
        assert recorded(mark) == RECORDED_COMPLETE


def test_recording_again_starts_over() -> None:
    with stream() as queue, event() as mark:
        acl("aclrtRecordEvent", mark, queue)
        acl("aclrtSynchronizeEvent", mark)
        with Gate(queue):
            acl("aclrtRecordEvent", mark, queue)
            assert recorded(mark) == RECORDED_NOT_READY
        acl("aclrtSynchronizeEvent", mark)


def test_a_stream_waits_for_the_event() -> None:
    with stream() as producer, stream() as consumer, event() as mark, device_memory(16) as address:
        target = ctypes.create_string_buffer(16)
        with Gate(producer):
            acl("aclrtMemsetAsync", address, 16, 1, 16, producer)
            acl("aclrtRecordEvent", mark, producer)
            acl("aclrtStreamWaitEvent", consumer, mark)
            acl("aclrtMemcpyAsync", target, 16, address, 16, ascendcl.DEVICE_TO_HOST, consumer)
            assert target.raw == bytes(16)
            assert waited(mark) == WAIT_NOT_READY
            assert code("aclrtSynchronizeStreamWithTimeout", consumer, 20) == ascendcl.RT_STREAM_TIMEOUT
            assert target.raw == bytes(16)
        acl("aclrtSynchronizeStream", consumer)
        assert target.raw == b"\x01" * 16
        assert waited(mark) == WAIT_COMPLETE


def test_a_wait_takes_the_record_that_preceded_it() -> None:
    with stream() as producer, stream() as consumer, event() as mark:
        acl("aclrtRecordEvent", mark, producer)
        acl("aclrtSynchronizeEvent", mark)
        acl("aclrtStreamWaitEvent", consumer, mark)
        with Gate(producer):
            acl("aclrtRecordEvent", mark, producer)
            acl("aclrtSynchronizeStream", consumer)  # does not wait for the second record


def test_a_wait_is_not_ended_by_a_later_record_on_another_stream() -> None:
    """torch_npu records one event for all collectives of a group, each time on the stream of the call."""
    with stream() as slow, stream() as fast, stream() as consumer, event() as mark, device_memory(16) as address:
        target = ctypes.create_string_buffer(16)
        with Gate(slow):
            acl("aclrtMemsetAsync", address, 16, 1, 16, slow)
            acl("aclrtRecordEvent", mark, slow)
            acl("aclrtStreamWaitEvent", consumer, mark)
            acl("aclrtRecordEvent", mark, fast)
            acl("aclrtSynchronizeEvent", mark)  # the later record alone
            acl("aclrtMemcpyAsync", target, 16, address, 16, ascendcl.DEVICE_TO_HOST, consumer)
            assert code("aclrtSynchronizeStreamWithTimeout", consumer, 100) == ascendcl.RT_STREAM_TIMEOUT
            assert target.raw == bytes(16)
        acl("aclrtSynchronizeStream", consumer)
        assert target.raw == b"\1" * 16


def test_synchronise_with_time_out() -> None:
    with stream() as queue, event() as mark, Gate(queue):
        acl("aclrtRecordEvent", mark, queue)
        assert code("aclrtSynchronizeEventWithTimeout", mark, 30) == ascendcl.RT_EVENT_TIMEOUT
        assert "was not reached within the time-out" in ascendcl.message()


def test_wait_limit_of_the_process() -> None:
    acl("aclrtSetOpWaitTimeout", 1)
    try:
        with stream() as producer, stream() as consumer, event() as mark, Gate(producer):
            acl("aclrtRecordEvent", mark, producer)
            acl("aclrtStreamWaitEvent", consumer, mark)
            assert code("aclrtSynchronizeStream", consumer) == ascendcl.RT_EVENT_TIMEOUT
            assert "within 1000 ms" in ascendcl.message()
    finally:
        acl("aclrtSetOpWaitTimeout", 0)


def test_elapsed_time() -> None:
    with stream() as queue, event(8) as start, event(8) as end:
        before_both = time.monotonic()
        acl("aclrtRecordEvent", start, queue)
        acl("aclrtSynchronizeEvent", start)
        between = time.monotonic()
        time.sleep(0.05)
        least = time.monotonic() - between
        acl("aclrtRecordEvent", end, queue)
        acl("aclrtSynchronizeEvent", end)
        most = time.monotonic() - before_both
        elapsed = ascendcl.answer("aclrtEventElapsedTime", start, end, kind=ctypes.c_float)
        assert 1000 * least - 1 <= elapsed <= 1000 * most + 1  # milliseconds; what was taken around each event
        stamps = [ask("aclrtEventGetTimestamp", mark, kind=ctypes.c_uint64) for mark in (start, end)]
        assert elapsed == pytest.approx((stamps[1] - stamps[0]) / 1000, abs=0.01)


def test_an_event_without_time() -> None:
    with stream() as queue, event() as first, event() as second:
        milliseconds = ctypes.c_float()
        assert code("aclrtEventElapsedTime", ctypes.byref(milliseconds), first, second) == 507006
        assert "was never recorded" in ascendcl.message()
        with Gate(queue):
            acl("aclrtRecordEvent", first, queue)
            assert code("aclrtEventElapsedTime", ctypes.byref(milliseconds), first, second) == 507006
            assert "its stream has not reached it" in ascendcl.message()


def test_a_reset_forgets_what_was_recorded_before_it_and_nothing_later() -> None:
    with stream() as queue, event() as mark, event() as behind_reset:
        acl("aclrtRecordEvent", mark, queue)
        with Gate(queue) as before:
            acl("aclrtResetEvent", mark, queue)
            acl("aclrtRecordEvent", behind_reset, queue)
            with Gate(queue) as behind:
                acl("aclrtRecordEvent", mark, queue)
                before.open()
                acl("aclrtSynchronizeEvent", behind_reset)  # the second record has not run
                assert recorded(mark) == RECORDED_NOT_READY
                assert code("aclrtSynchronizeEventWithTimeout", mark, 30) == ascendcl.RT_EVENT_TIMEOUT
                ascendcl.message()
                behind.open()
        acl("aclrtSynchronizeEvent", mark)
        assert ask("aclrtEventGetTimestamp", mark, kind=ctypes.c_uint64) > 0
        acl("aclrtResetEvent", mark, queue)
        acl("aclrtSynchronizeStream", queue)
        assert recorded(mark) == RECORDED_COMPLETE  # nothing to wait for
        out = ctypes.c_uint64()
        assert code("aclrtEventGetTimestamp", mark, ctypes.byref(out)) == 507006
        assert "was never recorded" in ascendcl.message()


def test_a_reset_keeps_a_later_record_that_ran_before_an_earlier_one() -> None:
    with stream() as slow, stream() as fast, event() as mark, Gate(slow) as gate:
        acl("aclrtRecordEvent", mark, slow)
        acl("aclrtResetEvent", mark, slow)
        acl("aclrtRecordEvent", mark, fast)
        acl("aclrtSynchronizeStream", fast)
        assert recorded(mark) == RECORDED_COMPLETE
        gate.open()
        acl("aclrtSynchronizeStream", slow)
        assert recorded(mark) == RECORDED_COMPLETE
        assert ask("aclrtEventGetTimestamp", mark, kind=ctypes.c_uint64) > 0
        acl("aclrtRecordEvent", mark, fast)
        acl("aclrtSynchronizeEvent", mark)


def test_an_event_may_be_destroyed_while_it_is_in_flight() -> None:
    with stream() as producer, stream() as consumer:
        with Gate(producer):
            with event() as mark:
                acl("aclrtRecordEvent", mark, producer)
                acl("aclrtStreamWaitEvent", consumer, mark)
            assert ask("aclrtStreamQuery", consumer, kind=ctypes.c_int) == 1
        acl("aclrtSynchronizeStream", consumer)
    assert code("aclrtRecordEvent", mark, 0) == ascendcl.RT_INVALID_HANDLE
    assert "is not a live event" in ascendcl.message()


def test_a_destroyed_event_can_be_waited_for() -> None:
    """If it was recorded, by streams; torch_npu does so between two devices."""
    with stream() as producer, stream() as consumer:
        with Gate(producer):
            with event() as mark:
                acl("aclrtRecordEvent", mark, producer)
            acl("aclrtStreamWaitEvent", consumer, mark)
            assert ask("aclrtStreamQuery", consumer, kind=ctypes.c_int) == 1
        acl("aclrtSynchronizeStream", consumer)
        acl("aclrtStreamWaitEvent", consumer, mark)
        with event() as never:
            pass
        assert code("aclrtStreamWaitEvent", consumer, never) == ascendcl.RT_INVALID_HANDLE
    for name in ("aclrtSynchronizeEvent", "aclrtDestroyEvent"):
        assert code(name, mark) == ascendcl.RT_INVALID_HANDLE


def test_unknown_handles() -> None:
    assert code("aclrtDestroyEvent", 0x1234) == ascendcl.RT_INVALID_HANDLE
    assert code("aclrtSynchronizeEvent", 0) == ascendcl.RT_INVALID_HANDLE


def test_events_for_captured_graphs_are_for_one_process() -> None:
    out = ctypes.c_void_p()
    assert code("aclrtCreateEventExWithFlag", ctypes.byref(out), 0x20) == 0
    assert code("aclrtDestroyEvent", out) == 0
    assert code("aclrtCreateEventExWithFlag", ctypes.byref(out), 0x20 | 0x40) == ascendcl.RT_PARAM_INVALID
    assert "for graphs or for other processes" in ascendcl.message()
