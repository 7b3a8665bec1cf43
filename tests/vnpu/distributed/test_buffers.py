"""What HCCL keeps of a device's memory: two buffers of HCCL_BUFFSIZE megabytes and one more megabyte for each
communicator, from its first operation to its end. Each program has a process and a machine of its own, with more host
memory than it will need: it is the device that has to be full."""

from __future__ import annotations

from pathlib import Path

import pytest
from ascendcl import python

pytestmark = pytest.mark.device
HEAD = """
import ctypes
import ascendcl
from ascendcl import acl, code
from hccl import *
from waiting import until

class Config(ctypes.Structure):
    "HcclCommConfig, as HcclCommConfigInit leaves it."
    _fields_ = (("info", ctypes.c_uint64 * 3), ("buffer", ctypes.c_uint32), ("_a", ctypes.c_uint32),
                ("name", ctypes.c_char * 128), ("_b", ctypes.c_char * 128), ("_c", ctypes.c_uint32 * 4),
                ("_d", ctypes.c_uint64), ("_e", ctypes.c_uint8), ("timeout", ctypes.c_int32),
                ("algorithm", ctypes.c_char * 1600), ("_f", ctypes.c_char * (50 + 128)), ("shared", ctypes.c_char * 128), ("_g", ctypes.c_uint32),
                ("_h", ctypes.c_uint64))

MB = 1 << 20
def free():
    acl("aclrtSynchronizeDevice")
    left, total = ctypes.c_size_t(), ctypes.c_size_t()
    acl("aclrtGetMemInfo", ascendcl.HBM, ctypes.byref(left), ctypes.byref(total))
    return left.value

def taken(since):
    return (since - free()) // MB

def soon(since, expected):
    "What is queued keeps its communicator for a moment longer."
    until(lambda: taken(since) == expected)
    return expected

def reduce(rank, comm=None):
    hccl("HcclAllReduce", rank.at, rank.at, 1, FLOAT32, SUM, comm or rank.comm, rank.stream)
    rank.wait()

def start(rank):
    rank.at = rank.put([1.0])
    return free()
"""


