"""Reserve, map, unmap: what PYTORCH_NPU_ALLOC_CONF=expandable_segments:True stands on."""

from __future__ import annotations

import ctypes

import ascendcl
import pytest
from ascendcl import DEFAULT, DEVICE_TO_DEVICE, HOST_TO_DEVICE, acl, answer, code

pytestmark = [pytest.mark.device, pytest.mark.usefixtures("npu")]
PAGE = 2 << 20


class Property(ctypes.Structure):
    """aclrtPhysicalMemProp: huge pages of HBM on device 0."""

    _fields_ = (
        ("handle_type", ctypes.c_int),
        ("allocation_type", ctypes.c_int),
        ("attribute", ctypes.c_int),
        ("id", ctypes.c_uint32),
        ("type", ctypes.c_int),
        ("reserve", ctypes.c_uint64),
    )


def physical(size: int, place: int = 1) -> int:
    wanted = Property(0, 0, 4, 0, place, 0)
    return int(answer("aclrtMallocPhysical", size, ctypes.byref(wanted), 0))


def free_bytes() -> int:
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    acl("aclrtGetMemInfo", ascendcl.HBM, ctypes.byref(free), ctypes.byref(total))
    return free.value


def test_segment_grows_and_shrinks() -> None:
    before = free_bytes()
    address = answer("aclrtReserveMemAddress", 8 * PAGE, 0, 0, 1)
    handles = [physical(PAGE), physical(PAGE)]
    assert free_bytes() == before - 2 * PAGE
    for index, handle in enumerate(handles):
        acl("aclrtMapMem", address + index * PAGE, PAGE, 0, handle, 0)
    # The two mappings touch: one range for a copy.
    acl("aclrtMemset", address, 2 * PAGE, 9, 2 * PAGE)
    acl("aclrtMemcpy", address + PAGE, PAGE, address, PAGE, DEVICE_TO_DEVICE)
    assert ascendcl.read(address + 2 * PAGE - 4, 4) == b"\x09" * 4
    assert code("aclrtMemset", address, 3 * PAGE, 0, 3 * PAGE) == ascendcl.RT_PARAM_INVALID
    acl("aclrtUnmapMem", address + PAGE)
    assert code("aclrtMemset", address + PAGE, 1, 0, 1) == ascendcl.RT_PARAM_INVALID
    # The pages keep their content while the handle lives, and go where they are mapped next.
    acl("aclrtMapMem", address + 4 * PAGE, PAGE, 0, handles[1], 0)
    assert ascendcl.read(address + 4 * PAGE, 4) == b"\x09" * 4
    for part in (address, address + 4 * PAGE):
        acl("aclrtUnmapMem", part)
    for handle in handles:
        acl("aclrtFreePhysical", handle)
    acl("aclrtReleaseMemAddress", address)
    assert free_bytes() == before


def test_memory_lives_until_its_last_mapping_is_gone() -> None:
    before = free_bytes()
    address = answer("aclrtReserveMemAddress", PAGE, 0, 0, 1)
    handle = physical(PAGE)
    acl("aclrtMapMem", address, PAGE, 0, handle, 0)
    acl("aclrtFreePhysical", handle)
    acl("aclrtMemset", address, PAGE, 1, PAGE)
    assert free_bytes() == before - PAGE
    acl("aclrtUnmapMem", address)
    assert free_bytes() == before
    acl("aclrtReleaseMemAddress", address)


class Attributes(ctypes.Structure):
    """aclrtPtrAttributes: its location's number and type first."""

    _fields_ = (("id", ctypes.c_uint32), ("place", ctypes.c_int), ("rest", ctypes.c_uint32 * 8))


def place(address: int) -> int:
    """0: pinned host memory, 1: a device's, 2: neither."""
    found = Attributes()
    acl("aclrtPointerGetAttributes", address, ctypes.byref(found))
    return found.place


