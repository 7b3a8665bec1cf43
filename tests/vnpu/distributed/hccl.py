"""libhccl through ctypes: what torch_npu's ProcessGroupHCCL calls, without torch. Ranks are threads of this process, each
with a device of its own; what is between them (memory, futexes, announcements) is what processes have between them.

Types, reductions and codes are those of hccl_types.h.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import ascendcl
import numpy as np
from ascendcl import DEVICE_TO_HOST, HOST_TO_DEVICE, acl

from torchport import vnpu

lib = ctypes.CDLL(str(vnpu.library_directory() / "libhccl.so"))
lib.HcclGetErrorString.restype = ctypes.c_char_p

PARAMETER, POINTER, UNSUPPORTED, TIMEOUT, REMOTE = 1, 2, 5, 9, 21
SUM, PROD, MAX, MIN = range(4)
SEND, RECV = range(2)
BFLOAT16 = np.dtype([("bfloat16", np.uint16)])  # numpy has none: a type of its own, with conversions below
TYPES: dict[str, tuple[int, np.dtype[Any]]] = {
    "int8": (0, np.dtype(np.int8)),
    "int16": (1, np.dtype(np.int16)),
    "int32": (2, np.dtype(np.int32)),
    "float16": (3, np.dtype(np.float16)),
    "float32": (4, np.dtype(np.float32)),
    "int64": (5, np.dtype(np.int64)),
    "uint64": (6, np.dtype(np.uint64)),
    "uint8": (7, np.dtype(np.uint8)),
    "uint16": (8, np.dtype(np.uint16)),
    "uint32": (9, np.dtype(np.uint32)),
    "float64": (10, np.dtype(np.float64)),
    "bfloat16": (11, BFLOAT16),
}
FLOAT32 = TYPES["float32"][0]


class RootInfo(ctypes.Structure):
    _fields_ = (("internal", ctypes.c_char * 4108),)


class Item(ctypes.Structure):
    """HcclSendRecvItem."""

    _fields_ = (
        ("kind", ctypes.c_int),
        ("buffer", ctypes.c_void_p),
        ("count", ctypes.c_uint64),
        ("type", ctypes.c_int),
        ("peer", ctypes.c_uint32),
    )


class HcclError(Exception):
    """A call that did not return HCCL_SUCCESS."""

    def __init__(self, name: str, code: int) -> None:
        self.code = code
        self.message = ascendcl.message()
        super().__init__(f"{name}: {code}: {self.message}")


def hccl(name: str, *arguments: Any) -> None:
    """Call the function; raise HcclError unless it returns HCCL_SUCCESS."""
    words = [ctypes.c_uint64(a & (1 << 64) - 1) if isinstance(a, int) else a for a in arguments]
    status = getattr(lib, name)(*words)
    if status != 0:
        raise HcclError(name, status)


def counts(values: list[int]) -> ctypes.Array[ctypes.c_uint64]:
    """A host array of counts or displacements."""
    return (ctypes.c_uint64 * len(values))(*values)


def encode(values: Any, kind: str) -> np.ndarray[Any, Any]:
    """The values as an array of that type."""
    dtype = TYPES[kind][1]
    if dtype != BFLOAT16:
        return np.ascontiguousarray(values, dtype)
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16  # to nearest, ties to even
    return rounded.astype(np.uint16).view(BFLOAT16)


def decode(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The values as numbers: bfloat16 as float32, everything else as it is."""
    if array.dtype != BFLOAT16:
        return array
    return (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


@dataclasses.dataclass
class Rank:
    """One rank: its number, its communicator, a stream on its device, and arrays in the device's memory."""

    number: int
    size: int
    comm: int
    stream: int
    _memory: list[int] = dataclasses.field(default_factory=list)

    def put(self, values: Any, kind: str = "float32") -> int:
        """Device address of a copy of the values."""
        array = encode(values, kind)
        address = self.room(array.size, kind)
        acl("aclrtMemcpy", address, array.nbytes, array.ctypes.data_as(ctypes.c_void_p), array.nbytes, HOST_TO_DEVICE)
        return address

    def room(self, count: int, kind: str = "float32") -> int:
        """Device address of `count` zeros."""
        self._memory.append(ascendcl.malloc(max(count, 1) * TYPES[kind][1].itemsize))
        return self._memory[-1]

    def get(self, address: int, count: int, kind: str = "float32") -> np.ndarray[Any, Any]:
        """What lies at the address once the stream is done."""
        self.wait()
        array = np.empty(count, TYPES[kind][1])
        acl("aclrtMemcpy", array.ctypes.data_as(ctypes.c_void_p), array.nbytes, address, array.nbytes, DEVICE_TO_HOST)
        return decode(array)

    def wait(self) -> None:
        acl("aclrtSynchronizeStream", self.stream)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a collective: communicator and stream are appended."""
        hccl(name, *arguments, self.comm, self.stream)

    def destroy(self) -> None:
        """Destroy the communicator, if that has not been done."""
        if self.comm:
            hccl("HcclCommDestroy", self.comm)
        self.comm = 0

    def free(self) -> None:
        for address in self._memory:
            acl("aclrtFree", address)
        self._memory.clear()


def own_sockets() -> set[str]:
    """The inodes of this process's sockets, as /proc/net shows them."""
    own = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the listing's own descriptor, or another thread's
            kind, _, inode = os.readlink(f"/proc/self/fd/{name}").partition(":")
            if kind == "socket":
                own.add(inode.strip("[]"))
    return own


def listening_ports() -> set[int]:
    """The TCP ports on which this process listens."""
    own = own_sockets()
    with open("/proc/self/net/tcp") as table:
        rows = [line.split() for line in table]
    return {int(row[1].partition(":")[2], 16) for row in rows[1:] if row[3] == "0A" and row[9] in own}


def root_info() -> RootInfo:
    made = RootInfo()
    hccl("HcclGetRootInfo", ctypes.byref(made))
    return made


@contextlib.contextmanager
def rank_of(info: RootInfo, number: int, size: int) -> Iterator[Rank]:
    """This thread as a rank, on the device of the same number."""
    acl("aclrtSetDevice", number)
    comm = ctypes.c_void_p()
    hccl("HcclCommInitRootInfo", size, ctypes.byref(info), number, ctypes.byref(comm))
    assert comm.value is not None
    with ascendcl.stream() as handle:
        rank = Rank(number, size, comm.value, handle)
        try:
            yield rank
        finally:
            rank.destroy()
            ascendcl.code("aclrtSynchronizeStream", handle)  # a failure was told before
            rank.free()


def in_ranks(size: int, body: Callable[[Rank], Any]) -> list[Any]:
    """Run `body` in `size` ranks at the same time; return what each returned or the AclError or HcclError it met."""
    info = root_info()
    outcomes: list[Any] = [None] * size

    def run(number: int) -> None:
        try:
            with rank_of(info, number, size) as rank:
                outcomes[number] = body(rank)
        except BaseException as error:  # handed to the caller's thread
            outcomes[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for outcome in outcomes:
        if isinstance(outcome, BaseException) and not isinstance(outcome, (ascendcl.AclError, HcclError)):
            raise outcome
    return outcomes


def results(size: int, body: Callable[[Rank], Any]) -> list[Any]:
    """The same for a body that must not fail."""
    outcomes = in_ranks(size, body)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return outcomes
