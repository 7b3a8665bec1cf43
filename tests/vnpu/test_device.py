"""Devices: how many, which one a thread uses, what they are; contexts; versions; start and end of the library."""

from __future__ import annotations

import ctypes
from pathlib import Path

import ascendcl
import pytest
from ascendcl import acl, answer, ask, code, python

pytestmark = pytest.mark.device


def test_count_and_name() -> None:
    assert answer("aclrtGetDeviceCount", kind=ctypes.c_uint32) == 8
    assert ascendcl.lib.aclrtGetSocName() == b"Ascend910B1"


def test_operators_are_counted_for_opened_devices() -> None:
    """None has run here; a device that was closed again has been opened."""
    result = python(
        """
import ctypes, ascendcl
from ascendcl import acl
count = ctypes.CDLL("libvnpu.so").vnpuDeviceLaunches
count.restype, count.argtypes = ctypes.c_int64, [ctypes.c_int]
numbers = (-1, 0, 1, 7, 63, 64)
print([count(number) for number in numbers])
acl("aclrtSetDevice", 7)
acl("aclrtSetDevice", 0)
acl("aclrtResetDevice", 0)
print([count(number) for number in numbers])
"""
    )
    assert result.stdout == "[-1, -1, -1, -1, -1, -1]\n[-1, 0, -1, 0, -1, -1]\n", result.stderr


@pytest.mark.parametrize(
    ("visible", "count", "physical"),
    [
        ("2,5", 2, [2, 5]),
        ("3", 1, [3]),
        ("0,9,2", 1, [0]),
        ("0,9,0", 1, [0]),
        ("0,x", 1, [0]),
        ("", 0, []),
        ("x", 0, []),
        ("1,0", 0, []),
        ("0,0", 0, []),
        ("0,1,1", 0, []),
    ],
)
def test_visible_devices(visible: str, count: int, physical: list[int]) -> None:
    result = python(
        """
import ctypes
from ascendcl import answer, ask
count = answer("aclrtGetDeviceCount", kind=ctypes.c_uint32)
print(count, [ask("aclrtGetLogicDevIdByUserDevId", i, kind=ctypes.c_int32) for i in range(count)])
""",
        ASCEND_RT_VISIBLE_DEVICES=visible,
    )
    assert result.stdout == f"{count} {physical}\n", result.stderr


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"VNPU_DEVICES": "0"}, "VNPU_DEVICES=0 is not a number of devices from 1 to 64"),
        ({"VNPU_DEVICES": "8x"}, "VNPU_DEVICES=8x"),
        ({"VNPU_SOC": "Ascend1"}, "VNPU_SOC=Ascend1 is not a chip profile"),
        ({"VNPU_HOST_LIMIT": "much"}, "VNPU_HOST_LIMIT=much is not an amount of memory"),
        ({"VNPU_CHECKS": "all"}, "VNPU_CHECKS=all is neither hardware"),
        ({"VNPU_SUM_ORDER": "random"}, "VNPU_SUM_ORDER=random is neither cpu nor a seed"),
        ({"VNPU_HIDDEN_BUGS": "1"}, "VNPU_HIDDEN_BUGS=1 is neither error nor hardware"),
    ],
)
def test_wrong_settings_are_named(variables: dict[str, str], words: str) -> None:
    result = python("import ascendcl; print(ascendcl.code('aclInit', 0), ascendcl.message())", **variables)
    assert result.stdout.startswith("107000 ")
    assert words in result.stdout


@pytest.mark.parametrize(("soc", "memory", "bf16"), [("Ascend910A", 32, 0), ("Ascend910B4", 32, 1)])
def test_another_chip(soc: str, memory: int, bf16: int) -> None:
    result = python(
        """
import ctypes, ascendcl
from ascendcl import acl, ask
acl("aclrtSetDevice", 0)
total = ask("aclrtGetDeviceInfo", 0, 301, kind=ctypes.c_int64)
print(ascendcl.lib.aclrtGetSocName().decode(), total >> 30, ask("aclGetCannAttribute", 1, kind=ctypes.c_int32))
""",
        VNPU_SOC=soc,
    )
    assert result.stdout == f"{soc} {memory} {bf16}\n", result.stderr


def test_driver_counts_without_starting_the_machine() -> None:
    hal = ctypes.CDLL(str(ascendcl.LIBRARY.with_name("libascend_hal.so")))
    count = ctypes.c_int(-1)
    assert hal.drvGetDevNum(ctypes.byref(count)) == 0
    assert count.value == 8


def test_each_thread_has_its_own_device() -> None:
    """In a process of its own: torch_npu, where it has been here, has told the library a default device."""
    result = python(
        """
import ctypes, threading, ascendcl
from ascendcl import acl, answer, code
acl("aclrtSetDevice", 2)

def other():
    print(code("aclrtGetDevice", ctypes.byref(ctypes.c_int32())), ascendcl.message())
    acl("aclrtSetDevice", 3)
    print(answer("aclrtGetDevice", kind=ctypes.c_int32))

thread = threading.Thread(target=other)
thread.start()
thread.join()
print(answer("aclrtGetDevice", kind=ctypes.c_int32))
"""
    )
    refused, *others = result.stdout.splitlines()
    assert refused.startswith(f"{ascendcl.RT_CONTEXT_NULL} ")
    assert "call aclrtSetDevice (torch.npu.set_device) first" in refused
    assert others == ["3", "2"]


