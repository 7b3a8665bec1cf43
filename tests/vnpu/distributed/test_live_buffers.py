"""Buffers of collectives: each has to lie in one live allocation of the communicator's device."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import ascendcl
import pytest
from ascendcl import acl, malloc
from hccl import FLOAT32, PARAMETER, SEND, SUM, HcclError, Item, Rank, counts, in_ranks

pytestmark = pytest.mark.device
MOST = (1 << 64) - 1
MATRIX = counts([1 << 62])
CALLS: dict[str, Callable[[int, int, int], tuple[Any, ...]]] = {
    "HcclAllReduce": lambda bad, good, n: (bad, good, n, FLOAT32, SUM),
    "HcclReduce": lambda bad, good, n: (bad, good, n, FLOAT32, SUM, 0),
    "HcclBroadcast": lambda bad, _, n: (bad, n, FLOAT32, 0),
    "HcclScatter": lambda bad, good, n: (bad, good, n, FLOAT32, 0),
    "HcclAllGather": lambda bad, good, n: (good, bad, n, FLOAT32),
    "HcclReduceScatter": lambda bad, good, n: (bad, good, n, FLOAT32, SUM),
    "HcclAlltoAll": lambda bad, good, n: (good, n, FLOAT32, bad, n, FLOAT32),
    "HcclSend": lambda bad, _, n: (bad, n, FLOAT32, 0),
}


def alone(body: Callable[[Rank], Any]) -> Any:
    """What `body` returns in a group of one rank, on device 0."""
    outcome = in_ranks(1, body)[0]
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


def refusal(rank: Rank, name: str, *arguments: Any) -> str:
    with pytest.raises(HcclError) as caught:
        rank.call(name, *arguments)
    assert caught.value.code == PARAMETER
    return caught.value.message


@pytest.mark.parametrize("name", CALLS)
def test_what_runs_past_its_allocation_is_named(name: str) -> None:
    def body(rank: Rank) -> tuple[int, str]:
        bad, good = rank.room(16), rank.room(64)
        return bad, refusal(rank, name, *CALLS[name](bad, good, 17))

    address, message = alone(body)
    assert f"Buf ({address:#x}) run 4 bytes past the end" in message or f"buf ({address:#x}) run 4" in message
    assert f"the allocation of 64 bytes at {address:#x} on virtual NPU 0" in message


@pytest.mark.parametrize("name", CALLS)
def test_freed_memory_is_named(name: str) -> None:
    def body(rank: Rank) -> tuple[int, str]:
        good, bad = rank.room(64), malloc(64)
        acl("aclrtFree", bad)
        return bad, refusal(rank, name, *CALLS[name](bad, good, 16))

    address, message = alone(body)
    assert f"the allocation of 64 bytes at {address:#x} on virtual NPU 0 has been freed" in message


@pytest.mark.parametrize("name", CALLS)
def test_memory_of_another_device_is_named(name: str) -> None:
    def body(rank: Rank) -> tuple[int, str]:
        good = rank.room(64)
        acl("aclrtSetDevice", 1)
        with ascendcl.device_memory(64) as bad:
            message = refusal(rank, name, *CALLS[name](bad, good, 16))
        acl("aclrtSetDevice", 0)
        return bad, message

    address, message = alone(body)
    assert f"the allocation of 64 bytes at {address:#x} on virtual NPU 1, and the stream is one of virtual NPU 0" in (
        message
    )


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("count", [1 << 62, (1 << 62) + 1, MOST])
def test_counts_that_wrap_around(name: str, count: int) -> None:
    def body(rank: Rank) -> str:
        return refusal(rank, name, *CALLS[name](rank.room(16), rank.room(16), count))

    message = alone(body)
    assert "more than an address can count" in message or "past the end" in message


@pytest.mark.parametrize("offset", [1 << 61, (1 << 62) + 1, MOST])
def test_displacements_that_wrap_around(offset: int) -> None:
    def body(rank: Rank) -> list[str]:
        at, one, far = rank.room(16), counts([1]), counts([offset])
        return [
            refusal(rank, "HcclAllGatherV", at, 1, at, one, far, FLOAT32),
            refusal(rank, "HcclReduceScatterV", at, one, far, at, 1, FLOAT32, SUM),
            refusal(rank, "HcclAlltoAllV", at, one, far, FLOAT32, at, one, counts([0]), FLOAT32),
            refusal(rank, "HcclAlltoAllVC", at, MATRIX, FLOAT32, at, FLOAT32),
        ]

    for message in alone(body):
        assert "more than an address can count" in message or "is not device memory" in message


def test_a_batch_names_the_buffer() -> None:
    def body(rank: Rank) -> str:
        items = (Item * 1)(Item(SEND, rank.room(16), 17, FLOAT32, 0))
        return refusal(rank, "HcclBatchSendRecv", ctypes.byref(items), 1)

    assert "run 4 bytes past the end" in alone(body)


def test_buffers_that_fill_their_allocation() -> None:
    def body(rank: Rank) -> list[list[float]]:
        source, target = rank.put([1.0, 2.0, 3.0, 4.0]), rank.room(16)
        seen = []
        for name in ("HcclAllReduce", "HcclAllGather", "HcclReduceScatter", "HcclAlltoAll", "HcclScatter"):
            acl("aclrtMemset", target, 64, 0, 64)
            # From within the one, to the end of the other.
            bad, good = (
                (target + 52, source + 4) if name in ("HcclAllGather", "HcclAlltoAll") else (source + 4, target + 52)
            )
            rank.call(name, *CALLS[name](bad, good, 3))
            seen.append(rank.get(target + 52, 3).tolist())
        return seen

    assert alone(body) == [[2.0, 3.0, 4.0]] * 5
