"""Communicators: the ways in which ranks find each other, parts of a communicator, and starting again after a failure."""

from __future__ import annotations

import ctypes
import threading
import time
from typing import Any

import ascendcl
import numpy as np
import pytest
from ascendcl import acl
from hccl import FLOAT32, PARAMETER, SUM, TIMEOUT, HcclError, Rank, counts, hccl, in_ranks, results, root_info

pytestmark = [pytest.mark.device, pytest.mark.usefixtures("npu")]


def total(rank: Rank, comm: Any) -> float:
    """The sum over the communicator of each rank's number plus 1."""
    at = rank.put([rank.number + 1.0])
    hccl("HcclAllReduce", at, at, 1, FLOAT32, SUM, comm, rank.stream)
    return float(rank.get(at, 1)[0])


def test_all_devices_of_one_process() -> None:
    comms = (ctypes.c_void_p * 3)()
    hccl("HcclCommInitAll", 3, (ctypes.c_int32 * 3)(0, 1, 2), comms)
    ranks = []
    for device, comm in enumerate(comms):
        acl("aclrtSetDevice", device)
        assert comm is not None
        rank = Rank(device, 3, comm, ascendcl.answer("aclrtCreateStream"))
        at = rank.put([device + 1.0])
        rank.call("HcclAllReduce", at, at, 1, FLOAT32, SUM)  # returns though the others have not called yet
        ranks.append((rank, at))
    for rank, at in ranks:
        assert float(rank.get(at, 1)[0]) == 6
        hccl("HcclCommDestroy", rank.comm)
        rank.free()
        acl("aclrtDestroyStream", rank.stream)
    acl("aclrtSetDevice", 0)


def test_parts_of_a_communicator() -> None:
    """Two parts at once, then one with another order of ranks; a rank that is no member gets none."""

    def part(rank: Rank, members: list[int] | None, number: int) -> Any:
        comm, parent = ctypes.c_void_p(), ctypes.c_void_p(rank.comm)
        ids = None if members is None else (ctypes.c_uint32 * len(members))(*members)
        place = 0 if members is None else members.index(rank.number)
        arguments = (0 if members is None else len(members), ids, number, place, None, ctypes.byref(comm))
        hccl("HcclCreateSubCommConfig", ctypes.byref(parent), *arguments)
        return comm

    def body(rank: Rank) -> list[float]:
        half = [0, 2] if rank.number % 2 == 0 else [1, 3]
        sums, number = [], ctypes.c_uint32()
        for members, name in ((half, 7), (half, 7), ([2, 1, 0] if rank.number != 3 else None, 8)):
            comm = part(rank, members, name if members is not None else 0xFFFFFFFF)
            if members is None:
                assert comm.value is None
                continue
            hccl("HcclGetRankId", comm, ctypes.byref(number))
            assert number.value == members.index(rank.number)
            sums.append(total(rank, comm))
            hccl("HcclCommDestroy", comm)
        return [*sums, total(rank, rank.comm)]

    assert results(4, body) == [[4, 4, 6, 10], [6, 6, 6, 10], [4, 4, 6, 10], [6, 6, 10]]


def test_a_rank_is_refused_in_a_part_it_is_not_a_member_of() -> None:
    def body(rank: Rank) -> None:
        comm, parent = ctypes.c_void_p(), ctypes.c_void_p(rank.comm)
        ids = (ctypes.c_uint32 * 1)(1 - rank.number)
        with pytest.raises(HcclError, match="rankIds does not have this rank"):
            hccl("HcclCreateSubCommConfig", ctypes.byref(parent), 1, ids, 1, 0, None, ctypes.byref(comm))

    results(2, body)


def test_several_roots() -> None:
    infos = (type(root_info()) * 2)(root_info(), root_info())

    def body(rank: Rank) -> float:
        comm = ctypes.c_void_p()
        hccl("HcclCommInitRootInfoScalable", 2, 2, infos, rank.number, 0, None, ctypes.byref(comm))
        try:
            return total(rank, comm)
        finally:
            hccl("HcclCommDestroy", comm)

    assert results(2, body) == [3, 3]


def test_a_communicator_resumes_after_a_mismatch() -> None:
    def body(rank: Rank) -> float:
        at = rank.put(np.zeros(500_000))
        rank.call("HcclAllReduce", at, at, 500_000 if rank.number == 0 else 7, FLOAT32, SUM)
        with pytest.raises(ascendcl.AclError, match="what differs: count"):
            rank.wait()
        hccl("HcclCommResume", rank.comm)
        return total(rank, rank.comm)

    assert results(3, body) == [6, 6, 6]


def test_an_uneven_exchange_names_what_one_sends_and_the_other_expects() -> None:
    """The third rank, to which everything looks right, is told by the others."""

    def body(rank: Rank) -> None:
        sizes = counts([1, 1, 1]) if rank.number != 1 else counts([1, 1, 2])
        starts = counts([0, 1, 2])
        at, there = rank.put(np.zeros(4)), rank.room(4)
        rank.call("HcclAlltoAllV", at, sizes, starts, FLOAT32, there, counts([1, 1, 1]), starts, FLOAT32)
        rank.wait()

    first, second, third = (outcome.message for outcome in in_ranks(3, body))
    assert "it sends 8, 4 are expected here" in third
    assert "8 are sent here, it expects 4" in second
    assert "has failed before" in first or first == ""


