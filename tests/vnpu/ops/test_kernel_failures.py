"""The code and the words of a kernel that fails: those of the unit that runs it on hardware."""

from __future__ import annotations

import pytest
from forked import python

pytestmark = pytest.mark.device

# A kernel whose operand has been freed by the time it runs, by the parts of CANN's interface alone.
HERE = __file__.rpartition("/")[0]
PROGRAM = (
    f"import sys\nsys.path.insert(0, {HERE!r})\n"
    + """
import ctypes
import ascendcl, torch
from aclnn import View, planned, row
from ascendcl import acl, code, malloc

def matrix(at, dtype):
    return View(at, (4, 4), (4, 1), dtype=dtype)

OPERANDS = {
    "aclnnAdd": lambda at, dtype: (row(at, 4, dtype), row(at, 4, dtype), 1, row(at, 4, dtype)),
    "aclnnExp": lambda at, dtype: (row(at, 4, dtype), row(at, 4, dtype)),
    "aclnnMm": lambda at, dtype: (matrix(at, dtype), matrix(at, dtype), matrix(at, dtype), 0),
    "aclnnInverse": lambda at, dtype: (matrix(at, dtype), matrix(at, dtype)),
}

def fail(name, dtype, replayed):
    torch.npu.synchronize()
    acl("aclrtSetDevice", 0)
    address = malloc(4096)
    launch = planned(name, *OPERANDS[name](address, getattr(torch, dtype)))
    graph = ctypes.c_void_p()
    with ascendcl.stream() as queue:
        if replayed:
            acl("aclmdlRICaptureBegin", queue, 2)
            launch(queue)
            acl("aclmdlRICaptureEnd", queue, ctypes.byref(graph))
        acl("aclrtFree", address)
        acl("aclmdlRIExecuteAsync", graph, queue) if replayed else launch(queue)
        print(code("aclrtSynchronizeStream", queue), ascendcl.message())

"""
)
DEVICE = "The error from device(chipId:0, dieId:0), serial number is 1, "
AI_CORE = f"(EZ9999): {DEVICE}there is an exception of aicore error. Kernel task happen error, retCode=0x26, [aicore exception]."
VECTOR = f"(EZ9999): {DEVICE}there is an exception of aivec error. Kernel task happen error, retCode=0x31, [vector core exception]."
AICPU = "(E39999): Aicpu kernel execute failed, device_id=0. Kernel task happen error, retCode=0x2a, [aicpu exception]."
GRAPH = f"(EZ9999): {DEVICE}[the model stream execute failed]."
CASES = {
    "vector": ("aclnnAdd", "float32", {}, 507035, VECTOR),
    "cube": ("aclnnMm", "float32", {}, 507015, AI_CORE),
    "device's CPU": ("aclnnInverse", "float32", {}, 507018, AICPU),
    "device's CPU by its dtype": ("aclnnExp", "float64", {}, 507018, AICPU),
    "vector by its dtype": ("aclnnExp", "float32", {}, 507035, VECTOR),
    "no vector cores": ("aclnnAdd", "float32", {"VNPU_SOC": "Ascend910A"}, 507015, AI_CORE),
    "no vector cores, device's CPU": ("aclnnExp", "float64", {"VNPU_SOC": "Ascend910A"}, 507018, AICPU),
}


@pytest.mark.parametrize("case", CASES)
def test_a_kernel_fails_as_its_unit_does(case: str) -> None:
    name, dtype, variables, status, words = CASES[case]
    ended = python(f"{PROGRAM}fail('{name}', '{dtype}', False)", **variables)
    assert ended.returncode == 0, ended.stderr
    code = words[words.index("E") :][:6]
    assert ended.stdout.startswith(f"{status} {code}: Inner Error!\n{code}[PID: ")
    assert words in ended.stdout
    assert f"[{name}: " in ended.stdout and "has been freed" in ended.stdout
    assert ended.stdout.strip().endswith("[virtual NPU, aclrtSynchronizeStream]")


@pytest.mark.parametrize("name", ["aclnnAdd", "aclnnMm", "aclnnInverse"])
def test_in_a_graph_the_graph_fails(name: str) -> None:
    ended = python(f"{PROGRAM}fail('{name}', 'float32', True)")
    assert ended.stdout.startswith("507011 EZ9999: Inner Error!\n"), ended.stderr
    assert GRAPH in ended.stdout
    assert f"[GraphExecute: {name} of graph" in ended.stdout


INDEX = """
import torch, torch_npu
weight = torch.ones(4, 2, dtype=torch.{dtype}).npu()
try:
    torch.nn.functional.embedding(torch.tensor([99]).npu(), weight)
    torch.npu.synchronize()
except RuntimeError as error:
    print(error)
"""


@pytest.mark.parametrize(("dtype", "status"), [("float32", 507035), ("float64", 507018)])
def test_what_torch_npu_makes_of_it(dtype: str, status: int) -> None:
    said = python(INDEX.format(dtype=dtype)).stdout
    assert f"error code is {status}" in said
    assert ("The vector core execution is abnormal" if status == 507035 else "The aicpu execution is abnormal") in said
    assert "index out of range" in said and "virtual NPU" in said


def test_a_compact_error_says_what_it_says_on_hardware() -> None:
    compact = {"TORCH_NPU_COMPACT_ERROR_OUTPUT": "1"}
    assert "CANN error: CANN Inner Error." in python(INDEX.format(dtype="float32"), **compact).stdout
    refused = """
import torch, torch_npu
try:
    torch.nn.functional.gelu(torch.ones(2, dtype=torch.int32).npu())
    torch.npu.synchronize()
except RuntimeError as error:
    print(error)
"""
    said = python(refused, **compact).stdout
    assert "CANN error: AclNN_Parameter_Error(EZ1001): Tensor self not implemented for DT_INT32" in said
