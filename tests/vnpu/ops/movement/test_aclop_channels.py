"""Operators by their type between kernels and the program: what they put into a channel comes out at its other end."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ascendcl
import pytest
import torch
from aclnn import DTYPES
from aclop import INVALID_ARGUMENT, STRING, Memory, launch
from channels import END_OF_SEQUENCE, QUEUE_EMPTY, TENSOR, Item, channel, closed, received, sent
from forked import python
from waits import falls_asleep

pytestmark = pytest.mark.device
OUT, NEXT = "OutfeedEnqueueOpV2", "GetNext"


@contextmanager
def opened(name: str, capacity: int = 4) -> Iterator[Any]:
    handle = channel(name.encode(), capacity)
    yield handle
    closed(handle)


def item(tensor: torch.Tensor) -> Item:
    data = bytes(tensor.contiguous().view(torch.uint8).flatten().tolist()) if tensor.dim() else b""
    return Item(TENSOR, DTYPES[tensor.dtype], tuple(tensor.shape), data)


def put(*inputs: Any, **attributes: Any) -> None:
    assert launch(OUT, inputs, [], **attributes) == (0, "")


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.float64,
        torch.int8,
        torch.uint8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.bool,
        torch.complex64,
    ],
)
def test_a_tensor_comes_out_under_its_name(dtype: torch.dtype) -> None:
    x = torch.randn(3, 5).mul(4).to(dtype)
    with opened("dumps") as out:
        put(x.npu(), "some/x", channel_name="dumps")
        assert received(out) == ("some/x", [item(x)])
        assert received(out) == QUEUE_EMPTY


def test_strings_and_tensors_come_out_in_their_order() -> None:
    x, y = torch.arange(6).view(2, 3), torch.randn(0, 4)
    with opened("print") as out, opened("another") as other:
        put("ab\u00e9", x.npu(), "", y.npu(), "name", channel_name="print")
        put(y.npu(), "second", channel_name="print")
        words = [Item(TENSOR, STRING, (), each.encode()) for each in ("ab\u00e9", "")]
        assert received(out) == ("name", [words[0], item(x), words[1], item(y)])
        assert received(out) == ("second", [item(y)]) and received(other) == QUEUE_EMPTY


def test_a_kernel_waits_until_there_is_room() -> None:
    with opened("narrow", 1) as out:
        put(torch.zeros(2).npu(), "1", channel_name="narrow")
        second = threading.Thread(target=put, args=(torch.ones(2).npu(), "2"), kwargs={"channel_name": "narrow"})
        second.start()
        assert falls_asleep(second), "it has ended although there is no room"
        assert received(out, -1) == ("1", [item(torch.zeros(2))])
        assert received(out, -1) == ("2", [item(torch.ones(2))])
        second.join()


def test_a_sign_follows_where_the_receiver_waits_for_it() -> None:
    x = torch.randn(4)
    with opened("slices") as out:
        put(x.npu(), "x", channel_name="slices", slice_size=1, slice_sync=True, wait_time=5)
        assert received(out) == ("x", [item(x)])
        assert received(out) == ("", [Item(END_OF_SEQUENCE, DTYPES[torch.bool], (), b"")])


def test_data_is_read_in_the_order_in_which_it_was_sent() -> None:
    rows = [(torch.randn(2, 3), torch.randint(9, (2,))) for _ in range(3)]

    def feed() -> None:
        time.sleep(0.3)  # most often the kernel is there first
        handles.append(channel(b"data", 2))
        for row in rows:
            assert sent(handles[0], *map(item, row), timeout=-1) == 0

    handles: list[Any] = []
    assert launch("InitData", [], [], channel_name="data") == (0, "")
    feeder = threading.Thread(target=feed)
    feeder.start()
    for row in rows:  # the first waits until the program has opened the channel
        outs = [torch.zeros_like(each).npu() for each in row]
        assert launch(NEXT, [], outs, channel_name="data") == (0, "")
        assert all(torch.equal(out.cpu(), each) for out, each in zip(outs, row, strict=True))
    feeder.join()
    closed(*handles)


X = torch.ones(2)


def test_what_the_call_refuses() -> None:
    x = X.npu()
    for type_, inputs, outputs, how, words in (
        (OUT, [x, "name"], [], {}, "channel_name is empty"),
        (OUT, [x, x], [], {"channel_name": "a"}, "input 1, the name, is no string"),
        (OUT, [], [], {"channel_name": "a"}, "input 0 is missing"),
        (OUT, [None, "name"], [], {"channel_name": "a"}, "input 0 is missing"),
        (OUT, [x, "name"], [], {"channel_name": "a", "wait_time": -1}, "wait_time is -1"),
        ("InitData", [], [], {}, "channel_name is empty"),
        (NEXT, [], [x], {}, "channel_name is empty"),
        (NEXT, [], [], {"channel_name": "a"}, "no outputs"),
        ("Identity", ["text"], [x], {}, "does not offer aclDataType 13"),
    ):
        status, message = launch(type_, inputs, outputs, **how)
        assert status in (INVALID_ARGUMENT, ascendcl.INVALID_PARAM) and words in message, (
            type_,
            inputs,
            status,
            message,
        )


# Each ends the stream, so in a process of its own.
FAILING = """
import ctypes, sys, threading
sys.path[:0] = {paths!r}
import torch, torch_npu, ascendcl
from channels import *
from waits import falls_asleep
import aclop
out = channel(b"there", 1)
ones = torch.ones(2).npu()
def item(*values, dtype=0):
    return Item(TENSOR, dtype, (len(values),), bytes((ctypes.c_float * len(values))(*values)))
