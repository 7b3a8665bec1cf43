"""Rank tables: what is one, what is said of a file that is none, and who may take part where its ranks meet."""

from __future__ import annotations

import copy
import ctypes
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ascendcl import acl
from hccl import FLOAT32, PARAMETER, SUM, UNSUPPORTED, HcclError, Rank, hccl, own_sockets, results
from waiting import Value, until

pytestmark = [pytest.mark.device, pytest.mark.usefixtures("npu")]
RANKS = 3
NOBODY = 65534
TABLE: dict[str, Any] = {
    "version": "1.0",
    "server_count": "1",
    "server_list": [
        {
            "server_id": "127.0.0.1",
            "device": [{"device_id": str(i), "device_ip": "10.0.0.1", "rank_id": str(2 - i)} for i in range(RANKS)],
        }
    ],
    "status": "completed",
}


def written(folder: Path, table: Any) -> bytes:
    path = folder / "ranks.json"
    path.write_text(table if isinstance(table, str) else json.dumps(table))
    return os.fsencode(path)


def join(path: bytes, number: int) -> ctypes.c_void_p:
    comm = ctypes.c_void_p()
    hccl("HcclCommInitClusterInfo", path, number, ctypes.byref(comm))
    return comm


def meeting(path: bytes) -> Callable[[Rank], float]:
    """Joins by the table, and gives the sum over its ranks of their numbers plus 1."""

    def body(rank: Rank) -> float:
        time.sleep(0.1 * (2 - rank.number) / 2)  # most often rank 0 comes last
        comm = join(path, rank.number)
        try:
            at = rank.put([rank.number + 1.0])
            hccl("HcclAllReduce", at, at, 1, FLOAT32, SUM, comm, rank.stream)
            return float(rank.get(at, 1)[0])
        finally:
            hccl("HcclCommDestroy", comm)

    return body


def changed(change: Callable[[Any, Any], object]) -> Any:
    """The table after `change(table, devices)`."""
    table = copy.deepcopy(TABLE)
    change(table, table["server_list"][0]["device"])
    return table


LEAST = changed(lambda table, devices: [table.pop(name) for name in ("version", "server_count", "status")])


@pytest.mark.parametrize("table", [TABLE, LEAST], ids=["whole", "least"])
def test_ranks_meet_by_a_rank_table(tmp_path: Path, table: Any) -> None:
    assert results(RANKS, meeting(written(tmp_path, table))) == [6, 6, 6]


