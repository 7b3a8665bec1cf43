"""aclrtSetExceptionInfoCallback: who asks for it is told of every task that fails, as it fails."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import ascendcl
import pytest

pytestmark = pytest.mark.device

PROGRAM = """
import ctypes
import ascendcl
from ascendcl import answer, code, lib

ascendcl.acl("aclInit", 0)
ascendcl.acl("aclrtSetDevice", 1)
stream = answer("aclrtCreateStream")
memory = answer("aclrtMalloc", 64, 0)
told = []
Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
NAMES = ("Device", "Stream", "Thread", "Task")

@Callback
def callback(info):
    asked = [getattr(lib, f"aclrtGet{name}IdFromExceptionInfo") for name in NAMES]
    lib.aclrtGetErrorCodeFromExceptionInfo.restype = ctypes.c_uint32
    told.append([f(ctypes.c_void_p(info)) for f in asked] +
                [lib.aclrtGetErrorCodeFromExceptionInfo(ctypes.c_void_p(info))])
"""


def said(program: str, **variables: str) -> list[str]:
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM + program],
        capture_output=True,
        text=True,
        check=False,
        cwd=ascendcl.Path(__file__).parent,
        env={**ascendcl.os.environ, **variables},
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


FAILS = """
code("aclrtMemsetAsync", memory, 64, 0, 64, stream)
print(code("aclrtSynchronizeStream", stream))
print(len(told), [(each[0], each[4]) for each in told])
"""


def test_a_failing_task_is_told_with_its_device() -> None:
    program = 'ascendcl.acl("aclrtSetExceptionInfoCallback", callback)' + FAILS
    lines = said(program, VNPU_FAULTS="exception@op:MemsetAsync")
    assert lines == ["507015", "1 [(1, 507015)]"]


def test_one_that_is_taken_back_is_not_called() -> None:
    program = (
        'ascendcl.acl("aclrtSetExceptionInfoCallback", callback)\nascendcl.acl("aclrtSetExceptionInfoCallback", 0)'
    )
    assert said(program + FAILS, VNPU_FAULTS="exception@op:MemsetAsync") == ["507015", "0 []"]


def test_nobody_is_told_without_a_failure() -> None:
    assert said('ascendcl.acl("aclrtSetExceptionInfoCallback", callback)' + FAILS) == ["0", "0 []"]


def test_null_says_nothing() -> None:
    names = ("Task", "Stream", "Thread", "Device")
    lib = ascendcl.lib
    answers = []
    for name in names:
        function = getattr(lib, f"aclrtGet{name}IdFromExceptionInfo")
        function.restype = ctypes.c_uint32
        answers.append(function(None))
    assert answers == [0xFFFFFFFF] * 4
