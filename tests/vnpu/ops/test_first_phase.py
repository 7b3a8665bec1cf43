"""What the first phase knows to be wrong does not reach the second, where it would stop the stream.

Every argument of a right call of each operator that models use (calls.py) is changed: dtypes, ranks, sizes, null,
lists, numbers. The first phase refuses, with CANN's code and a sentence, or the kernel does the work. (All of it takes
a minute: `pytest tests/vnpu/ops/test_first_phase.py -m sanitized`.)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from aclnn import DTYPES, INVALID_ARGUMENT, NULL_ARGUMENT, SIGNATURES, first_phase, run
from calls import CALLS

from torchport import vnpu

HALF, LONG, BOOL, BYTE, DOUBLE = torch.float16, torch.int64, torch.bool, torch.uint8, torch.float64


def npu(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype, device="npu")


def index(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=LONG, device="npu")


# operator, the parameter to change, what to, words of the message
WRONG: list[tuple[str, str, Any, str]] = [
    ("aclnnAdd", "alpha", True, "alpha is true"),
    ("aclnnRsubs", "other", True, "other has dtype bool"),
    ("aclnnAll", "dim", [1, -1], "names dimension 1 of self twice"),
    ("aclnnMean", "dim", [1, 1], "names dimension 1 of self twice"),
    ("aclnnLinalgVectorNorm", "dtype", LONG, "a norm is a floating-point number"),
    ("aclnnFlip", "dims", [0, -2], "names a dimension twice"),
    ("aclnnArange", "out", torch.zeros(4, dtype=LONG), "step is 0.5, which is 0"),
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
    ("aclnnForeachAddListV2", "alpha", True, "alpha has dtype bool"),
    ("aclnnGelu", "out", torch.ones(2, 3, dtype=HALF), "out has dtype float16"),
    ("aclnnConvolution", "weight", None, "weight is null"),
    ("aclnnUpsampleBilinear2d", "self", torch.ones(1, 2, 3, 0), "there is nothing to resize"),
    ("aclnnSmoothL1Loss", "beta", -1.0, "beta is -1"),
    ("aclnnLinspace", "end", 1e300, "numbers that float32 holds"),
    ("aclnnFlashAttentionScore", "scaleValue", 1e300, "numbers that float32 holds"),
    ("aclnnMaxPool2dWithMask", "out", torch.ones(1, 2, 2, 2, dtype=HALF), "out has dtype float16"),
]


WITHOUT_A_PLAN = (561002, 561103)  # what limits.h answers if an operator's kernel, or one of several, has none


def on_npu(value: Any) -> Any:
    if isinstance(value, list) and any(isinstance(one, torch.Tensor) for one in value):
        return [one.npu() for one in value]
    return value.npu() if isinstance(value, torch.Tensor) else value


def other_tensors(tensor: torch.Tensor) -> Iterator[torch.Tensor | None]:
    """What may stand in `tensor`'s place, right or wrong."""
    yield None
    for dtype in DTYPES:
        if dtype != tensor.dtype:
            yield tensor.to(dtype)
    yield tensor.unsqueeze(0)
    yield tensor.new_ones(())
    if tensor.dim():
        yield tensor[0]
        yield tensor[..., :0]
        yield torch.cat([tensor, tensor], -1)
        yield torch.cat([tensor, tensor], 0)
        yield tensor.transpose(0, -1)


@pytest.mark.parametrize("name", CALLS)
def test_the_call_itself_is_right(name: str) -> None:
    run(name, *CALLS[name]())


NUMBERS = (True, False, 0, 1, -1, 3, 2**62, 0.0, 0.5, -2.5, 1e300, -1e300, math.inf, math.nan)
INTEGERS = (-(2**40), -100, -3, -2, -1, 0, 1, 2, 3, 100, 2**40)
BYTES = (-1, 0, 1, 2, 3, 100)
REALS = (-1.0, 0.0, 0.25, 1.0, 2.0, 1e300, math.inf, math.nan)
PLAIN: dict[str, tuple[Any, ...]] = {
    "aclScalar*": (None, *NUMBERS),
    "int64_t": INTEGERS,
    "int": BYTES,
    "int32_t": BYTES,
    "int8_t": BYTES,
    "uint64_t": (0, 2**63),
    "double": REALS,
    "float": REALS,
    "bool": (True, False),
    "aclDataType": tuple(DTYPES),
    "char*": ("", "TND", "SBH", "nonsense"),
}


