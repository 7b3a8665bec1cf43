"""Call an operator of the old API by its name: what torch_npu cannot be brought to ask for, and what is refused, which
would leave torch_npu's queue in error.

    status, message = launch("Mish", [x], [out], scale=1.0)

Inputs are tensors of the NPU, None for one that is left out, lists of integers, which lie in host memory, or strings,
which lie on the device behind their length; Memory is one whose bytes are given.
"""

from __future__ import annotations

import ctypes
import os
import re
import struct
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from aclnn import DTYPES

from torchport import vnpu

ND = 2
HOST = 1
UNDEFINED, STRING = -1, 13
INVALID_ARGUMENT = 107000  # ACL_ERROR_RT_PARAM_INVALID

_lib = ctypes.CDLL(str(vnpu.library_directory() / "libascendcl.so"))
_lib.aclGetRecentErrMsg.restype = ctypes.c_char_p
for _name in ("aclCreateTensorDesc", "aclCreateDataBuffer", "aclopCreateAttr"):
    getattr(_lib, _name).restype = ctypes.c_void_p


class Memory(bytes):
    """What the device's memory of a string holds."""


def text(value: str) -> Memory:
    """Where the characters begin, counted from the beginning of the memory; how many; they themselves, and a zero."""
    return Memory(struct.pack("qq", 16, len(value.encode())) + value.encode() + b"\0")


Input = torch.Tensor | list[int] | str | Memory | None


def launch(type_: str, inputs: Sequence[Input], outputs: Sequence[torch.Tensor], **attributes: Any) -> tuple[int, str]:
    """The code of aclopCompileAndExecute and its message; "" when it takes the call, which then has run."""
    kept: list[Any] = []
    of_inputs = [_operand(value, kept) for value in inputs]
    of_outputs = [_operand(value, kept) for value in outputs]
    attr = ctypes.c_void_p(_lib.aclopCreateAttr())
    for name, value in attributes.items():
        _set(attr, name.encode(), value)
    arguments: list[Any] = [type_.encode()]
    for side in (of_inputs, of_outputs):
        pointers = ctypes.c_void_p * len(side)
        arguments += [len(side), pointers(*(d for d, _ in side)), pointers(*(b for _, b in side))]
    stream = ctypes.c_void_p(torch.npu.current_stream().npu_stream)
    status = _lib.aclopCompileAndExecute(*arguments, attr, 0, 0, None, stream)
    message = _lib.aclGetRecentErrMsg().decode() if status else ""
    torch.npu.synchronize()
    _lib.aclopDestroyAttr(attr)
    for desc, buffer in of_inputs + of_outputs:
        _lib.aclDestroyTensorDesc(ctypes.c_void_p(desc))
        _lib.aclDestroyDataBuffer(ctypes.c_void_p(buffer))
    return status, message


def outputs(sizes: Sequence[Any], fill: float = 0) -> list[torch.Tensor]:
    """Tensors of these sizes; a dtype that is not float32 stands among them."""
    return [
        torch.full(
            [n for n in size if isinstance(n, int)],
            fill,
            dtype=next((d for d in size if isinstance(d, torch.dtype)), torch.float32),
        ).npu()
        for size in sizes
    ]


def operands(inputs: Sequence[Any]) -> list[Any]:
    """Tensors on the NPU; lists stay, as do what is left out."""
    return [value.contiguous().npu() if isinstance(value, torch.Tensor) else value for value in inputs]


def check_refused(
    type_: str, inputs: Sequence[Any], sizes: Sequence[Any], attributes: dict[str, Any], words: str
) -> None:
    """Fails where the call is taken, or refused with other words, or without the operator's name."""
    status, message = launch(type_, operands(inputs), outputs(sizes), **attributes)
    assert status == INVALID_ARGUMENT and words in message and type_ in message, (status, message)