@pytest.mark.parametrize("device", [-1, 8, 1000])
def test_no_such_device(device: int) -> None:
    assert code("aclrtSetDevice", device) == ascendcl.RT_INVALID_DEVICE
    assert f"There is no device {device}" in ascendcl.message()


def test_capabilities() -> None:
    values = [ask("aclGetDeviceCapability", 0, info, kind=ctypes.c_int64) for info in range(3)]
    assert values == [24, 48, 192 << 20]
    assert code("aclGetDeviceCapability", 0, 99, ctypes.byref(ctypes.c_int64())) == ascendcl.RT_PARAM_INVALID
    assert ask("aclrtGetDeviceInfo", 0, 501, kind=ctypes.c_int64) == 1  # virtual
    assert code("aclrtGetDeviceInfo", 0, 205, ctypes.byref(ctypes.c_int64())) == ascendcl.UNSUPPORTED


def test_contexts_name_a_device() -> None:
    acl("aclrtSetDevice", 0)
    primary = answer("aclrtGetCurrentContext")
    made = answer("aclrtCreateContext", 4)
    assert answer("aclrtGetCurrentContext") == made
    assert answer("aclrtGetDevice", kind=ctypes.c_int32) == 4
    acl("aclrtSetCurrentContext", primary)
    assert answer("aclrtGetDevice", kind=ctypes.c_int32) == 0
    assert answer("aclrtGetCurrentContext") == primary
    acl("aclrtDestroyContext", made)
    assert code("aclrtSetCurrentContext", made) == ascendcl.RT_INVALID_HANDLE


def test_peers() -> None:
    assert [answer("aclrtDeviceCanAccessPeer", 0, peer, kind=ctypes.c_int32) for peer in (0, 1)] == [0, 1]
    acl("aclrtSetDevice", 0)
    acl("aclrtDeviceEnablePeerAccess", 1, 0)
    acl("aclrtDeviceDisablePeerAccess", 1)
    assert code("aclrtDeviceEnablePeerAccess", 99, 0) != 0


def test_core_limits() -> None:
    acl("aclrtSetDevice", 0)
    assert ask("aclrtGetDeviceResLimit", 0, 0) == 24
    acl("aclrtSetDeviceResLimit", 0, 0, 12)
    with ascendcl.stream() as queue:
        assert ask("aclrtGetStreamResLimit", queue, 0) == 12
        acl("aclrtSetStreamResLimit", queue, 0, 6)
        acl("aclrtUseStreamResInCurrentThread", queue)
        assert ask("aclrtGetResInCurrentThread", 0) == 6
        acl("aclrtUnuseStreamResInCurrentThread", queue)
        assert ask("aclrtGetResInCurrentThread", 0) == 12
        acl("aclrtResetStreamResLimit", queue)
        assert ask("aclrtGetStreamResLimit", queue, 0) == 12
    acl("aclrtResetDeviceResLimit", 0)
    assert ask("aclrtGetDeviceResLimit", 0, 0) == 24
    assert code("aclrtSetDeviceResLimit", 0, 0, 25) == ascendcl.RT_PARAM_INVALID


def test_system_parameters_are_kept() -> None:
    assert ask("aclrtGetSysParamOpt", 0, kind=ctypes.c_int64) == 0
    acl("aclrtSetSysParamOpt", 0, 1)
    assert ask("aclrtGetSysParamOpt", 0, kind=ctypes.c_int64) == 1
    acl("aclrtSetSysParamOpt", 0, 0)
    assert code("aclrtSetSysParamOpt", 1, 1) == ascendcl.UNSUPPORTED  # debug kernels
    assert code("aclrtSetSysParamOpt", 9, 1) == ascendcl.RT_PARAM_INVALID


def test_life_of_the_library() -> None:
    """Finalising runs what is queued, joins the workers and frees memory; the library can be started again."""
    result = python(
        """
import ctypes, os, threading, ascendcl
from ascendcl import acl, code, answer
from waiting import until
threads = lambda: set(os.listdir("/proc/self/task"))
first = threading.Thread(target=int); first.start(); first.join()
# A thread that has been joined is listed for a moment longer. A sanitizer adds one of its own to the first.
until(lambda: str(first.native_id) not in threads())
before = threads()
print(code("aclInit", 0), code("aclInit", 0))
acl("aclrtSetDevice", 0)
address = ascendcl.malloc(3 << 20)
for part in range(3):
    acl("aclrtMemsetAsync", address + (part << 20), 1 << 20, 1, 1 << 20, answer("aclrtCreateStream"))
workers = threads() - before
print(len(workers), code("aclFinalize"), until(lambda: not workers & threads()), code("aclFinalize"))
print(code("aclrtGetDevice", ctypes.byref(ctypes.c_int32())))
acl("aclInit", 0); acl("aclrtSetDevice", 0); acl("aclrtFree", ascendcl.malloc(1 << 20))
print(code("aclrtFree", address))
"""
    )
    assert result.stdout == "0 100002\n3 0 True 100037\n107002\n207002\n", result.stderr