@pytest.mark.parametrize("wrong", ["type", "count"])
def test_messages_that_do_not_match_are_named_on_both_sides(wrong: str) -> None:
    def body(rank: Rank) -> None:
        at = rank.put(np.zeros(10))
        if rank.number == 0:
            rank.call("HcclSend", at, 10, FLOAT32, 1)
        else:
            rank.call("HcclRecv", at, 10 if wrong == "type" else 9, 2 if wrong == "type" else FLOAT32, 0)
        rank.wait()

    sender, receiver = in_ranks(2, body)
    assert f"what differs: {'data type' if wrong == 'type' else 'count'}" in receiver.message
    assert "rank 1 has failed before" in sender.message


def test_a_send_that_nobody_receives_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HCCL_EXEC_TIMEOUT", "1")

    over = threading.Event()

    def body(rank: Rank) -> None:
        if rank.number == 1:
            over.wait()
            return
        try:
            at = rank.put(np.zeros(10))
            rank.call("HcclSend", at, 10, FLOAT32, 1)
            rank.wait()
        finally:
            over.set()

    sender, _ = in_ranks(2, body)
    assert "nothing came for 1 s (HCCL_EXEC_TIMEOUT): rank 1" in sender.message


def test_what_is_queued_ends_soon_after_the_communicator_is_destroyed() -> None:
    """Else a process that ends by an exception would hang at its end for HCCL_EXEC_TIMEOUT."""

    over = threading.Event()

    def body(rank: Rank) -> float:
        if rank.number == 1:
            over.wait()
            return 0
        try:
            at = rank.put(np.zeros(10))
            start = time.monotonic()
            rank.call("HcclAllReduce", at, at, 10, FLOAT32, SUM)
            time.sleep(0.2)  # most often it is waiting for rank 1 then
            rank.destroy()
            with pytest.raises(ascendcl.AclError, match=r"nothing came for 5 s \(after HcclCommDestroy\): rank 1"):
                rank.wait()
            return time.monotonic() - start
        finally:
            over.set()

    first, _ = results(2, body)
    assert first >= 5


def test_ranks_that_do_not_come_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HCCL_CONNECT_TIMEOUT", "1")
    info, comm = root_info(), ctypes.c_void_p()
    with pytest.raises(HcclError, match="missing: 0 2") as caught:
        hccl("HcclCommInitRootInfo", 3, ctypes.byref(info), 1, ctypes.byref(comm))
    assert caught.value.code == TIMEOUT


def test_ranks_that_contradict_each_other_are_refused() -> None:
    info, comm = root_info(), ctypes.c_void_p()
    joined = threading.Thread(target=lambda: ascendcl.code("aclrtSetDevice", 0))
    joined.start()
    joined.join()
    hccl("HcclCommInitRootInfo", 1, ctypes.byref(info), 0, ctypes.byref(comm))
    other = ctypes.c_void_p()
    for size, message in ((1, "Rank 0 has joined this communicator before"), (2, "nRanks is 2 here, and 1")):
        with pytest.raises(HcclError, match=message) as caught:
            hccl("HcclCommInitRootInfo", size, ctypes.byref(info), 0, ctypes.byref(other))
        assert caught.value.code == PARAMETER
    hccl("HcclCommDestroy", comm)


def test_a_thread_without_device_takes_nobodys_place() -> None:
    """In a process of its own: torch_npu, where it has been here, has told the library a default device."""
    result = ascendcl.python(
        """
import ctypes
from ascendcl import acl
from hccl import HcclError, hccl, root_info
info, comm = root_info(), ctypes.c_void_p()
try:
    hccl("HcclCommInitRootInfo", 1, ctypes.byref(info), 0, ctypes.byref(comm))
except HcclError as error:
    print(error.message)
acl("aclrtSetDevice", 0)
hccl("HcclCommInitRootInfo", 1, ctypes.byref(info), 0, ctypes.byref(comm))
hccl("HcclCommDestroy", comm)
print("joined")
"""
    )
    refused, joined = result.stdout.splitlines()
    assert "has not chosen a device" in refused
    assert joined == "joined", result.stderr


def test_a_root_info_of_somebody_else_is_refused() -> None:
    info, comm = type(root_info())(), ctypes.c_void_p()
    with pytest.raises(HcclError, match="not one that HcclGetRootInfo of the virtual NPU has made"):
        hccl("HcclCommInitRootInfo", 1, ctypes.byref(info), 0, ctypes.byref(comm))


@pytest.mark.parametrize("value", ["soon", "-1"])
def test_a_time_out_that_is_none_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HCCL_EXEC_TIMEOUT", value)
    info, comm = root_info(), ctypes.c_void_p()
    with pytest.raises(HcclError, match=f"HCCL_EXEC_TIMEOUT={value} is not a number of seconds"):
        hccl("HcclCommInitRootInfo", 1, ctypes.byref(info), 0, ctypes.byref(comm))
