"""Errors: CANN's codes, a sentence of ours, and no success without the work."""

from __future__ import annotations

import ctypes
import re
import subprocess
import threading

import ascendcl
import pytest
from ascendcl import acl, code

pytestmark = pytest.mark.device


def exported(library: str) -> list[str]:
    """Names of the functions that the library defines."""
    path = ascendcl.LIBRARY.with_name(library)
    result = subprocess.run(["nm", "-D", "--defined-only", path], capture_output=True, text=True, check=True)
    return [line.split()[-1] for line in result.stdout.splitlines() if " T " in line]


def test_message_has_cann_s_form_and_names_the_virtual_npu() -> None:
    ascendcl.message()  # what an earlier call has left would stand behind it as the cause
    assert code("aclrtSetDevice", 99) == ascendcl.RT_INVALID_DEVICE
    assert re.fullmatch(
        r"\[PID: \d+\] \d{4}-\d\d-\d\d-\d\d:\d\d:\d\d\.\d{3}\.\d{3} Invalid_Device_ID\(EL0002\): "
        r"The device ID is invalid\. \[There is no device 99: .*\] \[virtual NPU, aclrtSetDevice\]",
        ascendcl.message(),
    )


def test_a_message_is_given_once_and_to_its_own_thread() -> None:
    code("aclrtSetDevice", 99)
    others: list[str] = []
    thread = threading.Thread(target=lambda: others.append(ascendcl.message()))
    thread.start()
    thread.join()
    assert others == [""]
    assert ascendcl.message() != ""
    assert ascendcl.message() == ""


def test_the_first_failure_is_the_cause_of_those_right_behind_it() -> None:
    ascendcl.message()
    for name in ("aclrtSetDevice", "aclrtResetDevice", "aclrtQueryDeviceStatus"):
        code(name, 99)
    newest, cause = ascendcl.message().split("\nbecause: ")
    assert newest.endswith("[virtual NPU, aclrtQueryDeviceStatus]")
    assert cause.endswith("[virtual NPU, aclrtSetDevice]")
    assert ascendcl.message() == ""


def test_what_somebody_has_asked_for_or_gone_on_after_is_no_cause() -> None:
    code("aclrtSetDevice", 99)
    ascendcl.message()
    code("aclrtSetDevice", 98)
    assert "because" not in ascendcl.message()

    code("aclrtSetDevice", 99)
    acl("aclrtGetDeviceCount", ctypes.byref(ctypes.c_uint32()))
    code("aclrtSetDevice", 98)
    assert "no device 98" in (text := ascendcl.message())
    assert "because" not in text


def test_a_message_without_end_is_cut() -> None:
    path = "x" * 20_000
    assert code("aclInit", ctypes.c_char_p(path.encode())) != 0
    assert 4000 < len(ascendcl.message()) < 5000


def test_last_error() -> None:
    code("aclrtSetDevice", 99)
    assert code("aclrtPeekAtLastError", 0) == ascendcl.RT_INVALID_DEVICE
    assert code("aclrtGetLastError", 0) == ascendcl.RT_INVALID_DEVICE
    assert code("aclrtGetLastError", 0) == 0


UNSUPPORTED = [
    "aclmdlLoadFromFile",
    "aclmdlLoadFromMem",
    "aclmdlQuerySize",
    "aclmdlRIDebugPrint",
    "aclopStartDumpArgs",
    "aclrtBinaryLoadFromData",
    "aclrtIpcMemGetExportKey",
    "aclrtMemExportToShareableHandle",
    "rtKernelLaunch",
]


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_is_not_offered_says_so_by_its_name(name: str) -> None:
    assert code(name, 0, 0, 0, 0) == ascendcl.UNSUPPORTED
    assert f"{name} is not offered." in ascendcl.message()


def test_a_compiled_model_needs_hardware() -> None:
    model = ctypes.c_uint32(7)
    assert code("aclmdlLoadFromFile", b"resnet50.om", ctypes.byref(model)) == ascendcl.UNSUPPORTED
    assert model.value == 7 and "hardware is needed to run it" in ascendcl.message()


