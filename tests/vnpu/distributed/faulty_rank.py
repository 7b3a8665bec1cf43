"""One rank of test_faults: a process that goes through a collective on each of several communicators, meets a fault in
the second round if it is the victim, and tells on stdout, as JSON, what the others are told of it.

    python faulty_rank.py RANK SIZE FAULT          # root infos come as hex on stdin, one line for each collective
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import ascendcl
from ascendcl import acl
from hccl import FLOAT32, SUM, TYPES, HcclError, Rank, RootInfo, hccl, rank_of, root_info

VICTIM = 1
COUNT = 300_000  # more than a ring holds, so that ranks are in the middle of it when one is missing
Call = Callable[[Rank, int, int, int], None]  # rank, address, count, type

COLLECTIVES: dict[str, Call] = {
    "HcclAllReduce": lambda rank, at, count, kind: rank.call("HcclAllReduce", at, at, count, kind, SUM),
    "HcclBroadcast": lambda rank, at, count, kind: rank.call("HcclBroadcast", at, count, kind, 0),
    "HcclAllGather": lambda rank, at, count, kind: rank.call("HcclAllGather", at, at, count, kind),
    "HcclReduceScatter": lambda rank, at, count, kind: rank.call("HcclReduceScatter", at, at, count, kind, SUM),
    "HcclAlltoAll": lambda rank, at, count, kind: rank.call("HcclAlltoAll", at, count, kind, at, count, kind),
    "HcclBarrier": lambda rank, _at, _count, _kind: rank.call("HcclBarrier"),
}


def call_wrongly(name: str, rank: Rank, at: int) -> None:
    """The collective with another shape and type; a barrier, which has none, as another collective."""
    if name == "HcclBarrier":
        COLLECTIVES["HcclAllReduce"](rank, at, COUNT, FLOAT32)
    else:
        COLLECTIVES[name](rank, at, COUNT // 2, TYPES["int32"][0])


def told(rank: Rank) -> dict[str, Any]:
    """What the stream and the communicator say of the collective."""
    error, code = "", ctypes.c_int()
    try:
        rank.wait()
    except ascendcl.AclError as caught:
        error = caught.message
    hccl("HcclGetCommAsyncError", rank.comm, ctypes.byref(code))
    return {"error": error, "code": code.value, "watchdog": ascendcl.message()}


def main(number: int, size: int, fault: str) -> None:
    for _ in COLLECTIVES if number == 0 else ():
        print(bytes(root_info()).hex(), flush=True)
    infos = [RootInfo.from_buffer_copy(bytes.fromhex(line)) for line in sys.stdin.readline().split()]
    with ExitStack() as stack:
        ranks = [stack.enter_context(rank_of(info, number, size)) for info in infos]
        places = [rank.room(COUNT * size) for rank in ranks]
        for call, rank, at in zip(COLLECTIVES.values(), ranks, places, strict=True):
            call(rank, at, COUNT, FLOAT32)
        acl("aclrtSynchronizeDevice")
        if number == VICTIM:
            if fault == "exception":
                raise RuntimeError("the victim's own error")
            if fault in ("SIGKILL", "SIGSTOP"):
                os.kill(os.getpid(), getattr(signal, fault))
            if fault == "missing":
                sys.stdin.readline()  # alive until all others have spoken
                return
        for (name, call), rank, at in zip(COLLECTIVES.items(), ranks, places, strict=True):
            if number == VICTIM:
                call_wrongly(name, rank, at)
            else:
                call(rank, at, COUNT, FLOAT32)
        answers = {name: told(rank) for name, rank in zip(COLLECTIVES, ranks, strict=True)}
        print(json.dumps(answers), flush=True)
        later = []
        for rank, at in zip(ranks, places, strict=True):
            try:
                COLLECTIVES["HcclAllReduce"](rank, at, COUNT, FLOAT32)
                rank.wait()
            except (ascendcl.AclError, HcclError) as caught:
                later.append(caught.message)
        print(json.dumps(later), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