def other_values(kind: str, value: Any) -> Iterator[Any]:
    """What may be given instead of `value` for a parameter of CANN's type `kind`."""
    kind = kind.removeprefix("const ").strip()
    if kind in PLAIN:
        yield from PLAIN[kind]
    elif kind == "aclTensor*":
        yield from other_tensors(torch.ones(2, 3, device="npu") if value is None else value)
    elif kind == "aclTensorList*":
        if value is None:
            return
        yield from (None, [], value[1:], [*value, value[-1]])
        for i, tensor in enumerate(value):
            yield from ([*value[:i], other, *value[i + 1 :]] for other in other_tensors(tensor))
    elif kind == "aclScalarList*":
        yield from (None, [], value[1:], *([number] * len(value) for number in NUMBERS))
    else:
        yield from (None, [], [*value, value[-1]] if value else [1])
        if value and kind == "aclIntArray*":
            yield from ([number] * len(value) for number in INTEGERS)


def test_there_is_a_call_for_each_operator_that_models_use() -> None:
    assert {row["name"] for row in vnpu.operators() if row["tier"] == 1} <= CALLS.keys()


@pytest.mark.sanitized
@pytest.mark.parametrize("name", CALLS)
def test_whatever_is_given_does_not_stop_the_stream(name: str) -> None:
    for place, (kind, parameter, _) in enumerate(SIGNATURES[name]["params"]):
        for value in list(other_values(kind, CALLS[name]()[place])):
            arguments = CALLS[name]()
            arguments[place] = value
            status, message = first_phase(name, *arguments)
            if status == 0:
                run(name, *arguments)
            else:
                assert status in (INVALID_ARGUMENT, NULL_ARGUMENT, *WITHOUT_A_PLAN), (parameter, value, message)
                assert "parameter" in message, (parameter, value, message)


NUMBERED = [name for name in CALLS if any("aclScalar" in kind for kind, *_ in SIGNATURES[name]["params"])]


def in_dtype(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, list):
        return [in_dtype(one, dtype) for one in value]
    return value.to(dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value


@pytest.mark.sanitized
@pytest.mark.parametrize("dtype", [HALF, torch.bfloat16, torch.int32])
@pytest.mark.parametrize("name", NUMBERED)
def test_numbers_beside_other_dtypes_do_not_stop_the_stream(name: str, dtype: torch.dtype) -> None:
    for place, (kind, _, _) in enumerate(SIGNATURES[name]["params"]):
        if "aclScalar" not in kind:
            continue
        for value in list(other_values(kind, CALLS[name]()[place])):
            arguments = in_dtype(CALLS[name](), dtype)
            arguments[place] = value
            status, message = first_phase(name, *arguments)
            if status == 0:
                run(name, *arguments)
            else:
                assert status in (INVALID_ARGUMENT, NULL_ARGUMENT) and "parameter" in message, message


def test_a_number_past_the_range_becomes_an_infinity() -> None:
    """As the hardware's cast does; ATen stops."""
    for dtype in (torch.float32, HALF):
        x, out = npu(3, dtype=dtype), npu(3, dtype=dtype)
        run("aclnnAdd", x, x, -1e300, out)
        assert out.tolist() == [-math.inf] * 3
        run("aclnnForeachAddListV2", [x], [x], 1e300, [out])
        assert out.tolist() == [math.inf] * 3
        run("aclnnThresholdBackward", x, x, 1e300, out)
        assert out.tolist() == [0] * 3
    x, out = npu(3, dtype=HALF), npu(3, dtype=HALF)
    run("aclnnSub", x, x, 2**62, out)  # an integer that float32 holds
    assert out.tolist() == [-math.inf] * 3
    run("aclnnForeachAddListV2", [x], [x], 2**62, [out])
    assert out.tolist() == [math.inf] * 3


@pytest.mark.parametrize(("name", "parameter", "value", "words"), WRONG)
def test_the_first_phase_says_what_is_wrong(name: str, parameter: str, value: Any, words: str) -> None:
    arguments = CALLS[name]()
    arguments[[given for _, given, _ in SIGNATURES[name]["params"]].index(parameter)] = on_npu(value)
    status, message = first_phase(name, *arguments)
    assert status in (INVALID_ARGUMENT, NULL_ARGUMENT), message
    assert words in message, message


@pytest.mark.parametrize("shape", [(), (1,), (3, 1), (3, 5)])
def test_values_that_fit_the_places_of_a_mask(shape: tuple[int, ...]) -> None:
    mask = torch.tensor([1, 0, 1, 1], dtype=BOOL, device="npu")
    x = torch.zeros(4, 5, device="npu")
    run("aclnnIndexPutImpl", x, [mask], npu(*shape), False, False)
    assert x.sum(1).tolist() == [5, 0, 5, 5]
    status, message = first_phase("aclnnIndexPutImpl", x, [mask], npu(3, 2), False, False)
    assert status == INVALID_ARGUMENT and "does not fit the places of the mask" in message, message


def test_results_of_another_dtype() -> None:
    """CANN lets them be what the operand can be cast to; ATen's kernels keep the operand's."""
    x = torch.tensor([-1.5, 2.25, 3.75], device="npu")
    for name, expected in (("aclnnNeg", -x), ("aclnnAbs", x.abs())):
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
