"""dtypes.json: what CANN's documentation offers for Ascend 910B, and the switch that allows more."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from aclnn import DTYPES, INVALID_ARGUMENT, first_phase
from forked import python
from oracle import DEVICE

F = torch.nn.functional
DOCUMENTED: dict[str, dict[str, str]] = json.loads(
    (Path(__file__).parents[3] / "csrc/opapi/aclnn/dtypes.json").read_text(encoding="utf-8")
)


def x(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.ones(*shape, dtype=dtype, device=DEVICE)


LACKING: dict[str, Callable[[], object]] = {
    "matrix product": lambda: x(2, 3) @ x(3, 2),
    "batched product": lambda: torch.bmm(x(2, 3, 4), x(2, 4, 3)),
    "linear": lambda: F.linear(x(2, 3), x(4, 3), x(4)),
    "convolution": lambda: F.conv2d(x(1, 2, 5, 5), x(3, 2, 3, 3)),
    "transposed convolution": lambda: F.conv_transpose2d(x(1, 2, 5, 5), x(2, 3, 3, 3)),
    "batch norm": lambda: F.batch_norm(x(2, 3, 4, 4), x(3), x(3), training=True),
    "layer norm": lambda: F.layer_norm(x(2, 3), (3,)),
    "gelu": lambda: F.gelu(x(3)),
    "average pooling": lambda: F.avg_pool2d(x(1, 2, 4, 4), 2),
    "integer product": lambda: x(2, 3, dtype=torch.int32) @ x(3, 2, dtype=torch.int32),
    "integer sigmoid": lambda: x(3, dtype=torch.int64).sigmoid(),
}


@pytest.mark.parametrize("name", LACKING)
def test_what_the_chip_lacks_is_refused(name: str) -> None:
    with pytest.raises(RuntimeError) as error:
        LACKING[name]()
    found = str(error.value)
    assert f"error code is {INVALID_ARGUMENT}" in found or str(INVALID_ARGUMENT) in found
    assert re.search(r"parameter \w+ has dtype \w+, allowed are .*float32.* on Ascend910B1", found)
    assert "VNPU_DTYPES=any" in found


def test_what_is_documented_is_allowed() -> None:
    """float64 where the AI CPU has it, and what moves values."""
    assert (x(3) + x(3)).tolist() == [2] * 3 and x(3).exp().sum().item() == pytest.approx(
        3 * 2.718281828459045
    )
    assert torch.cat([x(2), x(1)]).cumsum(0).tolist() == [1, 2, 3]


NAMES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64}
NAMES |= {"i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64, "u8": torch.uint8}
NAMES |= {"bool": torch.bool, "c64": torch.complex64, "c128": torch.complex128}
SAME_ALL_OVER = [
    "aclnnAbs",
    "aclnnAtan2",
    "aclnnFloor",
    "aclnnRsqrt",
    "aclnnSilu",
    "aclnnMish",
    "aclnnHardswish",
]


@pytest.mark.parametrize("operator", SAME_ALL_OVER)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype)[6:])
def test_the_first_phase_follows_the_table(operator: str, dtype: torch.dtype) -> None:
    """Operators whose tensors have one dtype: each of them must be documented for it."""
    sets = DOCUMENTED[operator]
    parameters = sum(len(group.split()) for group in sets.values())
    allowed = all(any(NAMES.get(one) == dtype for one in each.split()) for each in sets)
    status, message = first_phase(operator, *[x(2, 3, dtype=dtype)] * parameters)
    if allowed:
        assert status == 0, message
    else:
        assert status == INVALID_ARGUMENT and "has dtype" in message


PROGRAM = """
from torchport import vnpu
vnpu.activate(force=True)
import torch, torch_npu
torch.manual_seed(0)
x, w = torch.randn(4, 3, dtype=torch.float64), torch.randn(3, 5, dtype=torch.float64)
image, kernel = torch.randn(1, 2, 5, 5, dtype=torch.float64), torch.randn(3, 2, 3, 3, dtype=torch.float64)
torch.testing.assert_close((x.npu() @ w.npu()).cpu(), x @ w, rtol=1e-14, atol=1e-14)
f = torch.nn.functional
torch.testing.assert_close(f.conv2d(image.npu(), kernel.npu()).cpu(), f.conv2d(image, kernel), rtol=1e-13, atol=1e-13)
torch.testing.assert_close(f.gelu(x.npu()).cpu(), f.gelu(x), rtol=1e-14, atol=1e-14)
torch.testing.assert_close(f.layer_norm(x.npu(), (3,)).cpu(), f.layer_norm(x, (3,)), rtol=1e-13, atol=1e-13)
try:
    torch.ones(3).npu().gather(0, torch.zeros(1).npu())
except RuntimeError as error:
    print("kept:", error)
"""


def test_the_switch_allows_them() -> None:
    ended = python(PROGRAM, VNPU_DTYPES="any")
    assert ended.returncode == 0 and "kept:" in ended.stdout, ended.stderr


def test_a_chip_without_bfloat16_refuses_it() -> None:
    program = (
        "from torchport import vnpu\nvnpu.activate(force=True)\nimport torch, torch_npu\n"
        "try:\n    print(torch.ones(3, dtype=torch.bfloat16, device='npu').exp())\n"
        "except RuntimeError as error:\n    print(error)"
    )
    ended = python(program, VNPU_SOC="Ascend910A")
    assert re.search(r"has dtype bfloat16, allowed are .*float16.* on Ascend910A", ended.stdout), ended.stdout
