"""A descriptor that cannot be made tells its reason to whoever reads it: torch_npu does not look at what it gets."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
import torch
from aclnn import DTYPES, INVALID_ARGUMENT, NULL_ARGUMENT

from torchport import vnpu

UNKNOWN_DTYPE = 29  # ACL_INT4, which ATen does not have
TOO_MANY = (1 << 64) - 1
POINTERS = (
    "aclCreateTensor",
    "aclCreateScalar",
    "aclCreateTensorList",
    "aclCreateScalarList",
    "aclCreateIntArray",
    "aclCreateBoolArray",
    "aclCreateFloatArray",
)
opapi = ctypes.CDLL(str(vnpu.library_directory() / "libopapi.so"))
for each in POINTERS:
    getattr(opapi, each).restype = ctypes.c_void_p
ascendcl = ctypes.CDLL(str(vnpu.library_directory() / "libascendcl.so"))
ascendcl.aclGetRecentErrMsg.restype = ctypes.c_char_p


def message() -> str:
    return str(ascendcl.aclGetRecentErrMsg().decode())


def tensor(data: int, dtype: int = DTYPES[torch.float32], rank: int = 1) -> Any:
    """Descriptor of four elements in one dimension."""
    dims, strides = (ctypes.c_int64 * 1)(4), (ctypes.c_int64 * 1)(1)
    return ctypes.c_void_p(
        opapi.aclCreateTensor(
            dims,
            ctypes.c_uint64(rank),
            dtype,
            strides,
            ctypes.c_int64(0),
            2,
            dims,
            ctypes.c_uint64(1),
            ctypes.c_void_p(data),
        )
    )


def fill(target: Any) -> tuple[int, str]:
    """What the first phase of aclnnInplaceOne answers."""
    workspace, executor = ctypes.c_uint64(), ctypes.c_void_p()
    status = opapi.aclnnInplaceOneGetWorkspaceSize(target, ctypes.byref(workspace), ctypes.byref(executor))
    if status == 0:
        opapi.aclDestroyAclOpExecutor(executor)
    return status, message()


@pytest.fixture
def data() -> int:
    """Address of four floats on the device."""
    zeros = torch.zeros(4, device="npu")
    torch.npu.synchronize()
    message()  # torch_npu does not ask for each
    return zeros.data_ptr()


def test_a_right_one_is_accepted(data: int) -> None:
    made = tensor(data)
    assert fill(made) == (0, "")
    assert opapi.aclDestroyTensor(made) == 0


@pytest.mark.parametrize(
    ("dtype", "rank", "reason"),
    [(UNKNOWN_DTYPE, 1, "does not offer aclDataType 29"), (0, TOO_MANY, "18446744073709551615 elements")],
)
def test_the_first_phase_says_why(data: int, dtype: int, rank: int, reason: str) -> None:
    made = tensor(data, dtype, rank)
    assert made.value is not None
    assert reason in message()
    status, text = fill(made)
    assert status == INVALID_ARGUMENT
    assert "parameter selfRef could not be described" in text
    assert reason in text
    assert opapi.aclDestroyTensor(made) == 0


def test_an_address_of_the_host_is_named() -> None:
    memory = (ctypes.c_float * 4)()
    made = tensor(ctypes.addressof(memory))
    status, text = fill(made)
    assert status == INVALID_ARGUMENT
    assert f"{ctypes.addressof(memory):#x} is not device memory" in text
    assert opapi.aclDestroyTensor(made) == 0


def test_one_without_memory_is_enough_for_the_first_phase_alone(data: int) -> None:
    """A graph of MindSpore asks for workspaces before it has memory."""
    made = tensor(0)
    assert fill(made) == (0, "")
    workspace, executor = ctypes.c_uint64(), ctypes.c_void_p()
    assert opapi.aclnnInplaceOneGetWorkspaceSize(made, ctypes.byref(workspace), ctypes.byref(executor)) == 0
    stream = ctypes.c_void_p(torch.npu.current_stream().npu_stream)
    status = opapi.aclnnInplaceOne(None, ctypes.c_uint64(0), executor, stream)
    assert status == INVALID_ARGUMENT
    assert "an input of shape [4] was described without memory" in message()
    assert fill(tensor(data)) == (0, "")
    assert opapi.aclDestroyTensor(made) == 0


def test_null_itself_is_still_null() -> None:
    status, text = fill(ctypes.c_void_p())
    assert status == NULL_ARGUMENT
    assert "parameter selfRef is null" in text


def test_an_optional_one_is_not_left_out(data: int) -> None:
    """Null would mean that the parameter was not given: the operator would compute something else."""
    good, bad, none = tensor(data), tensor(data, UNKNOWN_DTYPE), ctypes.c_void_p()
    workspace, executor = ctypes.c_uint64(), ctypes.c_void_p()
    shape = ctypes.c_void_p(opapi.aclCreateIntArray((ctypes.c_int64 * 1)(4), ctypes.c_uint64(1)))

    def plan(bias: Any) -> int:
        return int(
            opapi.aclnnLayerNormGetWorkspaceSize(
                good,
                shape,
                none,
                bias,
                ctypes.c_double(1e-5),
                good,
                none,
                none,
                ctypes.byref(workspace),
                ctypes.byref(executor),
            )
        )

    message()
    assert plan(bad) == INVALID_ARGUMENT
    assert "parameter biasOptional could not be described" in message()
    assert plan(none) == 0
    opapi.aclDestroyAclOpExecutor(executor)
    for each in (good, bad):
        opapi.aclDestroyTensor(each)
    opapi.aclDestroyIntArray(shape)


def test_one_in_a_list_is_found(data: int) -> None:
    tensors = (ctypes.c_void_p * 2)(tensor(data), tensor(data, UNKNOWN_DTYPE))
    listed = ctypes.c_void_p(opapi.aclCreateTensorList(tensors, ctypes.c_uint64(2)))
    workspace, executor = ctypes.c_uint64(), ctypes.c_void_p()
    plan = opapi.aclnnForeachAbsGetWorkspaceSize
    assert plan(listed, listed, ctypes.byref(workspace), ctypes.byref(executor)) == INVALID_ARGUMENT
    assert "parameter x could not be described: The virtual NPU does not offer aclDataType 29" in message()
    assert opapi.aclDestroyTensorList(listed) == 0


@pytest.mark.parametrize(
    ("pointer", "dtype", "reason"), [(True, UNKNOWN_DTYPE, "aclDataType 29"), (False, 0, "value is null")]
)
def test_a_scalar_says_why(data: int, pointer: bool, dtype: int, reason: str) -> None:
    number = ctypes.c_float(1)
    value = ctypes.c_void_p(opapi.aclCreateScalar(ctypes.byref(number) if pointer else None, dtype))
    target, workspace, executor = tensor(data), ctypes.c_uint64(), ctypes.c_void_p()
    status = opapi.aclnnInplaceFillScalarGetWorkspaceSize(
        target, value, ctypes.byref(workspace), ctypes.byref(executor)
    )
    assert status == (INVALID_ARGUMENT if pointer else NULL_ARGUMENT)
    assert "parameter value could not be described" in (text := message())
    assert reason in text
    opapi.aclDestroyScalar(value)
    opapi.aclDestroyTensor(target)


@pytest.mark.parametrize("name", [name for name in POINTERS if name.endswith(("Array", "List"))])
def test_a_list_of_impossible_length_is_refused(name: str) -> None:
    memory, create = (ctypes.c_int64 * 1)(0), getattr(opapi, name)
    message()
    assert create(memory, ctypes.c_uint64(TOO_MANY)) is None
    assert "value is announced with 18446744073709551615 elements" in message()
    assert create(None, ctypes.c_uint64(1)) is None
    assert "value is null" in message()
    made = create(None, ctypes.c_uint64(0))
    assert made is not None
    assert getattr(opapi, name.replace("Create", "Destroy"))(ctypes.c_void_p(made)) == 0


def test_the_shape_of_none_is_refused(data: int) -> None:
    rank, dims = ctypes.c_uint64(7), ctypes.POINTER(ctypes.c_int64)()
    good, bad = tensor(data), tensor(data, UNKNOWN_DTYPE)
    assert opapi.aclGetViewShape(bad, ctypes.byref(dims), ctypes.byref(rank)) == INVALID_ARGUMENT
    assert opapi.aclGetViewShape(good, None, ctypes.byref(rank)) == NULL_ARGUMENT
    assert opapi.aclGetViewShape(good, ctypes.byref(dims), None) == NULL_ARGUMENT
    assert rank.value == 7
    assert opapi.aclGetViewShape(good, ctypes.byref(dims), ctypes.byref(rank)) == 0
    assert (rank.value, dims[0]) == (1, 4)
    for each in (good, bad):
        opapi.aclDestroyTensor(each)