def test_pointers_that_are_not_offered_are_null() -> None:
    ascendcl.lib.aclCreateGraphDumpOpt.restype = ctypes.c_void_p
    assert ascendcl.lib.aclCreateGraphDumpOpt() is None
    assert "aclCreateGraphDumpOpt is not offered" in ascendcl.message()


# Of models that were compiled: null, or 0 of something, with a message that says so.
MODEL_POINTERS = (
    "aclmdlCreateDataset",
    "aclmdlCreateDesc",
    "aclmdlCreateExecConfigHandle",
    "aclmdlGetDatasetBuffer",
    "aclmdlGetDatasetTensorDesc",
    "aclmdlGetInputNameByIndex",
    "aclmdlGetOutputNameByIndex",
    "aclmdlGetDatasetNumBuffers",
    "aclmdlGetInputDataType",
    "aclmdlGetInputFormat",
    "aclmdlGetInputSizeByIndex",
    "aclmdlGetNumInputs",
    "aclmdlGetNumOutputs",
    "aclmdlGetOutputDataType",
    "aclmdlGetOutputFormat",
    "aclmdlGetOutputSizeByIndex",
)


@pytest.mark.parametrize("name", MODEL_POINTERS)
def test_a_description_of_a_compiled_model_is_none(name: str) -> None:
    assert getattr(ascendcl.lib, name)(*[0] * 4) == 0
    assert f"{name} is not offered" in ascendcl.message()


def test_no_function_crashes_on_null_or_pretends() -> None:
    """Every function that returns a code and gets nulls must answer, and only those that need no argument with 0."""
    harmless = {
        # no arguments, or the work is done for a null stream, a zero limit, mode 0, the current device
        "aclFinalize",
        "aclInit",
        "aclrtGetLastError",
        "aclrtPeekAtLastError",
        "aclrtSynchronizeDevice",
        "aclrtSynchronizeDeviceWithTimeout",
        "aclrtSynchronizeStream",
        "aclrtSynchronizeStreamWithTimeout",
        "aclrtSetDevice",
        "aclrtResetDevice",
        "aclrtResetDeviceForce",
        "aclrtDeviceEnablePeerAccess",
        "aclrtDeviceDisablePeerAccess",
        "aclrtSetOpWaitTimeout",
        "aclrtSetOpExecuteTimeOut",
        "aclrtSetOpExecuteTimeOutWithMs",
        "aclrtSetSysParamOpt",
        "aclrtCtxSetSysParamOpt",
        "aclrtSetStreamFailureMode",
        "aclrtSetStreamOverflowSwitch",
        "aclrtResetStreamResLimit",
        "aclrtResetDeviceResLimit",
        "aclrtUseStreamResInCurrentThread",
        "aclrtUnuseStreamResInCurrentThread",
        "aclGetCompileoptSize",
        "aclmdlInitDump",
        "MsprofSysCycleTime",
        "aclAppLog",
        "aclopSetCompileFlag",
        "aclrtSetExceptionInfoCallback",
        "aclrtSetDeviceSatMode",
        "aclrtDeviceTaskAbort",
        "vnpuOnWorkerThread",
    }
    pointers = {
        "aclGetRecentErrMsg",
        "aclrtGetSocName",
        "aclGetTensorDescName",
        "aclopCreateAttr",
        "aclCreateDataBuffer",
        "aclCreateTensorDesc",
        "aclopDestroyAttr",
        "aclDestroyTensorDesc",
        "aclSetTensorDescName",
        "aclGetTensorDescType",
        "aclGetTensorDescFormat",
        "aclGetTensorDescNumDims",
        "aclGetTensorDescElementCount",
        "aclGetDataBufferAddr",
        "aclGetDataBufferSizeV2",
        "MsprofGetHashId",
        "aclprofCreateConfig",
        "aclprofCreateStepInfo",
        "aclprofDestroyStepInfo",
        "aclCreateGraphDumpOpt",
        "aclprofCreateStamp",
        "aclprofDestroyStamp",
        "aclprofCreateSubscribeConfig",
        "aclprofGetOpStart",
        "aclprofGetOpEnd",
        "aclprofGetOpDuration",
        "aclprofGetModelId",
        "aclprofGetOpFlag",
        "aclprofGetOpAttriValue",
        "aclprofStr2Id",
        "aclGetTensorDescDim",
        "aclGetTensorDescSize",
        "aclDataTypeSize",
        "aclrtAllocatorCreateDesc",
        "aclrtGetDeviceIdFromExceptionInfo",
        "aclrtGetErrorCodeFromExceptionInfo",
        "aclrtGetStreamIdFromExceptionInfo",
        "aclrtGetTaskIdFromExceptionInfo",
        "aclrtGetThreadIdFromExceptionInfo",
        *MODEL_POINTERS,
    }
    names = sorted(set(exported("libascendcl.so")) - harmless - pointers)
    program = f"""
import ascendcl
ascendcl.acl("aclrtSetDevice", 0)
for name in {[name for name in names if not name.startswith("_Z")]!r}:
    status = ascendcl.code(name, *[0] * 12)
    print(name, status, "virtual NPU" in ascendcl.message(), flush=True)
"""
    result = ascendcl.python(program)
    answers = [line.split() for line in result.stdout.splitlines()]
    assert result.returncode == 0, f"crashed after {answers[-1:]}: {result.stderr}"
    assert len(answers) > 150
    assert [name for name, status, explained in answers if status == "0" or explained != "True"] == []


