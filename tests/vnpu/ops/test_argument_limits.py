"""What first phases refuse of arguments beside dtypes and ranks, asked by C name: torch, or torch_npu before any operator
of CANN, keeps most of these calls from them. Each stands in the sources that csrc/opapi names at its check."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from aclnn import INVALID_ARGUMENT, first_phase, run
from forked import python
from oracle import DEVICE

HALF, DOUBLE, SHORT, LONG = torch.float16, torch.float64, torch.int16, torch.int64
NAN = float("nan")


def x(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype, device=DEVICE)


def i(*shape: int, dtype: torch.dtype = LONG) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype, device=DEVICE)


# The operator, the arguments that it refuses, words of the message, and the nearest ones that pass.
Arguments = Callable[[], list[Any]]
Row = tuple[str, Arguments, str, Arguments]


def solved(dtype: torch.dtype, unit: bool) -> list[Any]:
    return [x(2, 2, dtype=dtype), x(2, 2, dtype=dtype), True, False, unit, *[x(2, 2, dtype=dtype)] * 2]


def drawn(categories: int) -> list[Any]:
    return [x(1).expand(categories), 1, False, 0, 0, i(1)]


def scattered(dtype: torch.dtype = torch.float32, reduce: int = 1, include: bool = True) -> list[Any]:
    values = x(2, 3, dtype=dtype)
    return [values, 0, i(1, 3), values, reduce, include, x(2, 3, dtype=dtype)]


MISTAKES: dict[str, Row] = {
    "take from nothing": (
        "aclnnTake",
        lambda: [x(0), i(1), x(1)],
        "take(): tried to take from an empty tensor",
        lambda: [x(0), i(0), x(0)],
    ),
    "put into nothing": (
        "aclnnInplacePut",
        lambda: [x(0), i(1), x(1), False],
        "Can not put elements into an empty tensor",
        lambda: [x(0), i(0), x(0), False],
    ),
    "softshrink": (
        "aclnnSoftshrink",
        lambda: [x(2), -0.5, x(2)],
        "lambd should be greater or equal to 0",
        lambda: [x(2), 0.0, x(2)],
    ),
    "the gradient of softshrink": (
        "aclnnSoftshrinkBackward",
        lambda: [x(2), x(2), -0.5, x(2)],
        "lambd should be greater or equal to 0",
        lambda: [x(2), x(2), 0.0, x(2)],
    ),
    "the gradient of leaky_relu in place": (
        "aclnnLeakyReluBackward",
        lambda: [x(2), x(2), -0.5, True, x(2)],
        "In-place leakyRelu backward calculation is triggered with a negativeSlope which is not supported",
        lambda: [x(2), x(2), -0.5, False, x(2)],
    ),
    "the gradient of elu in place": (
        "aclnnEluBackward",
        lambda: [x(2), -0.5, 1.0, 1.0, True, x(2), x(2)],
        "In-place elu backward calculation is triggered with a negative slope which is not supported",
        lambda: [x(2), 0.0, 1.0, 1.0, True, x(2), x(2)],
    ),
    "celu by 0": ("aclnnCelu", lambda: [x(2), 0.0, x(2)], "alpha cannot be 0 for CELU", lambda: [x(2), -1.0, x(2)]),
    "celu in place by nan": (
        "aclnnInplaceCelu",
        lambda: [x(2), NAN],
        "alpha cannot be 0 for CELU",
        lambda: [x(2), 1.0],
    ),
    "multinomial": (
        "aclnnMultinomial",
        lambda: drawn(2**24 + 1),
        "number of categories cannot exceed 2^24",
        lambda: drawn(2**24),
    ),
    "embedding_bag, weights of a mean": (
        "aclnnEmbeddingBag",
        lambda: bags(weights=x(2), mode=1),
        "per_sample_weights only supported with mode='sum'",
        lambda: bags(weights=x(2), mode=0),
    ),
    "embedding_bag, too few weights": (
        "aclnnEmbeddingBag",
        lambda: bags(weights=x(1), mode=0),
        "one for each index: parameter perSampleWeights is float32[1]",
        lambda: bags(weights=x(2), mode=0),
    ),
}


def bags(
    indices: torch.dtype = LONG, offsets: torch.dtype = LONG, weights: torch.Tensor | None = None, mode: int = 0
) -> list[Any]:
    index, offset = i(2, dtype=indices), i(1, dtype=offsets)
    return [x(3, 4), index, offset, False, mode, False, weights, False, -1, x(1, 4), i(2), i(1), i(1)]


def enlarged(name: str, sizes: list[int], *scales: float, out: int) -> Row:
    """The gradient of an image of 2 by 2 ..., made as large as these sizes, or `out` in its first dimension."""

    def arguments(size: int) -> list[Any]:
        output = [size, *sizes[1:]]
        given = scales or (0.0,) * len(sizes)
        smooth = [] if "Nearest" in name else [False]
        shape = [1, 1, *[2] * len(sizes)]
        return [x(1, 1, *output), output, shape, *smooth, *given, x(*shape)]

    words = {1: "scales is too large", 2: "scalesH and scalesW are too large", 3: "scalesD, scalesH and scalesW"}
    return name, lambda: arguments(sizes[0]), words[len(sizes)], lambda: arguments(out)


def normalised(*shape: int, statistics: tuple[int, ...] = (1, 2)) -> list[Any]:
    return [x(*shape), None, None, 1, 6, 1, 2, 1e-5, x(*shape), x(*statistics), x(*statistics)]


def pooled(dtype: torch.dtype, *sizes: int) -> list[Any]:
    return [x(1, 1, *sizes, dtype=dtype), *[x(1, 1, 4, 4, 4, dtype=dtype)] * 2]


def added(gamma: torch.Tensor) -> list[Any]:
    return [x(2, 1), x(2, 1), gamma, 1e-5, x(2, 1), x(2, 1), x(2, 1)]


LIMITS: dict[str, Row] = {
    "a unit triangle": (
        "aclnnTriangularSolve",
        lambda: solved(DOUBLE, True),
        "unitriangular mode only support float",
        lambda: solved(DOUBLE, False),
    ),
    "baddbmm, an empty product": (
        "aclnnBaddbmm",
        lambda: [x(1, 1, 1), x(0, 2, 3), x(0, 3, 4), 1, 1, x(0, 2, 4), 0],
        "self and batch1@batch2 should be both empty tensors, or not",
        lambda: [x(0, 2, 4), x(0, 2, 3), x(0, 3, 4), 1, 1, x(0, 2, 4), 0],
    ),
    "addbmm, an empty product": (
        "aclnnAddbmm",
        lambda: [x(1, 1), x(2, 0, 3), x(2, 3, 4), 1, 1, x(0, 4), 0],
        "should be both empty tensors, or not",
        lambda: [x(1, 1), x(0, 2, 3), x(0, 3, 4), 1, 1, x(2, 4), 0],
    ),
    "repeat": (
        "aclnnRepeat",
        lambda: [x(1), [1] * 9, x(1).reshape([1] * 9)],
        "repeats size should not be larger than 8",
        lambda: [x(1), [1] * 8, x(*[1] * 8)],
    ),
    "scatter_reduce, a product": (
        "aclnnScatterReduce",
        lambda: scattered(reduce=2),
        "scatter_reduce only supports dtype=float32, reduce=sum, include_self=true",
        scattered,
    ),
    "scatter_reduce in half precision": (
        "aclnnScatterReduce",
        lambda: scattered(HALF),
        "Tensor self not implemented for DT_FLOAT16",
        scattered,
    ),
    "scatter_reduce in place, without what is there": (
        "aclnnInplaceScatterReduce",
        lambda: scattered(include=False)[:-1],
        "include_self=true",
        lambda: scattered()[:-1],
    ),
    "linear, 501 times": enlarged("aclnnUpsampleLinear1dBackward", [1002], out=1000),
    "linear, by its scale": enlarged("aclnnUpsampleLinear1dBackward", [1001], 500.5, out=1002),
    "nearest-exact of a row": enlarged("aclnnUpsampleNearestExact1dBackward", [101], out=100),
    "nearest-exact of a plane": enlarged("aclnnUpsampleNearestExact2dBackward", [101, 2], out=100),
    "nearest-exact of a volume": enlarged("aclnnUpsampleNearestExact3dBackward", [101, 2, 2], out=100),
    "bilinear, antialiased": enlarged("aclnnUpsampleBilinear2dAABackward", [101, 2], out=100),
    "bicubic, antialiased": enlarged("aclnnUpsampleBicubic2dAAGrad", [101, 2], out=100),
    "nearest-exact of no rows": (
        "aclnnUpsampleNearestExact1dBackward",
        lambda: [x(0, 1, 4), [4], [0, 1, 2], 0.0, x(0, 1, 2)],
        "Input and output sizes should greater than 0",
        lambda: [x(1, 1, 4), [4], [1, 1, 2], 0.0, x(1, 1, 2)],
    ),
    "nearest-exact, an empty batch": (
        "aclnnUpsampleNearestExact1d",
        lambda: [x(0, 1, 2), [4], 0.0, x(0, 1, 4)],
        "Input and output sizes should greater than 0",
        lambda: [x(1, 1, 2), [4], 0.0, x(1, 1, 4)],
    ),
    "linear, no channels": (
        "aclnnUpsampleLinear1d",
        lambda: [x(1, 0, 2), [4], False, 0.0, x(1, 0, 4)],
        "Non-empty 3D data tensor expected but got a tensor with sizes",
        lambda: [x(0, 1, 2), [4], False, 0.0, x(0, 1, 4)],
    ),
    "bicubic, no channels": (
        "aclnnUpsampleBicubic2d",
        lambda: [x(1, 0, 2, 2), [4, 4], False, 0.0, 0.0, x(1, 0, 4, 4)],
        "Non-empty 4D data tensor expected but got a tensor with sizes",
        lambda: [x(0, 1, 2, 2), [4, 4], False, 0.0, 0.0, x(0, 1, 4, 4)],
    ),
    "bilinear, antialiased, of no planes": (
        "aclnnUpsampleBilinear2dAABackward",
        lambda: [x(0, 1, 4, 4), [4, 4], [0, 1, 2, 2], False, 0.0, 0.0, x(0, 1, 2, 2)],
        "Input and output sizes should greater than 0",
        lambda: [x(1, 1, 4, 4), [4, 4], [1, 1, 2, 2], False, 0.0, 0.0, x(1, 1, 2, 2)],
    ),
    "group_norm of a vector": (
        "aclnnGroupNorm",
        lambda: normalised(6),
        "The self tensor must have at least 2 dimensions",
        lambda: normalised(1, 6),
    ),
    "group_norm, other channels": (
        "aclnnGroupNorm",
        lambda: normalised(2, 3),
        "Expected self.shape[0] == N and self.shape[1] == C to be true",
        lambda: normalised(1, 6),
    ),
    "group_norm, flat statistics": (
        "aclnnGroupNorm",
        lambda: normalised(1, 6, statistics=(2,)),
        "expected N x group = [1, 2]",
        lambda: normalised(1, 6),
    ),
    "the gradient of unfolding a number": (
        "aclnnUnfoldGrad",
        lambda: [x(1), [], 0, 1, 1, x()],
        "The gradIn tensor must have at least 1 dimensions",
        lambda: [x(1, 1), [1], 0, 1, 1, x(1)],
    ),
    "add_rms_norm, a number": (
        "aclnnAddRmsNorm",
        lambda: added(x()),
        "The gamma tensor must have at least 1 dimensions",
        lambda: added(x(1)),
    ),
    "embedding_bag, short indices": (
        "aclnnEmbeddingBag",
        lambda: bags(SHORT, SHORT),
        "indices or offsets must has one dtype in [int32, int64]",
        lambda: bags(SHORT, LONG),
    ),
    "the gradient of means in float64": (
        "aclnnAdaptiveAvgPool3dBackward",
        lambda: pooled(DOUBLE, 2, 1, 1),
        "Tensor gradOutput not implemented for DT_DOUBLE",
        lambda: pooled(DOUBLE, 1, 1, 1),
    ),
}


@pytest.mark.parametrize("case", MISTAKES | LIMITS)
def test_what_is_refused(case: str) -> None:
    name, refused, words, _ = (MISTAKES | LIMITS)[case]
    status, message = first_phase(name, *refused())
    assert status == INVALID_ARGUMENT and words in message, message
    assert ("with VNPU_CHECKS=any" in message) == (case in LIMITS), message


LIFTED = """
import sys
sys.path.insert(0, {folder!r})
from aclnn import run
from test_argument_limits import LIMITS
for name, refused, *_ in LIMITS.values():
    run(name, *refused())
