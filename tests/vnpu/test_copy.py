"""Copies: direction and bounds are checked at the call; asynchronous ones are tasks of their stream."""

from __future__ import annotations

import ctypes

import ascendcl
import pytest
from ascendcl import DEVICE_TO_DEVICE, DEVICE_TO_HOST, HOST_TO_DEVICE, Gate, acl, code, device_memory, stream

pytestmark = [pytest.mark.device, pytest.mark.usefixtures("npu")]


def host(content: bytes) -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(content, len(content))


def test_there_and_back() -> None:
    content = bytes(range(256)) * 5
    with device_memory(len(content)) as first, device_memory(len(content)) as second:
        acl("aclrtMemcpy", first, len(content), host(content), len(content), HOST_TO_DEVICE)
        acl("aclrtMemcpy", second, len(content), first, len(content), DEVICE_TO_DEVICE)
        assert ascendcl.read(second, len(content)) == content


def test_between_devices() -> None:
    with device_memory(100) as here:
        acl("aclrtMemset", here, 100, 3, 100)
        acl("aclrtSetDevice", 1)
        with device_memory(100) as there:
            acl("aclrtMemcpy", there, 100, here, 100, DEVICE_TO_DEVICE)
            assert ascendcl.read(there, 100) == b"\x03" * 100
        acl("aclrtSetDevice", 0)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (ascendcl.HOST_TO_HOST, "from host to host"),
        (ascendcl.DEVICE_TO_HOST, "from device to host"),
        (ascendcl.DEVICE_TO_DEVICE, "from device to device"),
    ],
)
@pytest.mark.parametrize("name", ["aclrtMemcpy", "aclrtMemcpyAsync", "aclrtMemcpyAsyncWithCondition"])
def test_wrong_direction(kind: int, words: str, name: str) -> None:
    with device_memory(64) as address:
        assert code(name, address, 64, host(bytes(64)), 64, kind, 0) == ascendcl.RT_PARAM_INVALID
    assert words in ascendcl.message()


def test_default_kind_follows_the_pointers() -> None:
    with device_memory(4) as address:
        acl("aclrtMemcpy", address, 4, host(b"abcd"), 4, ascendcl.DEFAULT)
        assert ascendcl.read(address, 4) == b"abcd"


def test_past_the_end() -> None:
    big = host(bytes(4096))
    with device_memory(1024) as address:
        assert code("aclrtMemcpy", address, 4096, big, 1025, HOST_TO_DEVICE) == ascendcl.RT_PARAM_INVALID
        assert "1 bytes past the end of the allocation" in ascendcl.message()
        assert code("aclrtMemcpy", big, 4096, address + 1000, 25, DEVICE_TO_HOST) == ascendcl.RT_PARAM_INVALID
        assert code("aclrtMemcpy", address, 8, big, 9, HOST_TO_DEVICE) == ascendcl.RT_PARAM_INVALID
        assert "has room for 8 (destMax)" in ascendcl.message()
        assert code("aclrtMemset", address, 4096, 0, 1025) == ascendcl.RT_PARAM_INVALID
        acl("aclrtMemcpy", address + 1000, 24, big, 24, HOST_TO_DEVICE)


def test_freed_memory() -> None:
    with device_memory(64) as address:
        pass
    assert code("aclrtMemcpy", address, 64, host(bytes(64)), 64, HOST_TO_DEVICE) == ascendcl.RT_PARAM_INVALID
    assert "no live memory is there" in ascendcl.message()


def test_null() -> None:
    assert code("aclrtMemcpy", 0, 64, host(bytes(64)), 64, HOST_TO_DEVICE) == ascendcl.INVALID_PARAM
    assert "dst is null" in ascendcl.message()


def test_pageable_source_may_be_reused_at_once() -> None:
    source = host(b"first___")
    with device_memory(8) as address, stream() as queue, Gate(queue) as gate:
        acl("aclrtMemcpyAsync", address, 8, source, 8, HOST_TO_DEVICE, queue)
        source.raw = b"second__"
        gate.open()
        acl("aclrtSynchronizeStream", queue)
        assert ascendcl.read(address, 8) == b"first___"


def test_pinned_source_is_read_when_the_stream_gets_there() -> None:
    pinned = ascendcl.answer("aclrtMallocHost", 8)
    ctypes.memmove(pinned, b"first___", 8)
    with device_memory(8) as address, stream() as queue:
        with Gate(queue):
            acl("aclrtMemcpyAsync", address, 8, pinned, 8, HOST_TO_DEVICE, queue)
            ctypes.memmove(pinned, b"second__", 8)  # the mistake that hardware punishes
        acl("aclrtSynchronizeStream", queue)
        assert ascendcl.read(address, 8) == b"second__"
    acl("aclrtFreeHost", pinned)


def test_copy_to_the_host_is_asynchronous() -> None:
    target = host(b"untouched"[:8])
    with device_memory(8) as address, stream() as queue:
        acl("aclrtMemset", address, 8, 0x41, 8)
        with Gate(queue):
            acl("aclrtMemcpyAsync", target, 8, address, 8, DEVICE_TO_HOST, queue)
            assert target.raw == b"untouche"
        acl("aclrtSynchronizeStream", queue)
        assert target.raw == b"AAAAAAAA"


def test_conditional_copy_to_pageable_memory_is_over_at_return() -> None:
    target = host(bytes(8))
    with device_memory(8) as address, stream() as queue:
        acl("aclrtMemsetAsync", address, 8, 0x42, 8, queue)
        acl("aclrtMemcpyAsyncWithCondition", target, 8, address, 8, DEVICE_TO_HOST, queue)
        assert target.raw == b"BBBBBBBB"


def test_host_to_host_is_not_asynchronous() -> None:
    buffer = host(bytes(8))
    assert code("aclrtMemcpyAsync", buffer, 8, buffer, 8, ascendcl.HOST_TO_HOST, 0) == ascendcl.UNSUPPORTED


@pytest.mark.parametrize("asynchronous", [False, True])
def test_batch(asynchronous: bool) -> None:
    sources = [host(bytes([i]) * 16) for i in range(3)]
    failed = ctypes.c_size_t(99)
    with device_memory(48) as address:
        pointers, sizes = ctypes.c_void_p * 3, (ctypes.c_size_t * 3)(16, 16, 16)
        to = pointers(*(address + 16 * i for i in range(3)))
        froms = pointers(*(ctypes.addressof(source) for source in sources))
        name, tail = ("aclrtMemcpyBatchAsync", (0,)) if asynchronous else ("aclrtMemcpyBatch", ())
        acl(name, to, sizes, froms, sizes, 3, 0, 0, 0, ctypes.byref(failed), *tail)
        acl("aclrtSynchronizeStream", 0)
        assert ascendcl.read(address, 48) == b"".join(source.raw for source in sources)
        sizes[2] = 40
        status = code(name, to, sizes, froms, sizes, 3, 0, 0, 0, ctypes.byref(failed), *tail)
        assert (status, failed.value) == (ascendcl.RT_PARAM_INVALID, 2)