def _operand(value: Input, kept: list[Any]) -> tuple[int, int]:
    if value is None:
        return _lib.aclCreateTensorDesc(UNDEFINED, 0, None, ND), _lib.aclCreateDataBuffer(None, 0)
    if isinstance(value, str | Memory):
        memory = torch.tensor(list(text(value) if isinstance(value, str) else value), dtype=torch.uint8).npu()
        kept.append(memory)
        buffer = _lib.aclCreateDataBuffer(ctypes.c_void_p(memory.data_ptr()), ctypes.c_size_t(memory.numel()))
        return _lib.aclCreateTensorDesc(STRING, 0, None, ND), buffer
    host = not isinstance(value, torch.Tensor)
    tensor = torch.tensor(value, dtype=torch.int32) if host else value
    kept.append(tensor)
    sizes = (ctypes.c_int64 * tensor.dim())(*tensor.shape)
    desc = _lib.aclCreateTensorDesc(DTYPES[tensor.dtype], tensor.dim(), sizes, ND)
    if host:
        _lib.aclSetTensorPlaceMent(ctypes.c_void_p(desc), HOST)
    size = ctypes.c_size_t(tensor.numel() * tensor.element_size())
    return desc, _lib.aclCreateDataBuffer(ctypes.c_void_p(tensor.data_ptr()), size)


def _set(attr: ctypes.c_void_p, name: bytes, value: Any) -> None:
    if isinstance(value, bool):
        _lib.aclopSetAttrBool(attr, name, value)
    elif isinstance(value, int):
        _lib.aclopSetAttrInt(attr, name, ctypes.c_int64(value))
    elif isinstance(value, float):
        _lib.aclopSetAttrFloat(attr, name, ctypes.c_float(value))
    elif isinstance(value, str):
        _lib.aclopSetAttrString(attr, name, value.encode())
    elif all(isinstance(one, int) for one in value):
        _lib.aclopSetAttrListInt(attr, name, len(value), (ctypes.c_int64 * len(value))(*value))
    else:
        _lib.aclopSetAttrListFloat(attr, name, len(value), (ctypes.c_float * len(value))(*value))


_generators: dict[str, torch.Generator] = {}  # by module, so that no other module's draws change the numbers


def drawn(*sizes: int) -> torch.Tensor:
    """Normal numbers, which depend on what the calling module has drawn before."""
    module = sys._getframe(1).f_globals["__name__"]
    generator = _generators.setdefault(module, torch.Generator().manual_seed(7))
    return torch.randn(sizes, generator=generator)


def ran(name: str, inputs: list[Any], *sizes: Any, **attributes: Any) -> list[torch.Tensor]:
    """The outputs, of these sizes and dtypes, in float64."""
    made, given = outputs(sizes, 7), operands(inputs)
    status, message = launch(name, given, made, **attributes)
    assert status == 0, message
    ran.operands = [value.cpu() if isinstance(value, torch.Tensor) else value for value in given]  # type: ignore[attr-defined]
    return [out.cpu().double() for out in made]


def near(found: torch.Tensor, expected: torch.Tensor, tolerance: float = 2e-6) -> None:
    wide = torch.complex128 if found.is_complex() else torch.float64
    torch.testing.assert_close(found.to(wide), expected.to(wide), rtol=tolerance, atol=tolerance)


def called(name: str, inputs: list[Any], *sizes: Any, **attributes: Any) -> list[torch.Tensor]:
    """The outputs as they are: `ran` would take the imaginary parts away."""
    outputs = [
        torch.zeros(
            [n for n in size if isinstance(n, int)],
            dtype=next((d for d in size if isinstance(d, torch.dtype)), torch.float32),
        ).npu()
        for size in sizes
    ]
    status, message = launch(
        name, [each if isinstance(each, list) else each.contiguous().npu() for each in inputs], outputs, **attributes
    )
    assert status == 0, message
    return [out.cpu() for out in outputs]


def transformed(name: str, inputs: list[Any], expected: np.ndarray[Any, Any], dtype: torch.dtype) -> None:
    """Fails where the output, of this dtype, is not NumPy's."""
    out = torch.zeros(expected.shape, dtype=dtype).npu()
    operands = [value.npu() if isinstance(value, torch.Tensor) else value for value in inputs]
    status, message = launch(name, operands, [out])
    assert status == 0, message
    np.testing.assert_allclose(out.cpu().numpy(), expected, rtol=2e-5, atol=2e-5)


def by_name(operator: str) -> int:
    """The number of calls of the operator so far, from the trace."""
    torch.npu.synchronize()
    trace = Path(os.environ["VNPU_TRACE"]).read_text(encoding="utf-8")
    return len(re.findall(rf'aclopCompileAndExecute(?:V2)?\("{operator}"', trace))  # V2 where it gives shapes back
