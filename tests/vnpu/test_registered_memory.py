"""Host memory that the program registers and the devices reach: pages with two addresses."""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch
from ascendcl import RT_PARAM_INVALID, UNSUPPORTED, acl, code, message

MAPPED, PINNED = 0x2, 0x10000000
PAGE = mmap.PAGESIZE
DEVICE_TO_HOST = 2
PINNED_ALREADY, NOT_REGISTERED = 507910, 507911

pytestmark = pytest.mark.usefixtures("npu")


def refused(name: str, *arguments: object, by: int = RT_PARAM_INVALID) -> str:
    """The message of a call that must be refused with that code."""
    assert code(name, *arguments) == by
    return message()


class Pages:
    """Some pages of the program's own, private or shared."""

    def __init__(self, flags: int, size: int = 4 * PAGE) -> None:
        self.memory, self.size = mmap.mmap(-1, size, flags | mmap.MAP_ANONYMOUS), size
        self.memory[:] = bytes(range(256)) * (size // 256)
        self._view = ctypes.c_char.from_buffer(self.memory)
        self.address = ctypes.addressof(self._view)


@pytest.fixture(params=[mmap.MAP_PRIVATE, mmap.MAP_SHARED], ids=["private", "shared"])
def pages(request: pytest.FixtureRequest) -> Iterator[Pages]:
    pages = Pages(request.param)
    yield pages
    if code("aclrtHostGetDevicePointer", pages.address, ctypes.byref(ctypes.c_void_p()), 0) == 0:
        acl("aclrtHostUnregister", pages.address)


def device_address(pages: Pages) -> int:
    address = ctypes.c_void_p()
    acl("aclrtHostGetDevicePointer", pages.address, ctypes.byref(address), 0)
    assert address.value is not None
    return address.value


def registered(pages: Pages) -> int:
    address = ctypes.c_void_p()
    acl("aclrtHostRegister", pages.address, pages.size, 0, ctypes.byref(address))
    assert address.value == device_address(pages)
    return address.value


def test_program_and_device_see_the_same_pages(pages: Pages) -> None:
    before = bytes(pages.memory[:])
    acl("aclrtHostRegisterV2", pages.address, pages.size, MAPPED)
    address = device_address(pages)
    assert address != pages.address
    assert bytes(pages.memory[:]) == before
    acl("aclrtMemset", address + 5, 100, 7, 100)
    assert bytes(pages.memory[5:105]) == bytes([7]) * 100
    assert (pages.memory[4], pages.memory[105]) == (4, 105)
    pages.memory[PAGE] = 99
    there = ctypes.create_string_buffer(1)
    acl("aclrtMemcpy", there, 1, address + PAGE, 1, DEVICE_TO_HOST)
    assert there.raw == bytes([99])

    acl("aclrtHostUnregister", pages.address)
    assert bytes(pages.memory[5:105]) == bytes([7]) * 100
    assert "no live memory is there" in refused("aclrtMemset", address, 8, 0, 8)
    assert code("aclrtHostUnregister", pages.address) == NOT_REGISTERED


def test_every_device_reaches_it(pages: Pages) -> None:
    address = registered(pages)
    for device in (0, 1):
        acl("aclrtSetDevice", device)
        acl("aclrtMemset", address + device, 1, 200 + device, 1)
    acl("aclrtSetDevice", 0)
    assert bytes(pages.memory[:2]) == bytes([200, 201])


def test_its_end_is_an_end(pages: Pages) -> None:
    address = registered(pages)
    said = refused("aclrtMemset", address + pages.size - 4, 8, 0, 8)
    assert f"the {pages.size} bytes of registered host memory that the devices reach at {address:#x}" in said


def test_what_is_not_registered(pages: Pages) -> None:
    acl("aclrtHostRegisterV2", pages.address, pages.size, MAPPED)
    assert "already" in refused("aclrtHostRegisterV2", pages.address + PAGE, PAGE, MAPPED)
    assert "start of a page" in refused("aclrtHostRegisterV2", pages.address + 8, PAGE, MAPPED)
    assert "reserved" in refused("aclrtHostRegisterV2", pages.address, PAGE, 0x8, by=UNSUPPORTED)
    nowhere = ctypes.c_void_p()
    assert "reserved" in refused("aclrtHostRegister", pages.address, PAGE, 4, ctypes.byref(nowhere), by=UNSUPPORTED)
    assert "reserved" in refused("aclrtHostGetDevicePointer", pages.address, ctypes.byref(nowhere), 1)
    behind = pages.address + pages.size
    assert code("aclrtHostGetDevicePointer", behind, ctypes.byref(nowhere), 0) == NOT_REGISTERED
    assert "is not host memory that was registered" in message()


def test_addresses_where_nothing_is() -> None:
    gone = Pages(mmap.MAP_PRIVATE)
    address = gone.address
    del gone._view
    gone.memory.close()
    assert "can be read" in refused("aclrtHostRegisterV2", address, 4 * PAGE, MAPPED)


def test_pages_of_both_kinds_beside_each_other() -> None:
    shared = Pages(mmap.MAP_SHARED)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    fixed = 0x10
    at = shared.address + PAGE  # private in the place of the second of four
    assert libc.mmap(at, PAGE, 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | fixed, -1, 0) == at
    address = registered(shared)
    for page in range(4):
        shared.memory[page * PAGE] = 60 + page
        there = ctypes.create_string_buffer(1)
        acl("aclrtMemcpy", there, 1, address + page * PAGE, 1, DEVICE_TO_HOST)
        assert there.raw == bytes([60 + page])
    acl("aclrtMemset", address, shared.size, 9, shared.size)
    assert bytes(shared.memory[:]) == bytes([9]) * shared.size
    acl("aclrtHostUnregister", shared.address)


def test_no_more_than_is_mapped() -> None:
    pages = Pages(mmap.MAP_SHARED)
    libc = ctypes.CDLL(None)
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    assert libc.munmap(pages.address + 2 * PAGE, PAGE) == 0
    said = refused("aclrtHostRegisterV2", pages.address, pages.size, MAPPED)
    assert f"only {2 * PAGE} can be read" in said
    acl("aclrtHostRegisterV2", pages.address, 2 * PAGE, MAPPED)
    acl("aclrtHostUnregister", pages.address)


def test_its_device_address_is_not_the_program_s_to_release() -> None:
    pages = Pages(mmap.MAP_PRIVATE)
    address = registered(pages)
    assert "reserved" in refused("aclrtReleaseMemAddress", address)
    acl("aclrtMemset", address, 1, 50, 1)
    assert pages.memory[0] == 50
    acl("aclrtHostUnregister", pages.address)
    assert "no live memory is there" in refused("aclrtMemset", address, 8, 0, 8)
    assert_is_not_shared_with_children(pages)


def test_pinned_and_mapped_together(pages: Pages) -> None:
    acl("aclrtHostRegisterV2", pages.address, pages.size, PINNED)
    assert code("aclrtHostRegisterV2", pages.address, pages.size, PINNED | MAPPED) == PINNED_ALREADY
    nowhere = ctypes.c_void_p()
    assert code("aclrtHostGetDevicePointer", pages.address, ctypes.byref(nowhere), 0) == NOT_REGISTERED
    acl("aclrtHostUnregister", pages.address)
    acl("aclrtHostRegisterV2", pages.address, pages.size, PINNED | MAPPED)
    acl("aclrtHostUnregister", pages.address)
    assert code("aclrtHostUnregister", pages.address) == NOT_REGISTERED


def test_a_child_of_the_program_has_its_own_pages_again() -> None:
    pages = Pages(mmap.MAP_PRIVATE)
    acl("aclrtHostRegisterV2", pages.address, pages.size, MAPPED)
    acl("aclrtHostUnregister", pages.address)
    assert_is_not_shared_with_children(pages)


def assert_is_not_shared_with_children(pages: Pages) -> None:
    before = pages.memory[0]
    child = os.fork()
    if child == 0:
        pages.memory[0] = before ^ 77
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert pages.memory[0] == before


@pytest.mark.parametrize("place", range(5))
def test_what_the_chip_can(place: int) -> None:
    can = ctypes.c_int()
    acl("aclrtHostMemMapCapabilities", 0, place, ctypes.byref(can))
    assert can.value == 1


def test_tensors_in_swapped_memory() -> None:
    import torch_npu

    tensor = torch_npu.empty_with_swapped_memory([64, 33], dtype=torch.float32, device="npu:0")
    tensor.fill_(2)
    tensor.mul_(torch.arange(33, device="npu"))
    assert torch.equal((tensor + 1).cpu(), (2 * torch.arange(33.0) + 1).expand(64, 33))
    del tensor


def test_pinned_tensors_are_registered_where_that_is_asked_for() -> None:
    script = "import torch, torch_npu; t = torch.ones(2, 3).pin_memory(); print(t.is_pinned(), t.npu().sum().item())"
    environment = {**os.environ, "PYTORCH_NPU_ALLOC_CONF": "pinned_mem_register:True"}
    run = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (0, "True 6.0\n"), run.stderr
