"""acltdt: channels for tensors, which MindSpore opens for what a compiled graph prints and for data read ahead."""

from __future__ import annotations

import ctypes
import time
from typing import Any

import ascendcl
import channels
from channels import QUEUE_EMPTY, QUEUE_FULL, TENSOR, Item, channel, sent, tdt


def row(*values: float) -> Item:
    return Item(TENSOR, 0, (1, len(values)), bytes((ctypes.c_float * len(values))(*values)))


def received(handle: Any, timeout: int = 0) -> list[float] | int:
    found = channels.received(handle, timeout)
    if isinstance(found, int):
        return found
    (item,) = found[1]
    values = list((ctypes.c_float * (len(item.data) // 4)).from_buffer_copy(item.data))
    assert item == row(*values)
    return values


def test_tensors_come_out_in_their_order_by_any_handle_of_the_name() -> None:
    one, other, elsewhere = channel(b"order"), channel(b"order"), channel(b"elsewhere")
    assert sent(one, row(1, 2)) == 0
    assert sent(one, row(3)) == 0
    assert received(elsewhere) == QUEUE_EMPTY
    assert [received(other), received(other), received(other)] == [[1, 2], [3], QUEUE_EMPTY]
    for each in (one, other, elsewhere):
        assert tdt.acltdtDestroyChannel(each) == 0


def test_a_full_channel_and_an_empty_one_say_so_when_the_time_is_up() -> None:
    handle = channel(b"full", 1)
    began = time.monotonic()
    assert sent(handle, row(1)) == 0
    assert sent(handle, row(2), timeout=50) == QUEUE_FULL
    assert "holds 1 datasets" in ascendcl.message()
    size = ctypes.c_size_t()
    assert tdt.acltdtQueryChannelSize(handle, ctypes.byref(size)) == 0 and size.value == 1
    assert tdt.acltdtCleanChannel(handle) == 0
    assert received(handle, 50) == QUEUE_EMPTY
    assert time.monotonic() - began >= 0.1
    tdt.acltdtDestroyChannel(handle)


def test_a_stopped_channel_gives_what_it_has_and_takes_no_more() -> None:
    handle = channel(b"stopped")
    assert sent(handle, row(1)) == 0
    assert tdt.acltdtStopChannel(handle) == 0
    assert sent(handle, row(2), timeout=-1) != 0
    assert received(handle, -1) == [1]
    assert received(handle, -1) != 0
    assert "was stopped" in ascendcl.message()
    tdt.acltdtDestroyChannel(handle)


def test_what_is_no_channel_is_refused() -> None:
    assert not channel(b"none", 0) and "capacity is 0" in ascendcl.message()
    assert not channel(b"x" * 200) and "200 characters" in ascendcl.message()
    assert sent(None, row(1)) == ascendcl.INVALID_PARAM
