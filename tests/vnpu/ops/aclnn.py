"""Call an operator of libopapi by its C name, beside torch_npu: for first-phase checks that torch_npu makes
impossible to reach, and for names that its version of torch does not choose.

    status, message = first_phase("aclnnAdd", x, y, 1, out)     # plans it and throws the plan away
    run("aclnnAdd", x, y, 1, out)                               # runs it on the current stream

Arguments follow csrc/opapi/aclnn/signatures.json, signatures_mindspore.json: tensors of the NPU or None, numbers for scalars, lists.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch_npu

from torchport import vnpu

TABLES = Path(__file__).parents[3] / "csrc/opapi/aclnn"
sys.path.insert(0, str(TABLES))

import signatures  # noqa: E402

SIGNATURES = signatures.of_all(TABLES)
NULL_ARGUMENT = 161001  # ACLNN_ERR_PARAM_NULLPTR
INVALID_ARGUMENT = 161002  # ACLNN_ERR_PARAM_INVALID

# aclDataType (acl_base_rt.h)
DTYPES = {
    torch.float32: 0,
    torch.float16: 1,
    torch.int8: 2,
    torch.int32: 3,
    torch.uint8: 4,
    torch.int16: 6,
    torch.uint16: 7,
    torch.uint32: 8,
    torch.int64: 9,
    torch.uint64: 10,
    torch.float64: 11,
    torch.bool: 12,
    torch.complex64: 16,
    torch.complex128: 17,
    torch.bfloat16: 27,
}
FRACTAL_NZ = 29
PRIVATE_FORMATS = (3, 4, FRACTAL_NZ, 32, 33)
NUMBERS: dict[str, Callable[[Any], Any]] = {
    "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64,
    "int32_t": ctypes.c_int32,
    "int": ctypes.c_int32,
    "int8_t": ctypes.c_int8,
    "bool": ctypes.c_bool,
    "double": ctypes.c_double,
    "float": ctypes.c_float,
    "aclDataType": lambda dtype: ctypes.c_int32(DTYPES[dtype]),
}


@dataclasses.dataclass(frozen=True)
class View:
    """A tensor as C code can describe it: any address, sizes, strides and offset (elements)."""

    address: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0
    dtype: torch.dtype = torch.float32


def row(address: int, length: int, dtype: torch.dtype = torch.float32) -> View:
    """`length` elements one behind another."""
    return View(address, (length,), (1,), dtype=dtype)


class RefusedError(RuntimeError):
    """The first phase, or the launch, answered with an error code."""


def first_phase(name: str, *arguments: Any) -> tuple[int, str]:
    """The code and message of `nameGetWorkspaceSize`; "" when it accepts the arguments."""
    status, message, executor = _plan(name, arguments)
    if status == 0:
        _library().aclDestroyAclOpExecutor(executor)
    return status, message


def refused(name: str, *arguments: Any) -> str:
    """The message with which the first phase refuses a parameter."""
    status, message = first_phase(name, *arguments)
    assert status == INVALID_ARGUMENT
    return message


def maximum_workspace(name: str, *arguments: Any) -> tuple[int, str]:
    """The same of `nameGetMaxWorkspaceSize`, which a captured graph asks."""
    status, message, executor = _plan(name, arguments, "GetMaxWorkspaceSize")
    if status == 0:
        _library().aclDestroyAclOpExecutor(executor)
    return status, message


def run(name: str, *arguments: Any) -> None:
    """Run the operator on the current stream and wait for it. Raises `RefusedError`."""
    status, message, executor = _plan(name, arguments)
    if status != 0:
        raise RefusedError(f"{status}: {message}")
    stream = ctypes.c_void_p(torch.npu.current_stream().npu_stream)
    status = getattr(_library(), name)(None, ctypes.c_uint64(0), executor, stream)
    torch.npu.synchronize()
    if status != 0:
        raise RefusedError(f"{status}: {_message()}")


def made(tensor: View) -> str:
    """What aclCreateTensor says of the view; "" when it leaves that to the first phase."""
    pointer = _tensor(tensor)
    message = _message()
    _library().aclDestroyTensor(pointer)
    return message


def planned(name: str, *arguments: Any) -> Callable[[int], None]:
    """The operator, ready to be queued on a stream of the C API. Both raise `RefusedError`."""
    status, message, executor = _plan(name, arguments)
    if status != 0:
        raise RefusedError(f"{status}: {message}")

    def launch(stream: int) -> None:
        status = getattr(_library(), name)(None, ctypes.c_uint64(0), executor, ctypes.c_void_p(stream))
        if status != 0:
            raise RefusedError(f"{status}: {_message()}")

    return launch


def direct(name: str, *arguments: Any) -> int:
    """The code of a function without phases; answers go through pointers that the caller brings."""
    made: list[tuple[Callable[[Any], Any], Any]] = []
    kinds = [kind for kind, _, _ in SIGNATURES[name]["params"]]
    inputs = [_own(kind, value, made) for kind, value in zip(kinds, arguments, strict=True)]
    status = int(getattr(_library(), name)(*inputs))
    for destroy, pointer in made:
        destroy(pointer)
    return status


def _plan(name: str, arguments: tuple[Any, ...], phase: str = "GetWorkspaceSize") -> tuple[int, str, ctypes.c_void_p]:
    torch.npu.synchronize()  # what torch_npu has in its task queue comes first
    parameters = SIGNATURES[name]["params"]
    if len(parameters) != len(arguments):
        raise TypeError(f"{name} takes {[parameter for _, parameter, _ in parameters]}")
    made: list[tuple[Callable[[Any], Any], Any]] = []
    values = [_own(kind, value, made) for (kind, _, _), value in zip(parameters, arguments, strict=True)]
    workspace, executor = ctypes.c_uint64(), ctypes.c_void_p()
    status = getattr(_library(), name + phase)(*values, ctypes.byref(workspace), ctypes.byref(executor))
    message = _message() if status != 0 else ""
    for destroy, pointer in made:  # as torch_npu does: before the launch
        destroy(pointer)
    return status, message, executor


def _own(kind: str, value: Any, made: list[tuple[Callable[[Any], Any], Any]]) -> Any:
    kind = kind.removeprefix("const ").strip()
    if kind in NUMBERS:
        return NUMBERS[kind](value)
    if kind in ("int64_t**", "uint64_t*", "int*"):  # for an answer
        return value
    if value is None:
        return ctypes.c_void_p()
    if kind == "char*":
        return ctypes.c_char_p(value.encode())
    library = _library()
    noun = kind.removeprefix("acl").removesuffix("*")
    if kind == "aclTensor*":
        pointer = _tensor(value)
    elif kind == "aclScalar*":
        pointer = _scalar(value)
    elif kind == "aclTensorList*":  # destroys its elements
        pointer = _list(library.aclCreateTensorList, ctypes.c_void_p, [_tensor(one) for one in value])
    elif kind == "aclScalarList*":
        pointer = _list(library.aclCreateScalarList, ctypes.c_void_p, [_scalar(one) for one in value])
    else:
        element = {"aclIntArray*": ctypes.c_int64, "aclBoolArray*": ctypes.c_bool, "aclFloatArray*": ctypes.c_float}[
            kind
        ]
        pointer = _list(getattr(library, f"aclCreate{noun}"), element, value)
    made.append((getattr(library, f"aclDestroy{noun}"), pointer))
    return pointer


def _tensor(tensor: torch.Tensor | View | None) -> Any:
    if tensor is None:
        return ctypes.c_void_p()
    if isinstance(tensor, View):
        sizes, strides = ((ctypes.c_int64 * len(each))(*each) for each in (tensor.sizes, tensor.strides))
        words = (sizes, ctypes.c_uint64(len(sizes)), ctypes.c_int32(DTYPES[tensor.dtype]), strides)
        words += (ctypes.c_int64(tensor.offset), ctypes.c_int32(2), sizes, ctypes.c_uint64(len(sizes)))
        return ctypes.c_void_p(_library().aclCreateTensor(*words, ctypes.c_void_p(tensor.address)))
    rank = tensor.dim()
    sizes, strides = (ctypes.c_int64 * rank)(*tensor.shape), (ctypes.c_int64 * rank)(*tensor.stride())
    storage, form = list(sizes), int(torch_npu.get_npu_format(tensor))
    if form in PRIVATE_FORMATS:  # only the last dimension, the block, and the product of all say something
        block = 32 if form == FRACTAL_NZ and tensor.element_size() == 1 else 16
        storage = [torch_npu.get_storage_size(tensor) // block, block]
    return ctypes.c_void_p(
        _library().aclCreateTensor(
            sizes,
            ctypes.c_uint64(rank),
            ctypes.c_int32(DTYPES[tensor.dtype]),
            strides,
            ctypes.c_int64(tensor.storage_offset()),
            ctypes.c_int32(form),
            (ctypes.c_int64 * len(storage))(*storage),
            ctypes.c_uint64(len(storage)),
            ctypes.c_void_p(tensor.untyped_storage().data_ptr()),
        )
    )


def _scalar(value: Any) -> Any:
    """Numbers get the dtypes that torch_npu gives them: double, int64, bool. NumPy's keep their own."""
    memory: Any
    if isinstance(value, np.generic):
        memory, dtype = (ctypes.c_char * value.nbytes)(*value.tobytes()), getattr(torch, value.dtype.name)
    elif isinstance(value, bool):
        memory, dtype = ctypes.c_bool(value), torch.bool
    elif isinstance(value, int):
        memory, dtype = ctypes.c_int64(value), torch.int64
    else:
        memory, dtype = ctypes.c_double(value), torch.float64
    return ctypes.c_void_p(_library().aclCreateScalar(ctypes.byref(memory), ctypes.c_int32(DTYPES[dtype])))


def _list(create: Any, element: Any, values: list[Any]) -> Any:
    return ctypes.c_void_p(create((element * len(values))(*values), ctypes.c_uint64(len(values))))


def _message() -> str:
    return (_runtime().aclGetRecentErrMsg() or b"").decode()


@functools.cache
def _runtime() -> ctypes.CDLL:
    runtime = ctypes.CDLL("libascendcl.so")
    runtime.aclGetRecentErrMsg.restype = ctypes.c_char_p
    return runtime


@functools.cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(vnpu.library_directory() / "libopapi.so"))
    for noun in ("Tensor", "Scalar", "IntArray", "BoolArray", "FloatArray", "TensorList", "ScalarList"):
        getattr(library, f"aclCreate{noun}").restype = ctypes.c_void_p
    return library