def while_it_waits(do):
    "The wait has begun when the main thread waits for its stream; or the kernel finds what it left."
    main = threading.main_thread()
    threading.Thread(target=lambda: falls_asleep(main) and do(), daemon=True).start()
def launch(type_, inputs=(), outputs=(), **how):
    try:
        status, message = aclop.launch(type_, inputs, outputs, **how)
        print("status", status, message)
    except RuntimeError as error:
        print("failed", error)
torch.npu.synchronize()
{program}
"""
FAILURES = {
    "nobody has opened it": (
        'launch("GetNext", [], [ones], channel_name="none")',
        'no channel "none" is open on device 0',
    ),
    "nobody receives": (
        'launch("OutfeedEnqueueOpV2", [ones, "x"], [], channel_name="none")',
        'no channel "none" is open',
    ),
    "stopped": (
        'tdt.acltdtStopChannel(out); launch("GetNext", [], [ones], channel_name="there")',
        "was stopped while a kernel waited to take from it",
    ),
    "stopped before": (
        'tdt.acltdtStopChannel(out); launch("OutfeedEnqueueOpV2", [ones, "x"], [], channel_name="there")',
        "was stopped while a kernel waited to put into it",
    ),
    "closed while it waits": (
        'while_it_waits(lambda: closed(out)); launch("GetNext", [], [ones], channel_name="there")',
        ("was stopped while a kernel waited to take from it", 'no channel "there" is open on device 0'),
    ),
    "no data in time": (
        'ascendcl.acl("aclrtSetOpExecuteTimeOut", 1); launch("GetNext", [], [ones], channel_name="there")',
        "waited too long to take from channel there",
    ),
    "no room in the time of all operators": (
        'ascendcl.acl("aclrtSetOpExecuteTimeOut", 1); assert sent(out, item(1)) == 0; launch("OutfeedEnqueueOpV2", [ones, "x"], [], channel_name="there")',
        "waited too long to put into channel there",
    ),
    "aborted": (
        'while_it_waits(lambda: ascendcl.acl("aclrtDeviceTaskAbort", 0, 0)); launch("GetNext", [], [ones], channel_name="there")',
        "tasks of virtual NPU 0 were aborted",
    ),
    "no room in time": (
        'assert sent(out, item(1)) == 0; launch("OutfeedEnqueueOpV2", [ones, "x"], [], channel_name="there", wait_time=1)',
        "waited too long to put into channel there",
    ),
    "the end": (
        'assert sent(out, Item(END_OF_SEQUENCE, 12, (), b"")) == 0; launch("GetNext", [], [ones], channel_name="there")',
        "has come to the end of its data",
    ),
    "another count": (
        'assert sent(out, item(1, 2), item(3)) == 0; launch("GetNext", [], [ones], channel_name="there")',
        "gave 2 tensors for 1 outputs",
    ),
    "another size": (
        'assert sent(out, item(1, 2, 3)) == 0; launch("GetNext", [], [ones], channel_name="there")',
        "gave 12 bytes of aclDataType 0 for output 0",
    ),
    "another dtype": (
        'assert sent(out, item(1, 2, dtype=3)) == 0; launch("GetNext", [], [ones], channel_name="there")',
        "gave 8 bytes of aclDataType 3 for output 0",
    ),
    "a string past its memory": (
        f'launch("OutfeedEnqueueOpV2", [ones, aclop.Memory({struct.pack("qq", 16, 9) + b"abc"!r})], [], channel_name="there")',
        "a string of 19 bytes says that it has 9 characters from byte 16 on",
    ),
}


AICPU = "507018"  # they are operators of the device's own CPU


@pytest.mark.parametrize("what", FAILURES)
def test_what_fails_the_stream(what: str, tmp_path: Any) -> None:
    program, words = FAILURES[what]
    text = FAILING.format(paths=[str(folder) for folder in Path(__file__).parents[1:4]], program=program)
    result = python(text, VNPU_TRACE=str(tmp_path / "trace"))
    said = result.stdout + result.stderr + (tmp_path / "trace").read_text()
    accepted = (words,) if isinstance(words, str) else words
    assert any(each in said for each in accepted) and "status 0" not in result.stdout, said[-3000:]
    assert what == "aborted" or AICPU in said, said[-3000:]


def test_memory_of_a_string_is_what_the_test_says() -> None:
    with opened("hand made") as out:
        put(X.npu(), Memory(struct.pack("qq", 18, 2) + b"..ab..."), channel_name="hand made")
        assert received(out) == ("ab", [item(X)])
