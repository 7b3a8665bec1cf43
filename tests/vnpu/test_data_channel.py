"""acltdt: channels for tensors, which MindSpore opens for what a compiled graph prints and for data read ahead."""

from __future__ import annotations

import ctypes
import time
from typing import Any

import ascendcl

from torchport import vnpu

tdt = ctypes.CDLL(str(vnpu.library_directory() / "mindspore" / "libacl_tdt_channel.so"))
QUEUE_EMPTY, QUEUE_FULL = 207013, 207014  # rt_error_codes.h
POINTERS = (
    "CreateChannelWithCapacity",
    "CreateDataItem",
    "CreateDataset",
    "GetDataItem",
    "GetDataAddrFromItem",
)
for each in POINTERS:
    getattr(tdt, f"acltdt{each}").restype = ctypes.c_void_p
for each in ("GetDataSizeFromItem", "GetDatasetSize", "GetDimNumFromItem"):
    getattr(tdt, f"acltdt{each}").restype = ctypes.c_size_t
tdt.acltdtGetDatasetName.restype = ctypes.c_char_p


def channel(name: bytes, capacity: int = 2) -> Any:
    made = tdt.acltdtCreateChannelWithCapacity(0, name, ctypes.c_size_t(capacity))
    return ctypes.c_void_p(made)


def dataset(*values: float) -> Any:
    made = ctypes.c_void_p(tdt.acltdtCreateDataset())
    if values:
        data = (ctypes.c_float * len(values))(*values)
        dims = (ctypes.c_int64 * 2)(1, len(values))
        size = ctypes.c_size_t(ctypes.sizeof(data))
        item = ctypes.c_void_p(tdt.acltdtCreateDataItem(0, dims, ctypes.c_size_t(2), 0, data, size))
        assert tdt.acltdtAddDataItem(made, item) == 0
    return made


def received(handle: Any, timeout: int = 0) -> list[float] | int:
    into = dataset()
    code = tdt.acltdtReceiveTensor(handle, into, timeout)
    if code != 0:
        tdt.acltdtDestroyDataset(into)
        return int(code)
    item = ctypes.c_void_p(tdt.acltdtGetDataItem(into, ctypes.c_size_t(0)))
    count = tdt.acltdtGetDataSizeFromItem(item) // 4
    dims = (ctypes.c_int64 * 2)()
    assert tdt.acltdtGetDimsFromItem(item, dims, ctypes.c_size_t(2)) == 0 and list(dims) == [1, count]
    values = list((ctypes.c_float * count).from_address(tdt.acltdtGetDataAddrFromItem(item)))
    assert tdt.acltdtDestroyDataset(into) == 0
    return values


def test_tensors_come_out_in_their_order_by_any_handle_of_the_name() -> None:
    one, other, elsewhere = channel(b"order"), channel(b"order"), channel(b"elsewhere")
    assert tdt.acltdtSendTensor(one, dataset(1, 2), 0) == 0
    assert tdt.acltdtSendTensor(one, dataset(3), 0) == 0
    assert received(elsewhere) == QUEUE_EMPTY
    assert [received(other), received(other), received(other)] == [[1, 2], [3], QUEUE_EMPTY]
    for each in (one, other, elsewhere):
        assert tdt.acltdtDestroyChannel(each) == 0


def test_a_full_channel_and_an_empty_one_say_so_in_time() -> None:
    handle = channel(b"full", 1)
    began = time.monotonic()
    assert tdt.acltdtSendTensor(handle, dataset(1), 0) == 0
    assert tdt.acltdtSendTensor(handle, dataset(2), 50) == QUEUE_FULL
    assert "holds 1 datasets" in ascendcl.message()
    size = ctypes.c_size_t()
    assert tdt.acltdtQueryChannelSize(handle, ctypes.byref(size)) == 0 and size.value == 1
    assert tdt.acltdtCleanChannel(handle) == 0
    assert received(handle, 50) == QUEUE_EMPTY
    assert 0.1 <= time.monotonic() - began < 20
    tdt.acltdtDestroyChannel(handle)


def test_a_stopped_channel_gives_what_it_has_and_takes_no_more() -> None:
    handle = channel(b"stopped")
    assert tdt.acltdtSendTensor(handle, dataset(1), 0) == 0
    assert tdt.acltdtStopChannel(handle) == 0
    assert tdt.acltdtSendTensor(handle, dataset(2), -1) != 0
    assert received(handle, -1) == [1]
    assert received(handle, -1) != 0
    assert "was stopped" in ascendcl.message()
    tdt.acltdtDestroyChannel(handle)


def test_what_is_no_channel_is_refused() -> None:
    assert not channel(b"none", 0) and "capacity is 0" in ascendcl.message()
    assert not channel(b"x" * 200) and "200 characters" in ascendcl.message()
    assert tdt.acltdtSendTensor(None, dataset(1), 0) == ascendcl.INVALID_PARAM
