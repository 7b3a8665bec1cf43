"""acltdt channels by their C functions: tensors between the program and the kernels of a device, by the channel's name."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

from torchport import vnpu

tdt = ctypes.CDLL(str(vnpu.library_directory() / "mindspore" / "libacl_tdt_channel.so"))
TENSOR, END_OF_SEQUENCE = 0, 1  # acltdtTensorType
QUEUE_EMPTY, QUEUE_FULL = 207013, 207014  # rt_error_codes.h
for _each in ("CreateChannelWithCapacity", "CreateDataItem", "CreateDataset", "GetDataItem", "GetDataAddrFromItem"):
    getattr(tdt, f"acltdt{_each}").restype = ctypes.c_void_p
for _each in ("GetDataSizeFromItem", "GetDatasetSize", "GetDimNumFromItem"):
    getattr(tdt, f"acltdt{_each}").restype = ctypes.c_size_t
tdt.acltdtGetDatasetName.restype = ctypes.c_char_p


class Item(NamedTuple):
    kind: int
    dtype: int  # aclDataType
    sizes: tuple[int, ...]
    data: bytes


def channel(name: bytes, capacity: int = 2) -> Any:
    made = tdt.acltdtCreateChannelWithCapacity(0, name, ctypes.c_size_t(capacity))
    return ctypes.c_void_p(made)


def dataset(*items: Item) -> Any:
    made = ctypes.c_void_p(tdt.acltdtCreateDataset())
    for each in items:
        dims = (ctypes.c_int64 * max(1, len(each.sizes)))(*each.sizes)
        size = ctypes.c_size_t(len(each.data))
        item = tdt.acltdtCreateDataItem(each.kind, dims, ctypes.c_size_t(len(each.sizes)), each.dtype, each.data, size)
        assert tdt.acltdtAddDataItem(made, ctypes.c_void_p(item)) == 0
    return made


def sent(handle: Any, *items: Item, timeout: int = 0) -> int:
    """The code of acltdtSendTensor."""
    return int(tdt.acltdtSendTensor(handle, dataset(*items), timeout))


def received(handle: Any, timeout: int = 0) -> tuple[str, list[Item]] | int:
    """The name and the items of what came, or the code of acltdtReceiveTensor."""
    into = dataset()
    code = tdt.acltdtReceiveTensor(handle, into, timeout)
    found = []
    for i in range(tdt.acltdtGetDatasetSize(into) if code == 0 else 0):
        item = ctypes.c_void_p(tdt.acltdtGetDataItem(into, ctypes.c_size_t(i)))
        rank = tdt.acltdtGetDimNumFromItem(item)
        dims = (ctypes.c_int64 * max(1, rank))()
        assert tdt.acltdtGetDimsFromItem(item, dims, ctypes.c_size_t(rank)) == 0
        size, at = tdt.acltdtGetDataSizeFromItem(item), tdt.acltdtGetDataAddrFromItem(item)
        found.append(
            Item(
                tdt.acltdtGetTensorTypeFromItem(item),
                tdt.acltdtGetDataTypeFromItem(item),
                tuple(dims[:rank]),
                ctypes.string_at(at, size) if size else b"",
            )
        )
    name = tdt.acltdtGetDatasetName(into).decode()
    assert tdt.acltdtDestroyDataset(into) == 0
    return (name, found) if code == 0 else int(code)


def closed(*handles: Any) -> None:
    for each in handles:
        assert tdt.acltdtDestroyChannel(each) == 0
