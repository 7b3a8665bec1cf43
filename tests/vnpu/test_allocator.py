"""Allocators that a program offers the runtime by stream (aclrtAllocator...): what was offered is given back."""

from __future__ import annotations

import ctypes

import ascendcl
import pytest
from ascendcl import INVALID_PARAM, acl, answer, code, lib

pytestmark = pytest.mark.device

lib.aclrtAllocatorCreateDesc.restype = ctypes.c_void_p
SETTERS = {"Obj": 0x10, "AllocFunc": 0x20, "FreeFunc": 0x30, "GetAddrFromBlockFunc": 0x50}


@pytest.fixture
def stream() -> int:
    acl("aclrtSetDevice", 0)
    return int(answer("aclrtCreateStream"))


def described(without: str = "") -> int:
    desc = int(lib.aclrtAllocatorCreateDesc())
    for name, value in SETTERS.items():
        if name != without:
            acl(f"aclrtAllocatorSet{name}ToDesc", desc, value)
    return desc


def offered(stream: int) -> list[int | None]:
    words = [ctypes.c_void_p() for _ in range(6)]
    acl("aclrtAllocatorGetByStream", stream, *(ctypes.addressof(word) for word in words))
    return [word.value for word in words]


def test_what_was_offered_is_given_back(stream: int) -> None:
    desc = described()
    acl("aclrtAllocatorRegister", stream, desc)
    assert offered(stream) == [desc, 0x10, 0x20, 0x30, None, 0x50]
    acl("aclrtAllocatorUnregister", stream)
    assert code("aclrtAllocatorUnregister", stream) != 0
    assert "No allocator is registered" in ascendcl.message()
    acl("aclrtAllocatorDestroyDesc", desc)
    acl("aclrtDestroyStream", stream)


@pytest.mark.parametrize("without", SETTERS)
def test_half_an_allocator_is_refused(stream: int, without: str) -> None:
    desc = described(without)
    assert code("aclrtAllocatorRegister", stream, desc) != 0
    assert "only the one with advice may be missing" in ascendcl.message()
    acl("aclrtAllocatorDestroyDesc", desc)
    acl("aclrtDestroyStream", stream)


def test_what_is_no_descriptor_is_refused(stream: int) -> None:
    for name in ("aclrtAllocatorDestroyDesc",):
        assert code(name, 0x1234) != 0
        assert "is not a descriptor" in ascendcl.message()
    assert code("aclrtAllocatorRegister", stream, 0) == INVALID_PARAM
    assert code("aclrtAllocatorSetObjToDesc", described(), 0) == INVALID_PARAM
    acl("aclrtDestroyStream", stream)
