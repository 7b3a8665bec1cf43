"""Device and pinned host memory: allocation, its limits, and what misuse answers."""

from __future__ import annotations

import ctypes
import os
import re
import signal
from pathlib import Path

import ascendcl
import pytest
from ascendcl import acl, ask, code, device_memory, malloc, python

pytestmark = [pytest.mark.device, pytest.mark.usefixtures("npu")]
MIB = 1 << 20


def memory_info() -> tuple[int, int]:
    """(free, total) of the current device."""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    acl("aclrtGetMemInfo", ascendcl.HBM, ctypes.byref(free), ctypes.byref(total))
    return free.value, total.value


def resident_shared() -> int:
    """Bytes of shared memory (device memory is a memfd) that this process holds."""
    match = re.search(r"RssShmem:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert match is not None
    return int(match[1]) * 1024


def test_capacity_is_the_chips() -> None:
    """What programs get of the 64 GiB: 60.97 GiB, in pieces of 2 MiB."""
    assert memory_info()[1] == int(60.97 * 2**30) // (2 << 20) * (2 << 20)


def test_a_context_takes_its_share_until_the_reset() -> None:
    """In a process of its own, where nothing is allocated. Ascend910B1: 0.5 GiB (devices.toml); 310P: no figure."""
    program = """
import ctypes, ascendcl, test_memory
for _ in range(2):
    ascendcl.acl("aclrtSetDevice", 0)
    free, total = test_memory.memory_info()
    print(total - free)
    ascendcl.acl("aclrtResetDevice", 0)
"""
    for soc, taken in (("Ascend910B1", 512 * MIB), ("Ascend310P3", 0)):
        ended = ascendcl.python(program, VNPU_SOC=soc, VNPU_HOST_LIMIT="100GiB")
        assert ended.stdout.split() == [str(taken)] * 2, ended.stderr


def test_fresh_memory_is_zero_and_holds_what_is_copied() -> None:
    with device_memory(1000) as address:
        assert ascendcl.read(address, 1000) == bytes(1000)
        acl("aclrtMemset", address, 1000, 0x5A, 1000)
        assert ascendcl.read(address, 1000) == b"\x5a" * 1000


def test_allocation_counts_until_freed() -> None:
    free = memory_info()[0]
    with device_memory(8 * MIB):
        assert memory_info()[0] == free - 8 * MIB
    assert memory_info()[0] == free


def test_usage_names_the_peak() -> None:
    class Usage(ctypes.Structure):
        _fields_ = (
            ("name", ctypes.c_char * 32),
            ("current", ctypes.c_uint64),
            ("peak", ctypes.c_uint64),
            ("reserved", ctypes.c_size_t * 8),
        )

    with device_memory(16 * MIB):
        pass
    usage, count = Usage(), ctypes.c_size_t()
    acl("aclrtGetMemUsageInfo", 0, ctypes.byref(usage), 1, ctypes.byref(count))
    assert (usage.name, count.value) == (b"APP", 1)
    assert usage.peak >= usage.current + 16 * MIB


@pytest.mark.parametrize(
    ("size", "expected", "words"),
    [
        (0, ascendcl.RT_PARAM_INVALID, "0 bytes"),
        (1 << 40, ascendcl.RT_OUT_OF_MEMORY, "Virtual NPU 0 is out of memory: 1024.00 GiB asked for"),
        ((1 << 64) - 1, ascendcl.RT_PARAM_INVALID, "18446744073709551615 bytes"),
    ],
)
def test_impossible_sizes(size: int, expected: int, words: str) -> None:
    address = ctypes.c_void_p()
    assert code("aclrtMalloc", ctypes.byref(address), size, 0) == expected
    assert words in ascendcl.message()


def test_host_limit_says_which_variable_to_raise() -> None:
    result = python(
        """
import ctypes, ascendcl
ascendcl.acl("aclrtSetDevice", 0)
held = ascendcl.malloc(90 << 20)
print(ascendcl.code("aclrtMalloc", ctypes.byref(ctypes.c_void_p()), 20 << 20, 0), ascendcl.message())
ascendcl.acl("aclrtFree", held)
ascendcl.malloc(20 << 20)
""",
        VNPU_HOST_LIMIT="100MiB",
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(f"{ascendcl.RT_OUT_OF_MEMORY} [PID: ")
    assert "Memory_Allocation_Failure(EL0004): Failed to allocate memory. [" in result.stdout
    assert "raise VNPU_HOST_LIMIT" in result.stdout
    assert result.stderr.count("raise VNPU_HOST_LIMIT") == 1


@pytest.mark.parametrize("ranks", [1, 4])
def test_the_ranks_of_one_machine_share_its_memory(ranks: int) -> None:
    result = python(
        """
import ctypes, ascendcl
ascendcl.acl("aclrtSetDevice", 0)
free = ctypes.c_size_t()
ascendcl.acl("aclrtGetMemInfo", ascendcl.HBM, ctypes.byref(free), ctypes.byref(ctypes.c_size_t()))
print(free.value)
""",
        LOCAL_WORLD_SIZE=str(ranks),
    )
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE")
    assert 0 < int(result.stdout) <= memory * 4 // 5 // ranks


@pytest.mark.parametrize("address", [0x1234, 1 << 46])
def test_free_of_a_foreign_address(address: int) -> None:
    assert code("aclrtFree", address) == ascendcl.RT_PARAM_INVALID
    assert f"{address:#x} is not memory given by aclrtMalloc" in ascendcl.message()


def test_free_inside_an_allocation_and_of_null() -> None:
    with device_memory(8192) as address:
        assert code("aclrtFree", address + 4096) == ascendcl.RT_PARAM_INVALID
        assert "is not the start of an allocation" in ascendcl.message()
    assert code("aclrtFree", 0) == ascendcl.INVALID_PARAM


def test_double_free() -> None:
    address = malloc(4096)
    acl("aclrtFree", address)
    assert code("aclrtFree", address) == ascendcl.RT_MEMORY_FREE
    assert "was freed before" in ascendcl.message()


def test_freed_pages_go_back_to_the_machine() -> None:
    before = resident_shared()
    address = malloc(64 * MIB)
    acl("aclrtMemset", address, 64 * MIB, 1, 64 * MIB)
    assert resident_shared() >= before + 60 * MIB
    acl("aclrtFree", address)
    assert resident_shared() <= before + MIB


def test_two_thousand_cycles_leave_no_growth() -> None:
    free, before = memory_info()[0], resident_shared()
    for cycle in range(2000):
        size = 4096 * (1 + cycle % 64)
        with device_memory(size) as first, device_memory(size) as second:
            acl("aclrtMemset", first, size, cycle % 256, size)
            acl("aclrtMemcpy", second, size, first, size, ascendcl.DEVICE_TO_DEVICE)
    assert memory_info()[0] == free
    assert resident_shared() <= before + MIB


@pytest.mark.parametrize("access", ["ctypes.string_at({}, 1)", "ctypes.memset({}, 0, 1)"])
def test_the_host_cannot_touch_device_memory(access: str) -> None:
    result = python(
        "import ctypes, ascendcl; ascendcl.acl('aclrtSetDevice', 0); address = ascendcl.malloc(4096); "
        + access.format("address")
    )
    assert result.returncode in (-signal.SIGSEGV, -signal.SIGABRT, 66)  # a sanitizer reports it and ends so


def test_pinned_memory_is_known_by_its_whole_range() -> None:
    size = 10_000
    host = ascendcl.answer("aclrtMallocHost", size)
    ctypes.memset(host, 7, size)
    assert [location(host), location(host + size - 1)] == [0, 0]  # host, pinned
    acl("aclrtFreeHost", host)
    assert code("aclrtFreeHost", host) == ascendcl.RT_PARAM_INVALID
    assert "given by aclrtMallocHost" in ascendcl.message()


def location(address: int) -> int:
    """aclrtMemLocationType of the address: 0 pinned host, 1 device, 2 neither."""

    class Attributes(ctypes.Structure):
        _fields_ = (("id", ctypes.c_uint32), ("type", ctypes.c_int), ("rest", ctypes.c_uint32 * 5))

    attributes = Attributes()
    acl("aclrtPointerGetAttributes", address, ctypes.byref(attributes))
    return int(attributes.type)


def test_registered_memory() -> None:
    buffer = ctypes.create_string_buffer(4096)
    address = ctypes.addressof(buffer)
    assert location(address) == 2
    acl("aclrtHostRegisterV2", address, 4096, 0x10000000)
    assert location(address) == 0
    assert code("aclrtHostRegisterV2", address + 8, 16, 0x10000000) == 507910
    acl("aclrtHostUnregister", address)
    assert location(address) == 2
    assert code("aclrtHostUnregister", address) == 507911


def test_device_pointers_are_known_as_such() -> None:
    with device_memory(64) as address:
        assert location(address) == 1
    assert location(address) == 2
    assert ask("aclrtQueryDeviceStatus", 0) == 0