CONFIGURED = """
import ctypes, threading, ascendcl
from ascendcl import ask, code
print(code("aclInit", ctypes.c_char_p(PATH.encode())), ascendcl.message())
number = ctypes.c_int32(-1)
state = lambda device: ask("aclrtGetPrimaryCtxState", device, None, kind=ctypes.c_int32)
print(code("aclrtGetDevice", ctypes.byref(number)), number.value)
"""


def configured(tmp_path: Path, text: str, program: str = "") -> list[str]:
    """What a program says that was configured by a file of this text."""
    path = tmp_path / "acl.json"
    path.write_text(text)
    program = CONFIGURED.replace("PATH", repr(str(path))) + program
    result = python(program, VNPU_DEVICES="3")
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


def test_the_default_device_is_that_of_threads_that_choose_none(tmp_path: Path) -> None:
    said = configured(
        tmp_path,
        '{"dump": {"dump_scene": "lite_exception"}, "defaultDevice": {"default_device": "1"}}',
        """
free, total = ctypes.c_size_t(), ctypes.c_size_t()
memory = lambda: code("aclrtGetMemInfo", 1, ctypes.byref(free), ctypes.byref(total))
print(state(1), memory(), state(1), state(0))
thread = threading.Thread(target=lambda: print(memory()))
thread.start(); thread.join()
print(code("aclrtResetDevice", 1), state(1), code("aclFinalize"), memory())
""",
    )
    # Asking for the number begins nothing; after the end there is no default device any more.
    assert said == ["0 ", "0 1", "0 0 1 0", "0", "0 0 0 107002"]


@pytest.mark.parametrize(
    ("text", "starts"),
    [
        ("{}", "0 "),
        ('{"defaultDevice": {}}', "0 "),
        ('{"defaultDevice": {"default_device": "01"}}', "500001 "),
        ('{"defaultDevice": {"default_device": "-1"}}', "500001 "),
        ('{"defaultDevice": {"default_device": "1x"}}', "500001 "),
        ('{"defaultDevice": {"default_device": 1}}', "500001 "),
        ("{", "100006 "),
    ],
)
def test_without_a_default_device_a_thread_must_choose(tmp_path: Path, text: str, starts: str) -> None:
    said = configured(tmp_path, text)
    assert said[0].startswith(starts)
    assert (said[0] == starts) == (starts == "0 ")
    assert said[-1] == "107002 -1"


def test_a_default_device_that_is_not_there_is_named_when_it_is_needed(tmp_path: Path) -> None:
    said = configured(
        tmp_path,
        '{"defaultDevice": {"default_device": "3"}}',
        'print(code("aclrtSynchronizeDevice"), ascendcl.message())',
    )
    assert said[:2] == ["0 ", "0 3"]
    assert said[2].startswith("107001 ") and "There is no device 3" in said[2]


def test_the_last_reset_is_the_one_that_frees() -> None:
    """CANN counts how often a device was set (aclrtResetDevice)."""
    result = python(
        """
import ascendcl
from ascendcl import code, answer
for _ in range(3): code("aclrtSetDevice", 2)
stream = answer("aclrtCreateStream")
for _ in range(3): print(code("aclrtResetDevice", 2), code("aclrtSynchronizeStream", stream))
code("aclrtSetDevice", 2); code("aclrtSetDevice", 2)
stream = answer("aclrtCreateStream")
print(code("aclrtResetDeviceForce", 2), code("aclrtSynchronizeStream", stream))
code("aclrtSetDevice", 2)
print(code("aclrtResetDevice", 2), code("aclrtResetDevice", 2))
"""
    )
    assert result.stdout.splitlines() == ["0 0", "0 0", "0 107017", "0 107017", "0 107001"], result.stderr


def test_resetting_an_unused_device() -> None:
    """In a process of its own: another test may have used any device of this one."""
    result = python('import ascendcl; print(ascendcl.code("aclrtResetDevice", 7), ascendcl.message())')
    assert result.stdout.startswith(f"{ascendcl.RT_INVALID_DEVICE} "), result.stderr
    assert "is not in use" in result.stdout


def test_a_forked_child_is_refused() -> None:
    program = """
import os, ascendcl
ascendcl.acl("aclrtSetDevice", 0)
child = os.fork()
if child == 0:
    print(ascendcl.code("aclrtSetDevice", 0), ascendcl.message(), flush=True)
    os._exit(0)
os.waitpid(child, 0)
ascendcl.acl("aclrtFree", ascendcl.malloc(64))
"""
    result = python(program)
    assert result.stdout.startswith("507033 ")
    assert "cannot be used after fork()" in result.stdout
    assert result.returncode == 0, result.stderr
