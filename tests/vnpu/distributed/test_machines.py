"""Ranks on several machines: the same collectives over TCP. The machines are this one, several times: WORLD_SIZE and
LOCAL_WORLD_SIZE, which torchrun sets, say that there are others."""

from __future__ import annotations

import ctypes
import signal
from typing import Any

import numpy as np
import pytest
from hccl import (
    FLOAT32,
    RECV,
    SEND,
    SUM,
    TIMEOUT,
    HcclError,
    Item,
    Rank,
    hccl,
    in_ranks,
    listening_ports,
    results,
    root_info,
)
from test_faults import Job
from waiting import until

pytestmark = [pytest.mark.device, pytest.mark.usefixtures("npu")]
COUNT = 300_000  # more than the buffers of a connection


@pytest.fixture(autouse=True)
def several_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "1", "HCCL_IF_IP": "127.0.0.1"}.items():
        monkeypatch.setenv(name, value)


def held(rank: int, count: int = COUNT) -> Any:
    return (np.arange(count) + 3 * rank) % 5 - 2


def same(got: Any, expected: Any) -> None:
    np.testing.assert_array_equal(got, np.asarray(expected, np.float32))


def test_connections_are_used() -> None:
    """A root info of this test holds a port: without one the tests below would be of shared memory."""
    assert b"\x7f\x00\x00\x01" in bytes(root_info())


@pytest.mark.parametrize("count", [1, 1000, COUNT])
def test_all_reduce(count: int) -> None:
    def body(rank: Rank) -> Any:
        at = rank.put(held(rank.number, count))
        for _ in range(3):
            rank.call("HcclAllReduce", at, at, count, FLOAT32, SUM)
        return rank.get(at, count)

    for got in results(4, body):
        same(got, 16 * sum(held(r, count) for r in range(4)))


def test_what_moves_data_and_what_waits() -> None:
    def body(rank: Rank) -> list[Any]:
        wide, narrow = rank.put(np.tile(held(rank.number), 3)), rank.put(held(rank.number))
        gathered, turned, first = rank.room(3 * COUNT), rank.room(3 * COUNT), rank.put(held(rank.number))
        rank.call("HcclAllGather", narrow, gathered, COUNT, FLOAT32)
        rank.call("HcclAlltoAll", wide, COUNT, FLOAT32, turned, COUNT, FLOAT32)
        rank.call("HcclBroadcast", first, COUNT, FLOAT32, 2)
        rank.call("HcclBarrier")
        return [rank.get(gathered, 3 * COUNT), rank.get(turned, 3 * COUNT), rank.get(first, COUNT)]

    for gathered, turned, first in results(3, body):
        same(gathered, np.concatenate([held(r) for r in range(3)]))
        same(turned, np.concatenate([held(r) for r in range(3)]))
        same(first, held(2))


def test_a_batch_of_sends_and_receives() -> None:
    def body(rank: Rank) -> Any:
        here, there = rank.put(held(rank.number)), rank.room(COUNT)
        items = (Item * 2)(
            Item(SEND, here, COUNT, FLOAT32, (rank.number + 1) % 3),
            Item(RECV, there, COUNT, FLOAT32, (rank.number - 1) % 3),
        )
        rank.call("HcclBatchSendRecv", items, 2)
        return rank.get(there, COUNT)

    for number, got in enumerate(results(3, body)):
        same(got, held((number - 1) % 3))


def test_a_mismatch_is_told_on_every_rank() -> None:
    def body(rank: Rank) -> None:
        at = rank.room(COUNT)
        rank.call("HcclBroadcast", at, COUNT if rank.number else 5, FLOAT32, 0)
        rank.wait()

    for outcome in in_ranks(3, body):
        assert "what differs: count" in outcome.message


def test_a_rank_that_leaves_in_the_middle_is_named() -> None:
    def body(rank: Rank) -> None:
        at = rank.room(COUNT)
        if rank.number != 1:
            rank.call("HcclAllReduce", at, at, COUNT, FLOAT32, SUM)
            rank.wait()

    first, _, third = in_ranks(3, body)
    for outcome in (first, third):
        assert "rank 1 (process" in outcome.message
        assert "has left the communicator" in outcome.message


def test_a_rank_that_is_killed_is_named() -> None:
    with Job("SIGKILL") as job:
        for number in (0, 2):
            told = job.answer(number)
            for answer in told.values():
                assert f"rank 1 (process {job.ranks[1].pid}" in answer["error"]
                assert "died: its connection was closed without a word" in answer["error"]
            job.answer(number)
            assert job.ranks[number].wait() == 0
        assert job.ranks[1].wait() == -signal.SIGKILL


def test_ranks_that_do_not_come_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in (1, 10, 100):
        monkeypatch.setenv("HCCL_CONNECT_TIMEOUT", str(limit))
        info, comm = root_info(), ctypes.c_void_p()
        with pytest.raises(HcclError, match="missing: 0") as caught:
            hccl("HcclCommInitRootInfo", 3, ctypes.byref(info), 1, ctypes.byref(comm))
        assert caught.value.code == TIMEOUT
        if "missing: 0 1 2" not in caught.value.message:  # else rank 1 itself came too late
            break
    assert "missing: 0 2" in caught.value.message


def test_no_port_stays_open() -> None:
    before = listening_ports()
    results(2, lambda rank: rank.call("HcclBarrier"))
    until(lambda: listening_ports() == before)


@pytest.mark.parametrize("address", ["nowhere", "256.0.0.1"])
def test_an_address_that_is_none_is_refused(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HCCL_IF_IP", address)
    with pytest.raises(HcclError, match=f"HCCL_IF_IP={address} is not an IPv4 address"):
        root_info()
