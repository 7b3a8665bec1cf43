"""Captured graphs through the C API: what test_graph.py has of torch, without it."""

from __future__ import annotations

import ctypes
import json

import ascendcl
import pytest
from ascendcl import acl, answer, code, device_memory, read, stream

pytestmark = [pytest.mark.device, pytest.mark.usefixtures("npu")]


def captured_by(queue: int) -> int:
    status, graph = ctypes.c_int(), ctypes.c_void_p()
    acl("aclmdlRICaptureGetInfo", queue, ctypes.byref(status), ctypes.byref(graph))
    assert graph.value is not None
    return graph.value


def end(queue: int) -> int:
    graph = ctypes.c_void_p()
    acl("aclmdlRICaptureEnd", queue, ctypes.byref(graph))
    assert graph.value is not None
    return graph.value


def test_a_graph_runs_what_was_captured() -> None:
    with stream() as queue, device_memory(16) as address:
        acl("aclmdlRICaptureBegin", queue, 2)
        acl("aclrtMemsetAsync", address, 16, 7, 16, queue)
        graph = end(queue)
        assert read(address, 16) == bytes(16)
        acl("aclmdlRIExecuteAsync", graph, queue)
        acl("aclrtSynchronizeStream", queue)
        assert read(address, 16) == bytes([7] * 16)
        acl("aclmdlRIDestroy", graph)


def test_a_graph_cannot_become_part_of_itself() -> None:
    with stream() as queue, stream() as other, device_memory(16) as address:
        acl("aclmdlRICaptureBegin", queue, 2)
        acl("aclrtMemsetAsync", address, 16, 7, 16, queue)
        graph = captured_by(queue)
        for place in (queue, other):
            assert code("aclmdlRIExecuteAsync", graph, place) == ascendcl.RT_PARAM_INVALID
            assert "its capture has not been ended" in ascendcl.message()
        assert end(queue) == graph
        acl("aclmdlRIExecuteAsync", graph, other)
        acl("aclrtSynchronizeStreamWithTimeout", other, 20_000)
        assert read(address, 16) == bytes([7] * 16)
        acl("aclmdlRIDestroy", graph)


def test_a_graph_may_be_part_of_another() -> None:
    with stream() as queue, device_memory(16) as address:
        acl("aclmdlRICaptureBegin", queue, 2)
        acl("aclrtMemsetAsync", address, 16, 7, 16, queue)
        inner = end(queue)
        acl("aclmdlRICaptureBegin", queue, 2)
        acl("aclmdlRIExecuteAsync", inner, queue)
        outer = end(queue)
        acl("aclmdlRIDestroy", inner)
        acl("aclmdlRIExecuteAsync", outer, queue)
        acl("aclrtSynchronizeStreamWithTimeout", queue, 20_000)
        assert read(address, 16) == bytes([7] * 16)
        acl("aclmdlRIDestroy", outer)


def test_a_graph_whose_stream_was_destroyed_does_not_run() -> None:
    queue = answer("aclrtCreateStream")
    acl("aclmdlRICaptureBegin", queue, 2)
    graph = captured_by(queue)
    acl("aclrtDestroyStream", queue)
    assert code("aclmdlRIExecuteAsync", graph, 0) == ascendcl.RT_PARAM_INVALID
    acl("aclmdlRIDestroy", graph)


def test_a_graph_is_printed_for_people(tmp_path) -> None:
    """As events of a trace, in the order in which they run."""
    place = tmp_path / "graph.json"
    with stream() as queue, device_memory(16) as address:
        acl("aclmdlRICaptureBegin", queue, 2)
        for value in (7, 8):
            acl("aclrtMemsetAsync", address, 16, value, 16, queue)
        graph = captured_by(queue)
        assert code("aclmdlRIDebugJsonPrint", graph, str(place).encode(), 0) == ascendcl.RT_PARAM_INVALID
        assert end(queue) == graph
        acl("aclmdlRIDebugJsonPrint", graph, str(place).encode(), 0)
        events = json.loads(place.read_text())
        assert [(event["ph"], event["ts"], event["args"]["Task Id"]) for event in events] == [("X", 0, 0), ("X", 1, 1)]
        assert events[0]["name"] and events[0]["name"] == events[1]["name"]
        assert code("aclmdlRIDebugJsonPrint", graph, str(tmp_path).encode(), 0) == ascendcl.RT_PARAM_INVALID
        assert "cannot be written: Is a directory" in ascendcl.message()
        assert code("aclmdlRIDebugJsonPrint", graph, str(place).encode(), 2) == ascendcl.RT_PARAM_INVALID
        acl("aclmdlRIDestroy", graph)
