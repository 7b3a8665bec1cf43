"""What CANN's own checks say (opbase: op_error_check.h) stands in the first phases' answers, ours in brackets behind."""

from __future__ import annotations

from typing import Any

import aclnn
import pytest
import torch
from aclnn import INVALID_ARGUMENT, NULL_ARGUMENT
from oracle import DEVICE

pytestmark = pytest.mark.device
NAMES = [
    "null",
    "null scalar",
    "dtype",
    "another dtype",
    "unequal dtypes",
    "result",
    "shape of another",
    "shape",
    "broadcast",
    "broadcast into",
    "rank",
    "rank too low",
    "rank too high",
    "lengths",
    "dim",
    "half for half",
    "neighbour",
]


def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(*shape, dtype=dtype, device=DEVICE)


def cases() -> dict[str, tuple[str, tuple[Any, ...], int, str, str]]:
    """Operator, arguments, code, the words of CANN and ours."""
    x, y = zeros(2, 3), zeros(2, 3)
    half = torch.float16
    return {
        "null": (
            "aclnnAdd",
            (None, x, 1, y),
            NULL_ARGUMENT,
            "Expected a value of type [aclTensor] for argument [self] but instead found nullptr.",
            "[parameter self is null]",
        ),
        "null scalar": (
            "aclnnAdds",
            (x, None, 1, y),
            NULL_ARGUMENT,
            "Expected a value of type [aclScalar] for argument [other] but instead found nullptr.",
            "[parameter other is null]",
        ),
        "dtype": (
            "aclnnGelu",
            (x.int(), y.int()),
            INVALID_ARGUMENT,
            "Tensor self not implemented for DT_INT32, should be in dtype support list [DT_",
            "[parameter self has dtype int32, allowed are ",
        ),
        "another dtype": (
            "aclnnSoftmax",
            (x, 1, zeros(2, 3, dtype=torch.complex64)),
            INVALID_ARGUMENT,
            "not implemented for DT_COMPLEX64, should be in dtype support list [",
            "parameter out has dtype ComplexFloat, allowed are",
        ),
        "unequal dtypes": (
            "aclnnForeachAddListV2",
            ([x], [x.half()], 1, [x]),
            INVALID_ARGUMENT,
            "Expected both tensors to have same dtype, but found x1 DT_FLOAT and x2 DT_FLOAT16.",
            "[parameter x1 has dtype float32, expected float16",
        ),
        "result": (
            "aclnnAdd",
            (x, x, 1, y.int()),
            INVALID_ARGUMENT,
            "Result type DT_FLOAT can't be cast to the desired output type DT_INT32.",
            "[parameter out has dtype int32, which cannot hold the result's float32]",
        ),
        "shape of another": (
            "aclnnExp",
            (x, zeros(3, 2)),
            INVALID_ARGUMENT,
            "Expected tensor for out to have same size as tensor for self, but [3, 2] does not equal [2, 3].",
            "[parameter out has shape [3, 2], expected [2, 3], the shape of self]",
        ),
        "shape": (
            "aclnnAdd",
            (x, x, 1, zeros(3, 2)),
            INVALID_ARGUMENT,
            "Expected tensor for out to have same size as [2, 3], but got [3, 2].",
            "[parameter out has shape [3, 2], expected [2, 3], the broadcast shape of the inputs]",
        ),
        "broadcast": (
            "aclnnAdd",
            (x, zeros(4), 1, y),
            INVALID_ARGUMENT,
            "The size of tensor other [4] must match the size [2, 3].",
            "[parameter other has shape [4], which does not broadcast with [2, 3]]",
        ),
        "broadcast into": (
            "aclnnInplaceCopy",
            (x, zeros(4)),
            INVALID_ARGUMENT,
            "The size of tensor src [4] must match the size of tensor selfRef [2, 3].",
            "[parameter src has shape [4], which does not broadcast to [2, 3] of selfRef]",
        ),
        "rank": (
            "aclnnAddmm",
            (x, zeros(2), zeros(2, 3), 1, 1, y, 0),
            INVALID_ARGUMENT,
            "Expected 2 dimension input, but got mat1 with sizes [2].",
            "[parameter mat1 has 1 dimensions, allowed are [2]]",
        ),
        "rank too low": (
            "aclnnTriu",
            (zeros(2), 0, zeros(2)),
            INVALID_ARGUMENT,
            "The self tensor must have at least 2 dimensions.",
            "[parameter self has 1 dimensions, allowed are 2 and more]",
        ),
        "rank too high": (
            "aclnnExp",
            (zeros(*[1] * 9), zeros(*[1] * 9)),
            INVALID_ARGUMENT,
            "tensor cannot be larger than 8 dimensions.",
            "has 9 dimensions]",
        ),
        "lengths": (
            "aclnnForeachAddListV2",
            ([x, x], [x], 1, [x, x]),
            INVALID_ARGUMENT,
            "tensorlist must have the same number of tensors, but got",
            "[parameter x2 has 1 tensors, expected 2, as many as ",
        ),
        "dim": (
            "aclnnSoftmax",
            (x, 2, y),
            INVALID_ARGUMENT,
            "Provided dim 2 must be in the range of [-2, 1].",
            "[parameter dim is 2, allowed for self with 2 dimensions is [-2, 1]]",
        ),
        "half for half": ("aclnnGelu", (x.half(), zeros(2, 3, dtype=half)), 0, "", ""),
        "neighbour": ("aclnnAdd", (x, zeros(3), 1, y), 0, "", ""),
    }


@pytest.mark.parametrize("name", NAMES)
def test_both_wordings_are_found(name: str) -> None:
    operator, arguments, expected, theirs, ours = cases()[name]
    status, message = aclnn.first_phase(operator, *arguments)
    assert status == expected, message
    assert theirs in message
    assert ours in message
    assert message.index(theirs) <= message.index(ours)
    if expected:
        assert message.endswith(f"[virtual NPU, {operator}GetWorkspaceSize]")


def test_every_case_is_asked() -> None:
    assert sorted(cases()) == sorted(NAMES)
