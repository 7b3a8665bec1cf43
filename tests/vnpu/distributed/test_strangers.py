"""Ranks of several machines that meet while others connect to their ports: who does not know the id of the root info is
dropped and keeps nobody waiting; a rank that says something wrong is told."""

from __future__ import annotations

import ctypes
import os
import resource
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import ascendcl
import pytest
from hccl import FLOAT32, PARAMETER, SUM, HcclError, RootInfo, listening_ports, rank_of, root_info
from waiting import until

from torchport import vnpu

pytestmark = [pytest.mark.device, pytest.mark.usefixtures("npu")]
LIMIT = 100_000  # HCCL_CONNECT_TIMEOUT, which no test waits for: a rank that is kept waiting never comes
ROOT = struct.Struct("<8s 2i 16s 4s H")  # magic; process, file and id of the segment; address and port
INTRODUCTION = struct.Struct("<16s I I 4s I q 64s i i")  # id, ranks, rank, address, port, process, host, device, group
ANSWER = struct.Struct("<I 1024s")
FRAME = struct.Struct("<I I")  # leaving, bytes


@pytest.fixture(autouse=True)
def two_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "1",
        "HCCL_IF_IP": "127.0.0.1",
        "HCCL_CONNECT_TIMEOUT": str(LIMIT),
    }.items():
        monkeypatch.setenv(name, value)


def parts(info: RootInfo) -> tuple[bytes, int]:
    """The id in a root info, and the root's port."""
    _, _, _, identity, _, port = ROOT.unpack_from(bytes(info))
    return identity, port


def introduction(identity: bytes, rank: int = 1, ranks: int = 2, port: int = 1) -> bytes:
    return INTRODUCTION.pack(
        identity, ranks, rank, socket.inet_aton("127.0.0.1"), port, 4321, b"elsewhere" + 55 * b"!", 1, 1
    )


def connect(port: int, says: bytes = b"") -> socket.socket:
    made = socket.create_connection(("127.0.0.1", port))
    made.sendall(says)
    return made


