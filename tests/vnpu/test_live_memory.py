"""Ranges of memory that calls are given: sizes near 2^64, what runs past an allocation, what was freed. The sentence
names the parameter and the allocation, and the neighbour's bytes stay what they were."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator

import ascendcl
import pytest
from ascendcl import DEFAULT, DEVICE_TO_DEVICE, HOST_TO_DEVICE, acl, answer, code, device_memory, malloc, stream

pytestmark = [pytest.mark.device, pytest.mark.usefixtures("npu")]
MOST = (1 << 64) - 1
HUGE = [MOST, MOST - 31, 1 << 63, (1 << 63) + 4096]
MIB = 1 << 20


def host(size: int) -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(size)


@pytest.fixture
def block() -> Iterator[int]:
    """4096 bytes of device memory, and behind them a neighbour that must stay untouched."""
    with device_memory(4096) as first, device_memory(4096) as second:
        low, high = sorted((first, second))
        acl("aclrtMemset", high, 4096, 7, 4096)
        yield low
        acl("aclrtSynchronizeDevice")
        assert ascendcl.read(high, 4096) == b"\x07" * 4096


def refused(name: str, *arguments: object) -> str:
    """The message of a call that must be refused with 107000."""
    assert code(name, *arguments) == ascendcl.RT_PARAM_INVALID
    return ascendcl.message()


@pytest.mark.parametrize("size", HUGE)
@pytest.mark.parametrize("name", ["aclrtMalloc", "aclrtMallocAlign32", "aclrtMallocCached"])
def test_no_allocation_is_as_large_as_all_addresses(name: str, size: int) -> None:
    address = ctypes.c_void_p()
    assert code(name, ctypes.byref(address), size, 0) in (ascendcl.RT_PARAM_INVALID, ascendcl.RT_OUT_OF_MEMORY)
    assert address.value is None
    message = ascendcl.message()
    assert f"{size} bytes" in message or "is out of memory" in message


@pytest.mark.parametrize("size", HUGE)
def test_no_host_allocation_is_as_large_as_all_addresses(size: int) -> None:
    address = ctypes.c_void_p()
    assert code("aclrtMallocHost", ctypes.byref(address), size) != 0
    assert address.value is None
    assert f"{size} bytes" in ascendcl.message()


@pytest.mark.parametrize("size", HUGE)
def test_reserving_all_addresses_gives_none(size: int) -> None:
    taken = answer("aclrtReserveMemAddress", 2 * MIB, 0, 0, 1)
    address = ctypes.c_void_p()
    assert code("aclrtReserveMemAddress", ctypes.byref(address), size, 0, 0, 1) != 0
    assert address.value is None
    again = answer("aclrtReserveMemAddress", 2 * MIB, 0, 0, 1)
    assert abs(again - taken) >= 2 * MIB
    for reserved in (taken, again):
        acl("aclrtReleaseMemAddress", reserved)


@pytest.mark.parametrize("size", [MOST, MOST - 4096])
def test_registering_all_host_memory_is_refused(size: int) -> None:
    memory = host(64)
    assert "further than an address can count" in refused("aclrtHostRegisterV2", memory, size, 0)
    # Nothing is left registered of it: what lies inside can be.
    acl("aclrtHostRegisterV2", ctypes.addressof(memory) + 8, 16, 0)
    assert code("aclrtHostRegisterV2", memory, 64, 0) != 0
    acl("aclrtHostUnregister", ctypes.addressof(memory) + 8)
    acl("aclrtHostRegisterV2", memory, 64, 0)
    acl("aclrtHostUnregister", memory)


def test_device_memory_is_no_host_memory(block: int) -> None:
    assert "are not host memory" in refused("aclrtHostRegisterV2", block, 64, 0)


@pytest.mark.parametrize("size", HUGE)
def test_copies_and_fills_of_more_than_there_is(block: int, size: int) -> None:
    memory = host(64)
    for name, arguments in (
        ("aclrtMemcpy", (block, MOST, memory, size, HOST_TO_DEVICE)),
        ("aclrtMemcpyAsync", (block + 8, MOST, block, size, DEVICE_TO_DEVICE, 0)),
        ("aclrtMemset", (block, MOST, 0, size)),
        ("aclrtMemsetAsync", (block, MOST, 0, size, 0)),
        ("aclrtCmoAsync", (block, size, 6, 0)),
    ):
        assert "bytes past the end of the allocation of 4096 bytes" in refused(name, *arguments)


def test_host_ranges_that_wrap_around(block: int) -> None:
    memory = host(64)
    for name in ("aclrtMemcpy", "aclrtMemcpyAsyncWithCondition"):
        refused(name, memory, MOST, memory, MOST - 8, DEFAULT, 0)
    assert "further than an address can count" in refused("aclrtMemset", memory, MOST, 0, MOST - 8)
    # It begins in front of the device's addresses and runs through them.
    assert "are not host memory" in refused("aclrtMemset", 4096, MOST, 0, block)


def test_a_batch_that_no_array_can_hold(block: int) -> None:
    array = (ctypes.c_void_p * 1)(block)
    failed = ctypes.c_size_t()
    message = refused("aclrtMemcpyBatch", array, array, array, array, 1 << 62, 0, 0, 0, ctypes.byref(failed))
    assert "numBatches" in message


def test_past_the_end_names_the_allocation(block: int) -> None:
    message = refused("aclrtMemcpy", block + 4000, 4096, host(200), 200, HOST_TO_DEVICE)
    assert f"200 bytes at dst ({block + 4000:#x}) run 104 bytes past the end" in message
    assert f"the allocation of 4096 bytes at {block:#x} on virtual NPU 0" in message
    acl("aclrtMemcpy", block + 4000, 96, host(96), 96, HOST_TO_DEVICE)


def test_behind_the_end_names_the_allocation_before() -> None:
    with device_memory(96) as address:
        message = refused("aclrtMemset", address + 200, 8, 0, 8)
        assert f"the allocation of 96 bytes at {address:#x} on virtual NPU 0 ends 104 bytes before" in message


def test_freed_memory_is_named() -> None:
    with contextlib.ExitStack() as held:
        for _ in range(50):  # another thread may take the place in between
            address = malloc(3 * MIB)
            acl("aclrtFree", address)
            message = refused("aclrtMemset", address + MIB, 8, 0, 8)
            assert f"the allocation of {3 * MIB} bytes at {address:#x} on virtual NPU 0 has been freed" in message
            # Given out again it is no longer what was freed.
            again = held.enter_context(device_memory(MIB))  # kept: the next try does not get a small gap once more
            acl("aclrtMemset", again, MIB, 0, MIB)
            if again == address:
                assert "has been freed" not in refused("aclrtMemset", again + MIB, 8, 0, 8)
                return
    pytest.fail("an address that was freed has not been given out again in 50 tries")


def test_memory_of_a_device_that_was_reset() -> None:
    acl("aclrtSetDevice", 3)
    address = malloc(4096)
    acl("aclrtResetDeviceForce", 3)  # whoever has set it before: aclrtResetDevice counts
    acl("aclrtSetDevice", 0)
    assert "virtual NPU 3 is not in use, or was reset" in refused("aclrtMemset", address, 8, 0, 8)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("aclrtMemsetAsync", lambda at, _: (at, 64, 1, 64)),
        ("aclrtMemcpyAsync", lambda at, other: (other, 64, at, 64, DEVICE_TO_DEVICE)),
        ("aclrtMemcpyAsync", lambda at, other: (at, 64, other, 64, DEVICE_TO_DEVICE)),
        ("aclrtValueWrite", lambda at, _: (at, 1, 0)),
        ("aclrtValueWait", lambda at, _: (at, 0, 0)),
        ("aclrtCmoAsync", lambda at, _: (at, 64, 6)),
    ],
)
def test_work_of_another_device_on_memory_that_is_freed_first(
    name: str, arguments: Callable[[int, int], tuple[int, ...]]
) -> None:
    """aclrtFree waits for the streams of its own device alone."""
    address = malloc(4096)
    acl("aclrtSetDevice", 1)
    with device_memory(64) as other, stream() as queue:
        with ascendcl.Gate(queue):
            acl(name, *arguments(address, other), queue)
            acl("aclrtSetDevice", 0)
            acl("aclrtFree", address)
        assert code("aclrtSynchronizeStream", queue) != 0
        message = ascendcl.message()
        assert f"the allocation of 4096 bytes at {address:#x} on virtual NPU 0 has been freed" in message
        assert name.removeprefix("aclrt") in message
        acl("aclrtSetDevice", 1)
    acl("aclrtSetDevice", 0)


def test_the_same_work_on_memory_that_lives() -> None:
    with device_memory(4096) as address:
        acl("aclrtSetDevice", 1)
        with device_memory(64) as other, stream() as queue:
            acl("aclrtMemsetAsync", other, 64, 5, 64, queue)
            acl("aclrtMemcpyAsync", address, 64, other, 64, DEVICE_TO_DEVICE, queue)
            acl("aclrtValueWrite", address + 8, 1, 0, queue)
            acl("aclrtValueWait", address + 8, 1, 1, queue)
            acl("aclrtSynchronizeStream", queue)
            assert ascendcl.read(address, 8) == b"\x05" * 8
        acl("aclrtSetDevice", 0)


def test_every_range_inside_an_allocation_is_taken(block: int) -> None:
    memory = host(4096)
    for offset, size in ((0, 4096), (0, 1), (4095, 1), (1, 4095), (17, 1000)):
        acl("aclrtMemcpy", block + offset, size, memory, size, HOST_TO_DEVICE)
        acl("aclrtMemset", block + offset, 4096 - offset, 3, size)
    with stream() as queue:
        acl("aclrtMemsetAsync", block, 4096, 9, 4096, queue)
        acl("aclrtCmoAsync", block, 4096, 6, queue)
        acl("aclrtSynchronizeStream", queue)
    assert ascendcl.read(block, 4096) == b"\x09" * 4096
