"""Operands that do not lie in live memory: the operator, the parameter and the allocation are named, in the first phase
or when the kernel runs, and the neighbour's bytes stay what they were."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import ascendcl
import pytest
import torch
from aclnn import INVALID_ARGUMENT, SIGNATURES, View, first_phase, made, planned, row, run
from ascendcl import acl, answer, code, malloc
from calls import CALLS

COUNT = 1024  # float32 elements in a block of 4096 bytes
GATE = 2 << 20


class Blocks:
    """Two blocks of COUNT floats, the second behind the first, and one that was freed."""

    def __init__(self) -> None:
        self.low, self.high = sorted((malloc(4 * COUNT), malloc(4 * COUNT)))
        freed = malloc(GATE)
        acl("aclrtFree", freed)
        self.freed = freed
        for block, byte in ((self.low, 0), (self.high, 7)):
            acl("aclrtMemset", block, 4 * COUNT, byte, 4 * COUNT)


@pytest.fixture
def blocks() -> Iterator[Blocks]:
    torch.npu.synchronize()
    acl("aclrtSetDevice", 0)
    made = Blocks()
    yield made
    torch.npu.synchronize()
    assert ascendcl.read(made.high, 4 * COUNT) == b"\x07" * (4 * COUNT)
    for block in (made.low, made.high):
        acl("aclrtFree", block)


def wide(at: int, rows: int = 32, columns: int = 32, stride: int = 32, offset: int = 0) -> View:
    return View(at, (rows, columns), (stride, 1), offset)


# What is wrong with an operand: the name of the parameter, and the call with a bad (b) and a good (g) address.
PAST: dict[str, tuple[str, str, Callable[[Blocks], tuple[Any, ...]]]] = {
    "in place": ("aclnnInplaceOne", "selfRef", lambda b: (row(b.low, 2 * COUNT),)),
    "by one element": ("aclnnInplaceOne", "selfRef", lambda b: (row(b.low, COUNT + 1),)),
    "by its offset": ("aclnnInplaceOne", "selfRef", lambda b: (View(b.low, (1,), (1,), COUNT),)),
    "by its strides": ("aclnnInplaceOne", "selfRef", lambda b: (wide(b.low, 32, 32, 33),)),
    "as input": ("aclnnAdd", "other", lambda b: (row(b.low, 8), row(b.low + 4080, 8), 1, row(b.low, 8))),
    "as output": ("aclnnAdd", "out", lambda b: (row(b.low, 8), row(b.low, 8), 1, row(b.low + 4080, 8))),
    "transposed": (
        "aclnnAdd",
        "self",
        lambda b: (View(b.low, (32, 33), (1, 32)), wide(b.low, 32, 1), 1, View(b.low, (32, 33), (0, 0))),
    ),
    "expanded": ("aclnnAdd", "other", lambda b: (row(b.low, 8), View(b.low, (8,), (0,), COUNT), 1, row(b.low, 8))),
    "of a matrix product": (
        "aclnnMatmul",
        "mat2",
        lambda b: (wide(b.low, 8, 32), wide(b.low, 32, 33, 33), View(b.low, (8, 33), (33, 1)), 0),
    ),
    "of an index": (
        "aclnnIndexSelect",
        "index",
        lambda b: (row(b.low, 8), 0, row(b.low + 4088, 2, torch.int64), row(b.low, 2)),
    ),
    "in a list": (
        "aclnnForeachAddList",
        "x2",
        lambda b: (
            [row(b.low, 8), row(b.low, 8)],
            [row(b.low, 8), row(b.low + 4080, 8)],
            torch.ones(1, device="npu"),
            [row(b.low, 8), row(b.low, 8)],
        ),
    ),
    "of a sum": (
        "aclnnReduceSum",
        "self",
        lambda b: (row(b.low, COUNT + 1), [0], False, torch.float32, View(b.low, (), ())),
    ),
    "of a copy": ("aclnnInplaceCopy", "src", lambda b: (row(b.low, 8), row(b.low + 4072, 8))),
    "of a cast": (
        "aclnnCast",
        "self",
        lambda b: (row(b.low, COUNT // 2 + 1, torch.float64), torch.float32, row(b.low, COUNT // 2 + 1)),
    ),
    "of a unary operator": ("aclnnExp", "self", lambda b: (row(b.low + 4092, 2), row(b.low, 2))),
}


@pytest.mark.parametrize("case", PAST)
def test_past_the_end(case: str, blocks: Blocks) -> None:
    name, parameter, arguments = PAST[case]
    status, message = first_phase(name, *arguments(blocks))
    assert status == INVALID_ARGUMENT
    assert parameter in message and name in message
    assert f"the allocation of 4096 bytes at {blocks.low:#x} on virtual NPU 0" in message or "no live memory" in message


FREED: dict[str, tuple[str, str, Callable[[int, int], tuple[Any, ...]]]] = {
    "in place": ("aclnnInplaceOne", "selfRef", lambda bad, _: (row(bad, 8),)),
    "as input": ("aclnnAdd", "self", lambda bad, good: (row(bad, 8), row(good, 8), 1, row(good, 8))),
    "as output": ("aclnnMul", "out", lambda bad, good: (row(good, 8), row(good, 8), row(bad, 8))),
    "in its middle": ("aclnnInplaceZero", "selfRef", lambda bad, _: (row(bad + 64, 8),)),
    "with strides": ("aclnnInplaceOne", "selfRef", lambda bad, _: (wide(bad, 4, 4, 100),)),
    "of a matrix product": (
        "aclnnMatmul",
        "self",
        lambda bad, good: (wide(bad, 8, 8, 8), wide(good, 8, 8, 8), wide(good, 8, 8, 8), 0),
    ),
}


@pytest.mark.parametrize("case", FREED)
def test_freed_memory(case: str, blocks: Blocks) -> None:
    name, parameter, arguments = FREED[case]
    status, message = first_phase(name, *arguments(blocks.freed, blocks.low))
    assert status == INVALID_ARGUMENT
    assert parameter in message and name in message
    assert f"the allocation of {GATE} bytes at {blocks.freed:#x} on virtual NPU 0 has been freed" in message


@pytest.mark.parametrize("name", ["aclnnInplaceOne", "aclnnInplaceZero"])
def test_freed_by_the_time_it_runs(name: str, blocks: Blocks) -> None:
    """A stream of another device holds the kernel back: aclrtFree does not wait for it. It would not be allowed to
    touch the memory of device 0 either, which is what a live block is refused for."""
    for free_first in (True, False):
        address = malloc(4096)
        launch = planned(name, row(address, 8))
        acl("aclrtSetDevice", 1)
        with ascendcl.stream() as queue:
            with ascendcl.Gate(queue):
                launch(queue)
                if free_first:
                    acl("aclrtFree", address)
            assert code("aclrtSynchronizeStream", queue) != 0
            message = ascendcl.message()
        acl("aclrtSetDevice", 0)
        assert f"{name}: " in message and "selfRef" in message
        words = "has been freed" if free_first else "and the stream is one of virtual NPU 1"
        assert f"the allocation of 4096 bytes at {address:#x} on virtual NPU 0" in message and words in message
        if not free_first:
            acl("aclrtFree", address)


@pytest.mark.parametrize("name", ["aclnnInplaceOne", "aclnnAdd", "aclnnForeachAddList"])
def test_a_graph_is_replayed_after_its_memory_was_freed(name: str, blocks: Blocks) -> None:
    address = malloc(4096)
    operands = {
        "aclnnInplaceOne": (row(address, 8),),
        "aclnnAdd": (row(blocks.low, 8), row(address, 8), 1, row(blocks.low, 8)),
        "aclnnForeachAddList": (
            [row(address, 8)],
            [row(address, 8)],
            torch.ones(1, device="npu"),
            [row(blocks.low, 8)],
        ),
    }[name]
    launch = planned(name, *operands)
    with ascendcl.stream() as queue:
        acl("aclmdlRICaptureBegin", queue, 2)
        launch(queue)
        graph = ctypes.c_void_p()
        acl("aclmdlRICaptureEnd", queue, ctypes.byref(graph))
        acl("aclmdlRIExecuteAsync", graph, queue)
        acl("aclrtSynchronizeStream", queue)
        acl("aclrtFree", address)
        before = ascendcl.read(blocks.low, 4096)
        acl("aclmdlRIExecuteAsync", graph, queue)
        assert code("aclrtSynchronizeStream", queue) != 0
        message = ascendcl.message()
        assert name in message
        assert f"the allocation of 4096 bytes at {address:#x} on virtual NPU 0 has been freed" in message
        assert ascendcl.read(blocks.low, 4096) == before
        acl("aclmdlRIDestroy", graph)


@pytest.mark.parametrize(
    ("view", "words"),
    [
        (View(0, (4,), (1,), -1), "offset is -1"),
        (View(0, (4,), (-1,)), "stride -1"),
        (View(0, (-4,), (1,)), "size -4"),
        (View(0, (1 << 62,), (4,)), "address can count"),
        (View(0, (1 << 40, 1 << 40), (1 << 40, 1)), "address can count"),
        (View(0, (2,), (1 << 62,)), "address can count"),
        (View(0, (2,), (1,), (1 << 63) - 1), "address can count"),
    ],
)
def test_views_that_no_address_could_count(view: View, words: str, blocks: Blocks) -> None:
    placed = View(blocks.low, view.sizes, view.strides, view.offset)
    said = made(placed)
    status, message = first_phase("aclnnInplaceOne", placed)
    assert status != 0 and words in said + message


FINE: dict[str, tuple[str, Callable[[int], tuple[Any, ...]]]] = {
    "the whole block": ("aclnnInplaceOne", lambda at: (row(at, COUNT),)),
    "its last element": ("aclnnInplaceOne", lambda at: (View(at, (1,), (1,), COUNT - 1),)),
    "from its middle": ("aclnnInplaceOne", lambda at: (row(at + 2048, COUNT // 2),)),
    "nothing": ("aclnnInplaceOne", lambda at: (row(at + 4096, 0),)),
    "nothing of null": ("aclnnInplaceOne", lambda _: (row(0, 0),)),
    "expanded": ("aclnnAdd", lambda at: (View(at, (8, 4), (0, 0)), wide(at, 8, 4), 1, wide(at, 8, 4))),
    "transposed": ("aclnnExp", lambda at: (View(at, (32, 32), (1, 32)), View(at, (32, 32), (1, 32)))),
    "channels last": (
        "aclnnExp",
        lambda at: (View(at, (2, 8, 8, 8), (512, 1, 64, 8)), View(at, (2, 8, 8, 8), (512, 1, 64, 8))),
    ),
    "every other": ("aclnnInplaceZero", lambda at: (View(at, (COUNT // 2,), (2,), 1),)),
    "a slice": ("aclnnInplaceOne", lambda at: (wide(at, 32, 8, 32, 24),)),
    "zero rows with a large stride": ("aclnnInplaceOne", lambda at: (View(at, (0, 4), (1 << 40, 1)),)),
    "one row with a large stride": ("aclnnInplaceOne", lambda at: (View(at, (1, 4), (1 << 40, 1)),)),
    "a scalar": ("aclnnInplaceOne", lambda at: (View(at + 4092, (), ()),)),
    "a sum": ("aclnnReduceSum", lambda at: (row(at, COUNT), [0], False, torch.float32, View(at, (), ()))),
    "a matrix product": ("aclnnMatmul", lambda at: (wide(at), wide(at), wide(at), 0)),
    "a copy": ("aclnnInplaceCopy", lambda at: (row(at, 512), row(at + 2048, 512))),
    "a list": (
        "aclnnForeachAddList",
        lambda at: ([row(at, 8)], [row(at + 4064, 8)], torch.ones(1, device="npu"), [row(at, 8)]),
    ),
}


@pytest.mark.parametrize("case", FINE)
def test_views_that_lie_in_their_block(case: str, blocks: Blocks) -> None:
    name, arguments = FINE[case]
    run(name, *arguments(blocks.low))


def test_mapped_segments_that_touch_count_as_one() -> None:
    from test_virtual_memory import PAGE, physical

    torch.npu.synchronize()
    address = answer("aclrtReserveMemAddress", 4 * PAGE, 0, 0, 1)
    handles = [physical(PAGE), physical(PAGE)]
    for index, handle in enumerate(handles):
        acl("aclrtMapMem", address + index * PAGE, PAGE, 0, handle, 0)
    run("aclnnInplaceOne", row(address + PAGE - 16, 8))
    assert first_phase("aclnnInplaceOne", row(address + 2 * PAGE - 16, 8))[0] == INVALID_ARGUMENT
    acl("aclrtUnmapMem", address + PAGE)
    status, message = first_phase("aclnnInplaceOne", row(address + PAGE - 16, 8))
    assert status == INVALID_ARGUMENT and f"16 bytes past the end of the allocation of {PAGE} bytes" in message
    acl("aclrtUnmapMem", address)
    assert "nothing is mapped there" in first_phase("aclnnInplaceOne", row(address, 8))[1]
    for handle in handles:
        acl("aclrtFreePhysical", handle)
    acl("aclrtReleaseMemAddress", address)


def elsewhere(arguments: list[object]) -> Iterator[tuple[int, list[object]]]:
    """The arguments with one tensor (or list of them) on another device."""
    for place, value in enumerate(arguments):
        if isinstance(value, torch.Tensor) and value.numel() > 0:
            yield place, [*arguments[:place], value.to("npu:1"), *arguments[place + 1 :]]
        elif isinstance(value, list) and any(isinstance(one, torch.Tensor) for one in value):
            yield place, [*arguments[:place], [one.to("npu:1") for one in value], *arguments[place + 1 :]]


@pytest.fixture(scope="module")
def strangers() -> None:
    """torch_npu lets NPUs into each other's memory with the first copy between them, once for all."""
    torch.ones(1, device="npu:0").to("npu:1")
    for device, peer in ((1, 0), (0, 1)):
        acl("aclrtSetDevice", device)
        acl("aclrtDeviceDisablePeerAccess", peer)


@pytest.mark.usefixtures("strangers")
@pytest.mark.parametrize("name", CALLS)
def test_an_operand_of_another_device(name: str) -> None:
    """No operator reads or writes what lies on another device, whichever of its operands that is."""
    names = [parameter for _, parameter, _ in SIGNATURES[name]["params"]]
    run(name, *CALLS[name]())
    for place, arguments in elsewhere(CALLS[name]()):
        launch = planned(name, *arguments)
        with ascendcl.stream() as queue:
            launch(queue)
            failed = code("aclrtSynchronizeStream", queue) != 0
            said = ascendcl.message()
        where = f"{name}, {names[place]}: {said}"
        assert failed and names[place] in said, where
        assert "on virtual NPU 1, and the stream is one of virtual NPU 0" in said, where