def received(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count and (more := connection.recv(count - len(data))):
        data += more
    return data


def answer(connection: socket.socket) -> tuple[bool, str]:
    admitted, problem = ANSWER.unpack(received(connection, ANSWER.size))
    return admitted == 1, problem.rstrip(b"\0").decode()


class Joining(threading.Thread):
    """A rank that joins and adds up with the others; `outcome` is what it got, or its error."""

    def __init__(self, info: RootInfo, number: int) -> None:
        super().__init__(daemon=True)
        self._info, self._number = info, number
        self.outcome: Any = None
        self.start()

    def run(self) -> None:
        try:
            with rank_of(self._info, self._number, 2) as rank:
                at = rank.put([self._number + 1.0])
                rank.call("HcclAllReduce", at, at, 1, FLOAT32, SUM)
                self.outcome = rank.get(at, 1).tolist()
        except (HcclError, ascendcl.AclError) as error:
            self.outcome = error

    def result(self) -> Any:
        self.join()
        return self.outcome


def port_of_first_rank(before: set[int]) -> int:
    """Where rank 0 listens for rank 1, once it does."""
    return until(lambda: listening_ports() - before, 0.002).pop()


def both_join(root: Callable[[int, bytes], object], peer: Callable[[int, bytes], object]) -> None:
    """Two ranks that meet; `root` and `peer` get the two ports and the id before rank 1 comes."""
    info = root_info()
    identity, port = parts(info)
    before = listening_ports()
    root(port, identity)
    first = Joining(info, 0)
    peer(port_of_first_rank(before), identity)
    second = Joining(info, 1)
    assert (first.result(), second.result()) == ([3.0], [3.0])


STRANGERS: dict[str, Callable[[bytes], bytes]] = {
    "silent": lambda identity: b"",
    "of another job": lambda identity: introduction(bytes(reversed(identity))),
    "browser": lambda identity: b"GET / HTTP/1.0\r\n\r\n",
    "noise": lambda identity: bytes(range(256)) * 8,
    "half the id": lambda identity: identity[:9],
    "half an introduction": lambda identity: introduction(identity)[:50],
}


@pytest.mark.parametrize("stays", [True, False], ids=["stays", "leaves"])
@pytest.mark.parametrize("place", ["root", "peer"])
@pytest.mark.parametrize("kind", STRANGERS)
def test_strangers_keep_nobody_waiting(kind: str, place: str, stays: bool) -> None:
    made: list[socket.socket] = []

    def come(port: int, identity: bytes) -> None:
        for _ in range(6):
            made.append(connect(port, STRANGERS[kind](identity)))
            if not stays:
                made.pop().close()

    def nobody(port: int, identity: bytes) -> None:
        pass

    try:
        both_join(come if place == "root" else nobody, come if place == "peer" else nobody)
    finally:
        for one in made:
            one.close()


CROWD = """
import resource, socket, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
made = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(int(sys.argv[2]))]
print("there", flush=True)
sys.stdin.read()
"""


@contextmanager
def crowd(port: int, size: int) -> Iterator[None]:
    """That many silent connections of another process."""
    with subprocess.Popen(
        [sys.executable, "-c", CROWD, str(port), str(size)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == b"there\n"
        yield
        process.stdin.close()


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_of_a_crowd_only_some_are_kept() -> None:
    info = root_info()
    port = parts(info)[1]
    before = listening_ports()
    first = Joining(info, 0)
    peer = port_of_first_rank(before)
    files = open_files()
    with crowd(port, 900), crowd(peer, 900):
        stranger = connect(port)
        assert received(connect(port, bytes(16)), 1) == b""  # all before it were let in
        most = open_files() - files
        second = Joining(info, 1)
        assert (first.result(), second.result()) == ([3.0], [3.0])
        stranger.close()
    assert most < 700


RANK_1 = """
import sys
from hccl import FLOAT32, SUM, RootInfo, rank_of
with rank_of(RootInfo.from_buffer_copy(bytes.fromhex(sys.stdin.readline())), 1, 2) as rank:
    at = rank.put([2.0])
    rank.call("HcclAllReduce", at, at, 1, FLOAT32, SUM)
    print(rank.get(at, 1).tolist())
"""


def test_a_crowd_does_not_use_up_all_descriptors() -> None:
    """Of rank 0's process. Rank 1 is another process, as on another machine, and has descriptors of its own."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    info = root_info()
    before = listening_ports()
    first = Joining(info, 0)
    peer = port_of_first_rank(before)
    environ = os.environ | vnpu.environment() | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with (
        subprocess.Popen(
            [sys.executable, "-c", RANK_1], env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as second,
        crowd(peer, 150),
    ):
        resource.setrlimit(resource.RLIMIT_NOFILE, (open_files() + 40, limits[1]))
        try:
            said, _ = second.communicate(bytes(info).hex() + "\n")
            assert (said, second.returncode) == ("[3.0]\n", 0)
            assert first.result() == [3.0]
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_rank_that_is_not_waited_for_is_told() -> None:
    info = root_info()
    identity, _ = parts(info)
    before = listening_ports()
    first = Joining(info, 0)
    with connect(port_of_first_rank(before), introduction(identity, rank=0)) as connection:
        second = Joining(info, 1)
        assert (first.result(), second.result()) == ([3.0], [3.0])
        says = "rank 0 waits for the ranks from 1 to 1, each once; this is rank 0"
        assert answer(connection) == (False, says)


def test_a_rank_beyond_the_last_is_told_by_the_root() -> None:
    info = root_info()
    identity, port = parts(info)
    with connect(port, introduction(identity, rank=7)) as connection:
        first = Joining(info, 0)
        assert answer(connection) == (False, "rank is 7; there are 2")
        second = Joining(info, 1)
        assert (first.result(), second.result()) == ([3.0], [3.0])


def test_another_number_of_ranks_is_told_to_all() -> None:
    """Also to the root's own rank, which comes after it here."""
    info = root_info()
    identity, port = parts(info)
    with connect(port, introduction(identity, ranks=3)) as connection:
        first = Joining(info, 0)
        assert answer(connection) == (False, "nRanks is 3 on rank 1, and 2 on the root")
    assert "could not join: nRanks is 3 on rank 1" in first.result().message


@pytest.mark.parametrize("length", [5, 0xFFFFFFFF])
def test_of_a_reason_to_leave_so_much_is_kept(length: int) -> None:
    """This test is rank 1."""
    info = root_info()
    identity, port = parts(info)
    first = Joining(info, 0)
    with connect(port, introduction(identity)) as to_root:
        assert answer(to_root) == (True, "")
        table = received(to_root, 2 * INTRODUCTION.size)
    own = INTRODUCTION.unpack_from(table)
    assert (own[0], own[2]) == (identity, 0)
    with connect(own[4], introduction(identity)) as peer:
        assert answer(peer) == (True, "")
        peer.sendall(FRAME.pack(1, length))
        with suppress(ConnectionError):  # what is beyond need not be read
            peer.sendall(b"x" * min(length, 1 << 24))
        message = first.result().message
    assert "x" * min(length, 1000) in message
    assert "x" * (min(length, 1000) + 1) not in message


@contextmanager
def root_of(behaviour: Callable[[socket.socket, bytes], None]) -> Iterator[RootInfo]:
    """A root info whose root is this test: `behaviour` gets the listening socket and the id."""
    identity = os.urandom(16)
    with socket.create_server(("127.0.0.1", 0)) as server:
        info = RootInfo()
        port = server.getsockname()[1]
        head = ROOT.pack(b"vuhcclv1", 0, 0, identity, socket.inet_aton("127.0.0.1"), port)
        ctypes.memmove(ctypes.byref(info), head, len(head))
        thread = threading.Thread(target=behaviour, args=(server, identity), daemon=True)
        thread.start()
        yield info
        thread.join()


def test_who_was_dropped_comes_again() -> None:
    """By the root and by a rank below: both drop the first connection."""
    tries: list[bytes] = []

    def be_rank_0(server: socket.socket, identity: bytes) -> None:
        with socket.create_server(("127.0.0.1", 0)) as peer:
            for place in (server, peer):
                for _ in range(2):
                    connection, _ = place.accept()
                    tries.append(received(connection, INTRODUCTION.size))
                    if len(tries) % 2:
                        connection.close()
                connection.sendall(ANSWER.pack(1, b""))
                if place is server:
                    mine = introduction(identity, rank=0, port=peer.getsockname()[1])
                    connection.sendall(mine + tries[-1])
            connection.sendall(FRAME.pack(1, 4) + b"over")
            connection.recv(1)
            connection.close()

    with root_of(be_rank_0) as info:
        assert "rank 0 has failed before: over" in Joining(info, 1).result().message
    assert len(tries) == 4 and len(set(tries)) == 1


def test_a_root_that_has_ended_is_not_waited_for() -> None:
    def end(server: socket.socket, identity: bytes) -> None:
        server.accept()[0].close()
        server.close()

    with root_of(end) as info:
        joining = Joining(info, 1)
        assert "Connection refused" in joining.result().message


def test_who_answers_nonsense_is_no_root() -> None:
    def answer_nonsense(server: socket.socket, identity: bytes) -> None:
        connection, _ = server.accept()
        with connection:
            received(connection, INTRODUCTION.size)
            connection.sendall(ANSWER.pack(1, b"") + bytes(2 * INTRODUCTION.size))
            connection.recv(1)

    with root_of(answer_nonsense) as info:
        refused = Joining(info, 1).result()
    assert refused.code == PARAMETER and "is not the root of this root info" in refused.message


def test_a_refusal_without_an_end_is_read_to_the_end_of_its_room() -> None:
    def refuse(server: socket.socket, identity: bytes) -> None:
        connection, _ = server.accept()
        with connection:
            received(connection, INTRODUCTION.size)
            connection.sendall(ANSWER.pack(0, b"y" * 1024))
            connection.recv(1)

    with root_of(refuse) as info:
        assert "could not join: " + "y" * 1023 + "." in Joining(info, 1).result().message
