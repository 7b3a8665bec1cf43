"""HcclGroupStart and HcclGroupEnd, which torch_npu uses from CANN 9.0.0 on: what lies between them begins at the end."""

from __future__ import annotations

import ctypes
import threading

import ascendcl
import numpy as np
import pytest
from ascendcl import acl
from hccl import FLOAT32, PARAMETER, SUM, UNSUPPORTED, HcclError, Rank, hccl, results

from torchport import vnpu

pytestmark = [pytest.mark.device, pytest.mark.usefixtures("npu")]
COUNT = 300_000


def swap(rank: Rank, count: int = COUNT) -> tuple[int, int]:
    """Send to the next rank and receive from the one before, in this order on every rank; the two buffers."""
    out, into = rank.put(np.full(count, rank.number + 1.0)), rank.room(count)
    rank.call("HcclSend", out, count, FLOAT32, (rank.number + 1) % rank.size)
    rank.call("HcclRecv", into, count, FLOAT32, (rank.number - 1) % rank.size)
    return out, into


def test_sends_before_receives_on_every_rank() -> None:
    """One after the other on a stream they would wait for each other: a send is over when it has been received."""

    def body(rank: Rank) -> float:
        hccl("HcclGroupStart")
        _, into = swap(rank)
        hccl("HcclGroupEnd")
        return float(rank.get(into, COUNT).mean())

    assert results(3, body) == [3, 1, 2]


def test_nothing_begins_before_the_outermost_end() -> None:
    def body(rank: Rank) -> list[float]:
        hccl("HcclGroupStart")
        hccl("HcclGroupStart")
        _, into = swap(rank, 4)
        at = rank.put([rank.number + 1.0])
        rank.call("HcclAllReduce", at, at, 1, FLOAT32, SUM)
        hccl("HcclGroupEnd")
        before = [float(rank.get(into, 4)[0]), float(rank.get(at, 1)[0])]
        hccl("HcclGroupEnd")
        return [*before, float(rank.get(into, 4)[0]), float(rank.get(at, 1)[0])]

    assert results(2, body) == [[0, 1, 2, 3], [0, 2, 1, 3]]


def test_the_end_waits_for_collectives() -> None:
    def body(rank: Rank) -> tuple[int, list[float]]:
        sizes = (1, 1000, 37)
        hccl("HcclGroupStart")
        buffers = [rank.put(np.full(size, rank.number + size)) for size in sizes]
        for at, size in zip(buffers, sizes, strict=True):
            rank.call("HcclAllReduce", at, at, size, FLOAT32, SUM)
        hccl("HcclGroupEnd")
        status = ascendcl.ask("aclrtStreamQuery", rank.stream)  # 0: all of it has run
        return status, [float(rank.get(at, 1)[0]) for at in buffers]

    assert results(2, body) == [(0, [3, 2001, 75])] * 2


def test_what_a_rank_sends_itself() -> None:
    """Alone, a send to oneself has no receive; in a group it has."""

    def body(rank: Rank) -> float:
        out, into = rank.put([7.0]), rank.room(1)
        with pytest.raises(HcclError, match="do not match"):
            rank.call("HcclSend", out, 1, FLOAT32, rank.number)
        hccl("HcclGroupStart")
        rank.call("HcclSend", out, 1, FLOAT32, rank.number)
        rank.call("HcclRecv", into, 1, FLOAT32, rank.number)
        hccl("HcclGroupEnd")
        return float(rank.get(into, 1)[0])

    assert results(2, body) == [7, 7]


def test_a_failure_is_told_and_does_not_stay() -> None:
    def body(rank: Rank) -> float:
        at = rank.put([1.0])
        hccl("HcclGroupStart")
        rank.call("HcclSend", at, 1, FLOAT32, rank.number)
        with pytest.raises(HcclError) as refused:  # at once, as outside of a group
            rank.call("HcclSend", at, 1, FLOAT32, 9)
        assert refused.value.code == PARAMETER
        with pytest.raises(HcclError, match="do not match") as refused:
            hccl("HcclGroupEnd")
        assert refused.value.code == PARAMETER
        rank.call("HcclAllReduce", at, at, 1, FLOAT32, SUM)
        return float(rank.get(at, 1)[0])

    assert results(2, body) == [2, 2]


def test_ends_belong_to_starts_of_their_thread() -> None:
    inside = ctypes.c_bool(True)
    hccl("HcclGroupStatusGet", ctypes.byref(inside))
    assert not inside.value
    with pytest.raises(HcclError, match="without HcclGroupStart") as refused:
        hccl("HcclGroupEnd")
    assert refused.value.code == UNSUPPORTED
    hccl("HcclGroupStart")
    elsewhere = ctypes.c_bool(True)
    thread = threading.Thread(target=lambda: hccl("HcclGroupStatusGet", ctypes.byref(elsewhere)))
    thread.start()
    thread.join()
    hccl("HcclGroupStatusGet", ctypes.byref(inside))
    assert (inside.value, elsewhere.value) == (True, False)
    hccl("HcclGroupEnd")
    acl("aclrtSetDevice", 0)


def test_torch_npu_finds_them_in_their_library() -> None:
    library = ctypes.CDLL(str(vnpu.library_directory() / "libhcomm.so"))
    assert library.HcclGroupStart() == 0
    assert library.HcclGroupEnd() == 0