def test_no_collective_crashes_on_null_or_pretends() -> None:
    # The last begins a group of calls and is given nothing that could be wrong.
    harmless = {"HcclSetConfig", "HcclGetErrorString", "HcclGetCommConfigCapability", "HcclGroupStart"}
    names = [name for name in sorted(set(exported("libhccl.so")) - harmless) if name.startswith("Hccl")]
    program = f"""
import ctypes, ascendcl
ascendcl.acl("aclrtSetDevice", 0)
hccl = ctypes.CDLL(str(ascendcl.LIBRARY.with_name("libhccl.so")))
for name in {names!r}:
    status = getattr(hccl, name)(*[ctypes.c_uint64(0)] * 12)
    print(name, status, "virtual NPU" in ascendcl.message(), flush=True)
"""
    result = ascendcl.python(program)
    answers = [line.split() for line in result.stdout.splitlines()]
    assert result.returncode == 0, f"crashed after {answers[-1:]}: {result.stderr}"
    assert len(answers) > 40
    assert [name for name, status, explained in answers if status == "0" or explained != "True"] == []


def test_what_is_missing_of_the_collectives_says_so() -> None:
    hccl = ctypes.CDLL(str(ascendcl.LIBRARY.with_name("libhccl.so")))
    assert hccl.HcclCommWorkingDevNicSet(None) == 5  # HCCL_E_NOT_SUPPORT
    assert (
        "HcclCommWorkingDevNicSet is not offered. The virtual NPU has the collectives, not this" in ascendcl.message()
    )


def test_collective_settings_are_kept() -> None:
    hccl = ctypes.CDLL(str(ascendcl.LIBRARY.with_name("libhccl.so")))
    value = ctypes.c_int32(-1)
    for wanted in (1, 0):
        assert hccl.HcclSetConfig(0, wanted) == 0
        assert hccl.HcclGetConfig(0, ctypes.byref(value)) == 0
        assert value.value == wanted
    assert hccl.HcclSetConfig(7, 1) == 1  # HCCL_E_PARA


def test_compile_options_are_kept() -> None:
    jit_compile, precision = 10, 0
    text = ctypes.create_string_buffer(64)
    acl("aclGetCompileopt", jit_compile, text, 64)
    assert text.value == b"disable"
    acl("aclSetCompileopt", precision, ctypes.c_char_p(b"must_keep_origin_dtype"))
    assert code("aclGetCompileoptSize", precision) == len(b"must_keep_origin_dtype") + 1
    acl("aclGetCompileopt", precision, text, 64)
    assert text.value == b"must_keep_origin_dtype"
    assert code("aclGetCompileopt", precision, text, 3) == ascendcl.RT_PARAM_INVALID
    assert "the buffer has 3 bytes" in ascendcl.message().lower()