FIRST = "server_list[0].device[0]"
REFUSED: dict[str, tuple[Any, str]] = {
    "no JSON": ("{", "cannot be read: line 1 is no JSON: a name in double quotes was expected"),
    "words": ('"rank_id" "rank_id"', "cannot be read: line 1 is no JSON: the end was expected"),
    "a list": ([TABLE], "has no object at its top"),
    "of servers none": ({"version": "1.0"}, "has no server_list"),
    "servers that are none": ({"server_list": "rank_id"}, "has a server_list that is no list of at least one"),
    "no servers": ({"server_list": []}, "has a server_list that is no list of at least one"),
    "a server that is none": ({"server_list": [1]}, "has no object at server_list[0]"),
    "a server without a name": ({"server_list": [{}]}, "has no server_list[0].server_id"),
    "count": (changed(lambda t, d: t.update(server_count="2")), "has 2 as server_count and 1 in its server_list"),
    "count that is none": (changed(lambda t, d: t.update(server_count="one")), 'has "one" as server_count'),
    "status": (changed(lambda t, d: t.update(status="initializing")), 'has not the status "completed"'),
    "no devices": (changed(lambda t, d: d.clear()), "has a server_list[0].device that is no list"),
    "device": (changed(lambda t, d: d.append("3")), "has no object at server_list[0].device[3]"),
    "no rank": (changed(lambda t, d: d[0].pop("rank_id")), f"has no {FIRST}.rank_id"),
    "rank as a number": (changed(lambda t, d: d[0].update(rank_id=2)), f"has a {FIRST}.rank_id that is no string"),
    "negative": (changed(lambda t, d: d[0].update(rank_id="-1")), f'has "-1" as {FIRST}.rank_id, which is no number'),
    "large": (changed(lambda t, d: d[0].update(rank_id="4294967296")), f'has "4294967296" as {FIRST}.rank_id, which'),
    "beyond": (changed(lambda t, d: d[0].update(rank_id="3")), f"has 3 as {FIRST}.rank_id; there are 3"),
    "twice": (changed(lambda t, d: d[0].update(rank_id="0")), "has 0 as rank_id twice"),
    "no device id": (changed(lambda t, d: d[0].pop("device_id")), f"has no {FIRST}.device_id"),
    "one device for two": (changed(lambda t, d: d[0].update(device_id="1")), "has 1 as device_id twice"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_rank_table_is_told_by_file_and_field(name: str, tmp_path: Path) -> None:
    table, says = REFUSED[name]
    path = written(tmp_path, table)
    with pytest.raises(HcclError) as caught:
        join(path, 0)
    assert caught.value.code == PARAMETER
    assert f"The rank table {path.decode()} {says}" in caught.value.message


@pytest.mark.parametrize("path", ["none.json", "."])
def test_a_rank_table_that_is_no_file_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(HcclError, match=r"The rank table .* cannot be read\."):
        join(os.fsencode(tmp_path / path), 0)


def test_a_table_of_several_servers_is_refused(tmp_path: Path) -> None:
    two = changed(lambda table, _: table.update(server_list=2 * table["server_list"], server_count="2"))
    with pytest.raises(HcclError, match="names several servers") as caught:
        join(written(tmp_path, two), 0)
    assert caught.value.code == UNSUPPORTED


def names() -> set[str]:
    """The abstract sockets of this process at which ranks meet now, without the @ in front."""
    own = own_sockets()
    rows = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    return {row[7][1:] for row in rows if len(row) > 7 and row[7].startswith("@vnpu-hccl-") and row[6] in own}


class FirstRank(threading.Thread):
    """Rank 0 of a table, which waits for the others; `refused` is the error that it gets."""

    def __init__(self, path: bytes) -> None:
        super().__init__(daemon=True)
        self.path = path
        self.refused: HcclError | None = None
        self.start()

    def run(self) -> None:
        from ascendcl import acl

        acl("aclrtSetDevice", 0)
        try:
            hccl("HcclCommDestroy", join(self.path, 0))
        except HcclError as error:
            self.refused = error

    def until(self, condition: Callable[[], Value]) -> Value:
        """The first true value of the condition, while this rank lives."""

        def asked() -> Value:
            assert self.is_alive(), self.refused
            return condition()

        return until(asked, 0.005)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[bytes, str]:
    """A table, and the name of the socket at which its ranks meet: rank 0 shows it until the others have come."""
    monkeypatch.setenv("HCCL_CONNECT_TIMEOUT", "100000")
    path = written(tmp_path, TABLE)
    before = names()
    first = FirstRank(path)
    new = first.until(lambda: names() - before)
    others_join(path)
    first.join()
    assert first.refused is None and names() == before
    return path, new.pop()


def test_a_rank_0_that_gives_up_leaves_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HCCL_CONNECT_TIMEOUT", "1")
    before = names()
    with pytest.raises(HcclError, match="missing: 1 2"):
        join(written(tmp_path, TABLE), 0)
    assert names() == before


def others_join(path: bytes) -> None:
    """Ranks 1 and 2 of the table come, on the devices of these numbers, and leave when both are there."""

    def body(rank: Rank) -> ctypes.c_void_p:
        acl("aclrtSetDevice", rank.number + 1)
        return join(path, rank.number + 1)

    comms = results(2, body)
    for comm in comms:
        hccl("HcclCommDestroy", comm)


SQUATTER = """
import os, socket, sys
if len(sys.argv) > 2:
    os.setuid(int(sys.argv[2]))
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as taken:
    taken.bind(b"\\0" + sys.argv[1].encode())
    taken.listen()
    print("taken", flush=True)
    sys.stdin.read()
"""


@contextmanager
def squatter(name: str, *user: int) -> Iterator[int]:
    """Another process, of another user where that is given, that has the name; its number."""
    command = [sys.executable, "-S", "-c", SQUATTER, name, *map(str, user)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == b"taken\n"
        yield process.pid
        process.stdin.close()


needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can start a process of another user")


@needs_root
@pytest.mark.parametrize("number", [0, 1])
def test_another_user_who_has_taken_the_name_is_told(place: tuple[bytes, str], number: int) -> None:
    path, name = place
    with squatter(name, NOBODY) as process, pytest.raises(HcclError) as caught:
        join(path, number)
    assert f"the abstract socket @{name}, which process {process} of user " in caught.value.message
    assert f"({NOBODY}) has taken" in caught.value.message


def test_a_second_rank_0_is_told_who_is_the_first(place: tuple[bytes, str]) -> None:
    path, name = place
    with squatter(name) as process, pytest.raises(HcclError) as caught:
        join(path, 0)
    assert f"running already on this machine: process {process}." in caught.value.message


CONNECTS = """
import os, socket, sys
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as one:
    if len(sys.argv) > 2:
        os.setuid(int(sys.argv[2]))
    one.connect(b"\\0" + sys.argv[1].encode())
    print(len(one.recv(100)))
"""


@pytest.mark.parametrize("other", [pytest.param(True, marks=needs_root), False], ids=["another's", "own"])
def test_who_asks_is_told_where_to_meet_if_it_is_ours(place: tuple[bytes, str], other: bool) -> None:
    path, name = place
    first = FirstRank(path)
    first.until(lambda: name in names())
    words = [sys.executable, "-S", "-c", CONNECTS, name, *([str(NOBODY)] if other else [])]
    told = int(subprocess.run(words, capture_output=True, check=True).stdout)
    silent = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    silent.connect(b"\0" + name.encode())  # says and hears nothing, and keeps nobody waiting
    others_join(path)
    first.join()
    silent.close()
    assert first.refused is None
    assert told == (0 if other else 24)
