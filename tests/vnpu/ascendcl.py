"""libascendcl through ctypes: what torch_npu's C++ calls, one call at a time and without torch.

Every function takes its arguments as 64-bit registers, so a Python int fits any of size_t, pointer, enum and
int32_t (-1 included). Codes are CANN's (acl_base_rt.h, rt_error_codes.h).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torchport import vnpu

HOST_TO_HOST, HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, DEFAULT = range(5)
HBM = 1  # ACL_HBM_MEM
INVALID_PARAM = 100000
RT_PARAM_INVALID = 107000
RT_INVALID_DEVICE = 107001
RT_CONTEXT_NULL = 107002
RT_INVALID_HANDLE = 107017
UNSUPPORTED = 200006
RT_OUT_OF_MEMORY = 207001
RT_MEMORY_FREE = 207002
RT_STREAM_TIMEOUT = 507046
RT_EVENT_TIMEOUT = 507047

LIBRARY = vnpu.library_directory() / "libascendcl.so"
lib = ctypes.CDLL(str(LIBRARY))
lib.aclGetRecentErrMsg.restype = ctypes.c_char_p
lib.aclrtGetSocName.restype = ctypes.c_char_p
SECONDS = 500  # after which a gate opens by itself, so that a test that has failed ends: below pytest's own limit
HostFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class AclError(Exception):
    """A call that did not return 0."""

    def __init__(self, name: str, code: int) -> None:
        self.code = code
        self.message = message()
        super().__init__(f"{name}: {code}: {self.message}")


def message() -> str:
    """aclGetRecentErrMsg of this thread."""
    return lib.aclGetRecentErrMsg().decode()


def code(name: str, *arguments: Any) -> int:
    """Call the function; return its code."""
    words = [ctypes.c_uint64(a & (1 << 64) - 1) if isinstance(a, int) else a for a in arguments]
    return int(getattr(lib, name)(*words))


def acl(name: str, *arguments: Any) -> None:
    """Call the function; raise AclError unless it returns 0."""
    status = code(name, *arguments)
    if status != 0:
        raise AclError(name, status)


def answer(name: str, *arguments: Any, kind: type[Any] = ctypes.c_void_p) -> Any:
    """Call the function with a pointer to a `kind` in front of `arguments`; return what it wrote there."""
    value = kind()
    acl(name, ctypes.byref(value), *arguments)
    return value.value


def ask(name: str, *arguments: Any, kind: type[Any] = ctypes.c_uint32) -> Any:
    """The same for a function whose answer is its last parameter."""
    value = kind()
    acl(name, *arguments, ctypes.byref(value))
    return value.value


def malloc(size: int) -> int:
    """Address of `size` bytes of device memory."""
    return int(answer("aclrtMalloc", size, 0))


@contextlib.contextmanager
def device_memory(size: int) -> Iterator[int]:
    """`size` bytes of device memory, freed at the end."""
    address = malloc(size)
    try:
        yield address
    finally:
        acl("aclrtFree", address)


@contextlib.contextmanager
def stream() -> Iterator[int]:
    """A new stream, destroyed at the end."""
    handle = answer("aclrtCreateStream")
    try:
        yield handle
    finally:
        acl("aclrtDestroyStream", handle)


@contextlib.contextmanager
def event(flag: int = 0) -> Iterator[int]:
    """A new event, destroyed at the end."""
    handle = answer("aclrtCreateEventExWithFlag", flag)
    try:
        yield handle
    finally:
        acl("aclrtDestroyEvent", handle)


def read(address: int, size: int) -> bytes:
    """Bytes of device memory."""
    buffer = ctypes.create_string_buffer(size)
    acl("aclrtMemcpy", buffer, size, address, size, DEVICE_TO_HOST)
    return buffer.raw


class Gate:
    """Holds a stream: what is queued behind it waits until `open()` or the end of the block."""

    def __init__(self, handle: int | None) -> None:
        self.opened = threading.Event()
        self._function = HostFunction(lambda _: self.opened.wait(SECONDS))
        acl("aclrtLaunchHostFunc", handle or 0, self._function, 0)

    def open(self) -> None:
        """Let the stream go on."""
        self.opened.set()

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *_: object) -> None:
        self.open()


def python(program: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run `program` in a Python of its own, where this module can be imported."""
    environ = os.environ | vnpu.environment() | variables
    environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    return subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=False)