print(len(LIMITS))
"""


def test_the_switch_lifts_the_limits() -> None:
    ended = python(LIFTED.format(folder=str(Path(__file__).parent)), VNPU_CHECKS="any")
    assert ended.stdout == f"{len(LIMITS)}\n", ended.stderr


OLDER = """
import sys
sys.path.insert(0, {folder!r})
import torch
from aclnn import first_phase
from test_argument_limits import DOUBLE, enlarged, pooled
print(*first_phase("aclnnAdaptiveAvgPool3dBackward", *pooled(torch.float32, 2, 1, 1)))
print(*first_phase("aclnnAdaptiveAvgPool3dBackward", *pooled(DOUBLE, 1, 1, 1)))
name, far, *_ = enlarged("aclnnUpsampleLinear1dBackward", [1002], out=1000)
print(*first_phase(name, *far()))
"""


def test_an_older_chip_has_limits_of_its_own() -> None:
    """A 910A has gradients of one mean only, in float64 too, and a row may be made as long as one likes."""
    ended = python(OLDER.format(folder=str(Path(__file__).parent)), VNPU_SOC="Ascend910A")
    refused, mean, far = ended.stdout.splitlines()
    words = "adaptive_avg_pool3d_backward only support D=1 && H=1 && W=1 on 910A"
    assert refused.startswith(f"{INVALID_ARGUMENT} ") and words in refused, ended
    assert mean.strip() == far.strip() == "0", ended


@pytest.mark.parametrize("case", MISTAKES | LIMITS)
def test_the_neighbour_that_passes(case: str) -> None:
    name, _, _, taken = (MISTAKES | LIMITS)[case]
    run(name, *taken())
