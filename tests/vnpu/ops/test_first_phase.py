"""What the first phase knows to be wrong does not reach the second, where it would stop the stream.

One call for each operator, and what must not be changed in it: found by changing every argument of the operators
that models use (dtypes, ranks, sizes, null, lists) and looking for failures of the kernel.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from aclnn import INVALID_ARGUMENT, NULL_ARGUMENT, SIGNATURES, first_phase, run

HALF, LONG, BOOL, DOUBLE = torch.float16, torch.int64, torch.bool, torch.float64


def npu(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype, device="npu")


def index(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=LONG, device="npu")


CALLS: dict[str, Any] = {
    "aclnnAdd": lambda: [npu(2, 3), npu(3), 1, npu(2, 3)],
    "aclnnSubs": lambda: [npu(2, 3), 1, 1, npu(2, 3)],
    "aclnnAll": lambda: [npu(2, 3, dtype=BOOL), [1], False, npu(2, dtype=BOOL)],
    "aclnnMean": lambda: [npu(2, 3), [1], False, torch.float32, npu(2)],
    "aclnnLinalgVectorNorm": lambda: [npu(2, 3), 2.0, [1], False, torch.float32, npu(2)],
    "aclnnFlip": lambda: [npu(2, 3), [0], npu(2, 3)],
    "aclnnArange": lambda: [0, 2, 0.5, npu(4)],
    "aclnnAmpUpdateScale": lambda: [
        npu(1), npu(1, dtype=torch.int32), npu(1), 2.0, 0.5, 3, npu(1), npu(1, dtype=torch.int32),
    ],
    "aclnnBatchNorm": lambda: [
        npu(2, 3, 4), npu(3), npu(3), npu(3), npu(3), True, 0.1, 1e-5, npu(2, 3, 4), npu(3), npu(3),
    ],
    "aclnnBatchNormBackward": lambda: [
        npu(2, 3, 4), npu(2, 3, 4), npu(3), npu(3), npu(3), npu(3), npu(3), True, 1e-5, [True] * 3,
        npu(2, 3, 4), npu(3), npu(3),
    ],
    "aclnnLayerNormBackward": lambda: [
        npu(2, 3), npu(2, 3), [3], npu(2, 1), npu(2, 1), npu(3), npu(3), [True] * 3,
        npu(2, 3), npu(3), npu(3),
    ],
    "aclnnEmbedding": lambda: [npu(4, 3), index(2), npu(2, 3)],
    "aclnnGather": lambda: [npu(4, 3), 0, index(2, 3), npu(2, 3)],
    "aclnnGeluBackward": lambda: [npu(2, 3), npu(2, 3), npu(2, 3)],
    "aclnnRelu": lambda: [npu(2, 3), npu(2, 3)],
    "aclnnThresholdBackward": lambda: [npu(2, 3), npu(2, 3), 0.0, npu(2, 3)],
    "aclnnSoftmaxBackward": lambda: [npu(2, 3), npu(2, 3), 1, npu(2, 3)],
    "aclnnIndex": lambda: [npu(4, 5, 6), [index(2, 1), index(3)], npu(2, 3, 6)],
    "aclnnIndexPutImpl": lambda: [npu(4, 5), [index(3)], npu(3, 5), False, False],
    "aclnnL1Loss": lambda: [npu(2, 3), npu(2, 3), 1, npu()],
    "aclnnNLLLossBackward": lambda: [
        npu(), npu(2, 3), index(2), npu(3), 1, -100, npu(), npu(2, 3),
    ],
    "aclnnMaxPool2dWithMask": lambda: [
        npu(1, 2, 4, 4), [2, 2], [2, 2], [0, 0], [1, 1], False, npu(1, 2, 2, 2),
        torch.zeros(1, 2, 4, 64, dtype=torch.int8).npu(),
    ],
}  # fmt: skip

# operator, the parameter to change, what to, words of the message
WRONG: list[tuple[str, str, Any, str]] = [
    ("aclnnAdd", "alpha", True, "alpha is true"),
    ("aclnnSubs", "other", True, "other is a boolean"),
    ("aclnnAll", "dim", [1, -1], "names dimension 1 of self twice"),
    ("aclnnMean", "dim", [1, 1], "names dimension 1 of self twice"),
    ("aclnnLinalgVectorNorm", "dtype", LONG, "a norm is a floating-point number"),
    ("aclnnFlip", "dims", [0, -2], "names a dimension twice"),
    ("aclnnArange", "out", index(4).cpu(), "step is 0.5, which is 0"),
    ("aclnnAmpUpdateScale", "updatedScale", torch.ones(()), "updatedScale has shape []"),
    ("aclnnBatchNorm", "output", torch.ones(2, 3, 4, dtype=HALF), "output has dtype float16"),
    ("aclnnBatchNorm", "runningVar", None, "one is null"),
    ("aclnnBatchNormBackward", "saveMean", None, "saveMean is null"),
    ("aclnnBatchNormBackward", "saveInvstd", torch.ones(3, dtype=LONG), "saveInvstd has dtype int64"),
    ("aclnnLayerNormBackward", "rstd", torch.ones(2, 1, dtype=DOUBLE), "rstd has dtype float64"),
    ("aclnnLayerNormBackward", "weightOptional", None, "outputMask asks for its gradient"),
    ("aclnnEmbedding", "weight", torch.ones(0, 3), "it has no rows to take"),
    ("aclnnGather", "self", torch.ones(0, 3), "nothing to index along dim 0"),
    ("aclnnGeluBackward", "gradOutput", torch.ones(2, 3, dtype=LONG), "gradOutput has dtype int64"),
    ("aclnnRelu", "out", torch.ones(2, 3, dtype=HALF), "out has dtype float16"),
    ("aclnnThresholdBackward", "out", torch.ones(2, 3, dtype=LONG), "out has dtype int64"),
    ("aclnnSoftmaxBackward", "output", torch.ones(2, 3, dtype=DOUBLE), "has dtype"),
    ("aclnnIndex", "indices", [], "indices is empty"),
    ("aclnnIndex", "indices", [torch.zeros(2, dtype=LONG), torch.zeros(3, dtype=LONG)], "does not broadcast"),
    ("aclnnIndex", "indices", [torch.ones(3, dtype=BOOL)], "does not fit float32[4, 5, 6]"),
    ("aclnnIndex", "out", torch.ones(2, 3), "out has shape [2, 3], expected [2, 3, 6]"),
    ("aclnnIndexPutImpl", "values", torch.ones(2, 5), "does not broadcast to the 15 places"),
    ("aclnnL1Loss", "target", torch.ones(2, 4), "does not broadcast with self"),
    ("aclnnNLLLossBackward", "gradOutput", torch.ones((), dtype=LONG), "gradOutput has dtype int64"),
    ("aclnnMaxPool2dWithMask", "out", torch.ones(1, 2, 2, 2, dtype=HALF), "out has dtype float16"),
]  # fmt: skip


def on_npu(value: Any) -> Any:
    if isinstance(value, list) and any(isinstance(one, torch.Tensor) for one in value):
        return [one.npu() for one in value]
    return value.npu() if isinstance(value, torch.Tensor) else value


@pytest.mark.parametrize("name", CALLS)
def test_the_call_itself_is_right(name: str) -> None:
    run(name, *CALLS[name]())


@pytest.mark.parametrize(("name", "parameter", "value", "words"), WRONG)
def test_the_first_phase_says_what_is_wrong(name: str, parameter: str, value: Any, words: str) -> None:
    arguments = CALLS[name]()
    arguments[[given for _, given, _ in SIGNATURES[name]["params"]].index(parameter)] = on_npu(value)
    status, message = first_phase(name, *arguments)
    assert status in (INVALID_ARGUMENT, NULL_ARGUMENT), message
    assert words in message, message


def test_results_of_another_dtype() -> None:
    """CANN lets them be what the operand can be cast to; ATen's kernels keep the operand's."""
    x = torch.tensor([-1.5, 2.25, 3.75], device="npu")
    for name, expected in (("aclnnNeg", -x), ("aclnnFloor", x.floor()), ("aclnnAbs", x.abs())):
        out = torch.empty(3, dtype=HALF, device="npu")
        run(name, x, out)
        assert torch.equal(out.float(), expected), name
    out = torch.empty(3, dtype=HALF, device="npu")
    run("aclnnClamp", x, 0.5, 3.0, out)
    assert out.tolist() == [0.5, 2.25, 3.0]


@pytest.mark.parametrize(
    ("subscripts", "shape"),
    [
        (lambda: [index(2, 1), index(3)], (2, 3, 6)),
        (lambda: [torch.empty(0, device="npu"), index(2, 3)], (4, 2, 3, 6)),
        (lambda: [index(2), torch.empty(0, device="npu"), index(2)], (2, 5)),
        (lambda: [torch.empty(0, device="npu"), index(2), index(1)], (4, 2)),
    ],
)
def test_the_shape_of_a_subscripted_tensor(subscripts: Any, shape: tuple[int, ...]) -> None:
    run("aclnnIndex", npu(4, 5, 6), subscripts(), npu(*shape))
    status, message = first_phase("aclnnIndex", npu(4, 5, 6), subscripts(), npu(*shape, 1))
    assert status == INVALID_ARGUMENT and "out has shape" in message, message