def run(body: str, **variables: str) -> str:
    """What a program says that ends with `body`, in ranks 0 and 1 of a communicator; `print` the results."""
    here = str(Path(__file__).parent)
    result = python(
        f"import sys; sys.path.insert(0, {here!r})\n{HEAD}\n{body}",
        **{"VNPU_HOST_LIMIT": "1TiB", "HCCL_EXEC_TIMEOUT": "300"} | variables,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


@pytest.mark.parametrize(
    ("size", "expected"), [("", 401), ("200", 401), ("50", 101), ("1", 3)], ids=lambda value: str(value)
)
def test_from_the_first_operation_to_the_end(size: str, expected: int) -> None:
    body = """
def body(rank):
    before = start(rank)
    found = [taken(before)]
    for _ in range(2):
        reduce(rank)
        found.append(taken(before))
    rank.destroy()
    return [*found, soon(before, 0)]
print(results(2, body))
"""
    assert run(body, HCCL_BUFFSIZE=size) == str([[0, expected, expected, 0]] * 2)


def test_one_rank_needs_none() -> None:
    body = """
def body(rank):
    before = start(rank)
    reduce(rank)
    return taken(before)
print(results(1, body))
"""
    assert run(body) == "[0]"


def test_a_message_needs_them_too() -> None:
    body = """
def body(rank):
    before = start(rank)
    rank.call("HcclRecv" if rank.number else "HcclSend", rank.at, 1, FLOAT32, 1 - rank.number)
    rank.wait()
    return taken(before)
print(results(2, body))
"""
    assert run(body) == "[401, 401]"


def test_a_communicator_has_its_own_size_and_shares_by_name() -> None:
    body = """
def body(rank):
    before, comms, found = start(rank), [], []
    for part, (size, shared) in enumerate([(10, b""), (0xFFFFFFFF, b""), (20, b"one"), (30, b"one"), (20, b"other")]):
        config = Config(buffer=size, shared=shared)
        comm, parent = ctypes.c_void_p(), ctypes.c_void_p(rank.comm)
        ids = (ctypes.c_uint32 * 2)(0, 1)
        hccl("HcclCreateSubCommConfig", ctypes.byref(parent), 2, ids, part, rank.number, ctypes.byref(config),
             ctypes.byref(comm))
        comms.append(comm)
        reduce(rank, comm)
        found.append(taken(before))
    for comm, left in zip(comms, (163, 82, 82, 41, 0)):
        hccl("HcclCommDestroy", comm)
        found.append(soon(before, left))
    return found
print(results(2, body)[0])
"""
    alone, env, first = 21, 81, 41  # 2 x 10 + 1, 2 x 40 + 1, 2 x 20 + 1
    taken = [alone, alone + env, alone + env + first, alone + env + first, alone + env + 2 * first]
    assert run(body, HCCL_BUFFSIZE="40") == str([*taken, 163, 82, 82, 41, 0])


def test_what_fits_without_them_does_not_fit_with_them() -> None:
    """The negative control first: the same block, before there are any, and after they have gone."""
    body = """
def body(rank):
    before = start(rank)
    size = before - 300 * MB
    def fits():
        at = ctypes.c_void_p()
        status = code("aclrtMalloc", ctypes.byref(at), size, 0)
        if status == 0:
            acl("aclrtFree", at)
        return status
    found = [fits()]
    reduce(rank)
    found.append(fits())
    rank.destroy()
    soon(before, 0)
    return [*found, fits()]
print(results(2, body))
"""
    assert run(body) == str([[0, 207001, 0]] * 2)


def test_no_room_for_them() -> None:
    """HCCL_E_OOM, with the words of HCCL, of the runtime and ours; EL0004 makes torch_npu say OutOfMemoryError."""
    body = """
def body(rank):
    before = start(rank)
    at = ascendcl.malloc(before - 300 * MB)
    try:
        reduce(rank)
    except HcclError as error:
        told = f"{error.code} {error.message}"
    acl("aclrtFree", at)
    reduce(rank)  # there is room now
    return f"{taken(before)} {told}"
print(*results(2, body), sep="\\n")
"""
    told = run(body).splitlines()
    assert len(told) == 2 and all(line.startswith("401 24 ") for line in told)
    for words in (
        "EL0004",
        "Failed to allocate memory.",
        "EI0011",
        f"Failed to allocate {401 << 20} bytes of NPU memory.",
        "HCCL_BUFFSIZE",
    ):
        assert all(words in line for line in told)


def test_they_take_no_host_memory() -> None:
    body = """
def body(rank):
    before = start(rank)
    reduce(rank)
    return ascendcl.malloc(16 * MB) != 0
print(results(2, body))
print(int(open("/proc/self/statm").read().split()[1]) * 4096 < 1000 * MB)
"""
    assert run(body, VNPU_HOST_LIMIT="64MiB", HCCL_BUFFSIZE="4000") == "[True, True]\nTrue"


@pytest.mark.parametrize("size", ["0", "-1", "2.5", "200MB"])
def test_no_size(size: str) -> None:
    body = """
try:
    results(1, lambda rank: None)
except HcclError as error:
    print(error.code, error.message)
"""
    told = run(body, HCCL_BUFFSIZE=size)
    assert told.startswith("1 ")
    assert f"HCCL_BUFFSIZE={size} is not a number of megabytes from 1 on" in told


def test_no_size_of_its_own() -> None:
    body = """
def body(rank):
    config, comm, parent = Config(buffer=0), ctypes.c_void_p(), ctypes.c_void_p(rank.comm)
    arguments = 1, (ctypes.c_uint32 * 1)(0), 1, 0, ctypes.byref(config), ctypes.byref(comm)
    hccl("HcclCreateSubCommConfig", ctypes.byref(parent), *arguments)
try:
    results(1, body)
except HcclError as error:
    print(error.code, error.message)
"""
    assert "hcclBufferSize is 0; it is a number of megabytes from 1 on" in run(body)


@pytest.mark.parametrize(
    ("algorithm", "said"),
    [
        ("level0:NA;level1:ring", "made"),
        ("allreduce=level0:NA;level1:H-D_R/others=level1:NHR", "made"),
        ("a" * 1599, 'hcclAlgo is "' + "a" * 60 + '..."'),
        *((text, f'hcclAlgo is "{text}"; it names') for text in ("level0", "level0:NA;", "=level0:NA", "levelx:NA")),
    ],
)
def test_algorithms_are_named_by_level(algorithm: str, said: str) -> None:
    body = f"""
def body(rank):
    config, comm, parent = Config(algorithm={algorithm.encode()!r}), ctypes.c_void_p(), ctypes.c_void_p(rank.comm)
    config.buffer = 200
    arguments = 1, (ctypes.c_uint32 * 1)(0), 1, 0, ctypes.byref(config), ctypes.byref(comm)
    hccl("HcclCreateSubCommConfig", ctypes.byref(parent), *arguments)
try:
    results(1, body)
    print("made")
except HcclError as error:
    print(error.code, error.message)
"""
    assert said in run(body)