def test_host_memory_is_mapped_for_the_host() -> None:
    """What pin_memory_expandable_segments stands on: written and read at its address, copied to and from, no kernel's."""
    before = free_bytes()
    address = answer("aclrtReserveMemAddress", 4 * PAGE, 0, 0, 1)
    handles = [physical(PAGE, 0), physical(PAGE, 0)]
    for index, handle in enumerate(handles):
        acl("aclrtMapMem", address + index * PAGE, PAGE, 0, handle, 0)
    assert free_bytes() == before
    ctypes.memset(address, 7, 2 * PAGE)
    assert (place(address), place(address + PAGE), place(address + 2 * PAGE)) == (0, 0, 2)
    with ascendcl.device_memory(2 * PAGE) as device, ascendcl.stream() as queue:
        assert place(device) == 1
        acl("aclrtMemcpyAsync", device, 2 * PAGE, address, 2 * PAGE, HOST_TO_DEVICE, queue)
        acl("aclrtSynchronizeStream", queue)
        assert ascendcl.read(device + 2 * PAGE - 4, 4) == b"\x07" * 4
        acl("aclrtMemset", device, 2 * PAGE, 9, 2 * PAGE)
        acl("aclrtMemcpy", address, 2 * PAGE, device, 2 * PAGE, DEFAULT)
        assert ctypes.string_at(address + PAGE - 2, 4) == b"\x09" * 4
        # Not a device's, whoever says so; and not past its end.
        copy = (device, 4, address, 4, DEVICE_TO_DEVICE)
        assert code("aclrtMemcpy", *copy) == ascendcl.RT_PARAM_INVALID
        past = (device, 2 * PAGE, address + PAGE, 2 * PAGE, HOST_TO_DEVICE)
        assert code("aclrtMemcpy", *past) == ascendcl.RT_PARAM_INVALID
    acl("aclrtUnmapMem", address)
    assert (place(address), place(address + PAGE)) == (2, 0)
    acl("aclrtMapMem", address, PAGE, 0, handles[0], 0)  # the handle has kept what was written
    assert ctypes.string_at(address, 4) == b"\x09" * 4
    for part in (address, address + PAGE):
        acl("aclrtUnmapMem", part)
    for handle in handles:
        acl("aclrtFreePhysical", handle)
    # The addresses are free for a device's memory again.
    handle = physical(PAGE)
    acl("aclrtMapMem", address, PAGE, 0, handle, 0)
    acl("aclrtMemset", address, PAGE, 3, PAGE)
    assert (place(address), ascendcl.read(address, 4)) == (1, b"\x03" * 4)
    acl("aclrtUnmapMem", address)
    acl("aclrtFreePhysical", handle)
    acl("aclrtReleaseMemAddress", address)


def test_misuse() -> None:
    address = answer("aclrtReserveMemAddress", 2 * PAGE, 0, 0, 1)
    handle = physical(PAGE)
    wanted = Property(0, 0, 4, 0, 1, 0)
    handle_out = ctypes.c_void_p()
    assert code("aclrtMallocPhysical", ctypes.byref(handle_out), PAGE + 1, ctypes.byref(wanted), 0) == 107000
    elsewhere = Property(0, 0, 4, 0, 4, 0)  # a NUMA node
    arguments = ctypes.byref(handle_out), PAGE, ctypes.byref(elsewhere), 0
    assert code("aclrtMallocPhysical", *arguments) == ascendcl.UNSUPPORTED
    assert code("aclrtMapMem", address, 2 * PAGE, 0, handle, 0) == ascendcl.RT_PARAM_INVALID
    assert "runs past physical memory" in ascendcl.message()
    assert code("aclrtMapMem", address + 2 * PAGE, PAGE, 0, handle, 0) == ascendcl.RT_PARAM_INVALID
    assert "runs past the reserved address range" in ascendcl.message()
    acl("aclrtMapMem", address, PAGE, 0, handle, 0)
    assert code("aclrtMapMem", address, PAGE, 0, handle, 0) == ascendcl.RT_PARAM_INVALID
    assert code("aclrtReleaseMemAddress", address) == ascendcl.RT_PARAM_INVALID
    assert "still mapped" in ascendcl.message()
    assert code("aclrtFree", address) == ascendcl.RT_PARAM_INVALID
    acl("aclrtUnmapMem", address)
    assert code("aclrtUnmapMem", address) == ascendcl.RT_PARAM_INVALID
    acl("aclrtFreePhysical", handle)
    assert code("aclrtFreePhysical", handle) == ascendcl.RT_INVALID_HANDLE
    acl("aclrtReleaseMemAddress", address)
    assert code("aclrtReleaseMemAddress", address) == ascendcl.RT_PARAM_INVALID


def test_memory_is_unmapped_while_it_is_in_use() -> None:
    """By a stream of another device, whose work is waited for, and by a call of another thread, which loses."""
    result = ascendcl.python("""
import threading
from ascendcl import acl, answer, code
from waiting import until
from test_virtual_memory import PAGE, physical
acl("aclrtSetDevice", 1)
other = answer("aclrtCreateStream")
acl("aclrtSetDevice", 0)
size = 32 * PAGE
address = answer("aclrtReserveMemAddress", size, 0, 0, 1)
memory = physical(size)

def fill():
    acl("aclrtSetDevice", 0)
    global filled
    while not ended:
        filled += code("aclrtMemset", address, size, 5, size) == 0

for _ in range(10):
    acl("aclrtMapMem", address, size, 0, memory, 0)
    for _ in range(3):
        acl("aclrtMemsetAsync", address, size, 7, size, other)
    acl("aclrtUnmapMem", address)
    acl("aclrtSynchronizeStream", other)
ended, filled = False, 0
thread = threading.Thread(target=fill)
thread.start()
for _ in range(10):
    before = filled
    acl("aclrtMapMem", address, size, 0, memory, 0)
    until(lambda: filled > before, 0.001)
    acl("aclrtUnmapMem", address)
ended = True
thread.join()
acl("aclrtFreePhysical", memory)
acl("aclrtReleaseMemAddress", address)
print("survived")
""")
    assert result.stdout == "survived\n", result.stderr[-2000:]
