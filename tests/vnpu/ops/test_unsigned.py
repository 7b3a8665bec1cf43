"""uint16, uint32 and uint64, most of which ATen's CPU kernels do not know: against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from aclnn import INVALID_ARGUMENT, first_phase, run

U16, U32, U64 = torch.uint16, torch.uint32, torch.uint64
UNSIGNED = [U16, U32, U64]
COMPARISONS = {"Gt": np.greater, "Ge": np.greater_equal, "Lt": np.less, "Le": np.less_equal}
Numbers = np.ndarray[Any, Any]


def numbers(dtype: torch.dtype, *shape: int) -> Numbers:
    """Numbers on both sides of where a signed one of the width turns negative."""
    last = torch.iinfo(dtype).max
    values = np.array([0, 1, 2, 7, last // 2, last // 2 + 1, last - 1, last], dtype=str(dtype).split(".")[1])
    return values.reshape(shape or values.shape)


def on_npu(values: Numbers) -> torch.Tensor:
    return torch.from_numpy(values.copy()).npu()


def result(name: str, *arguments: Any, like: Numbers) -> Numbers:
    """What the operator writes into an output of that shape and dtype, which is its last parameter."""
    out = on_npu(np.zeros_like(like))
    run(name, *arguments, out)
    answer: Numbers = out.cpu().numpy()
    return answer


def equal(found: Numbers, expected: Numbers) -> None:
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def offered(name: str) -> list[torch.dtype]:
    return [U16] if name == "Le" else UNSIGNED


PAIRS = [(name, dtype) for name in COMPARISONS for dtype in offered(name)]


@pytest.mark.parametrize(("name", "dtype"), PAIRS)
def test_comparison(name: str, dtype: torch.dtype) -> None:
    x = numbers(dtype)
    y = x[::-1].copy()
    expected = COMPARISONS[name](x[:, None], y[None, :])
    equal(result(f"aclnn{name}Tensor", on_npu(x)[:, None], on_npu(y)[None, :], like=expected), expected)
    equal(result(f"aclnn{name}Scalar", on_npu(x), y[2], like=expected[:, 2]), expected[:, 2].copy())
    place = on_npu(x)
    run(f"aclnnInplace{name}Tensor", place, on_npu(y))
    equal(place.cpu().numpy(), COMPARISONS[name](x, y).astype(x.dtype))
    place = on_npu(x)
    run(f"aclnnInplace{name}Scalar", place, y[4])
    equal(place.cpu().numpy(), COMPARISONS[name](x, y[4]).astype(x.dtype))


def test_whole_tensors_are_equal_or_not() -> None:
    x = numbers(U64)
    other = x.copy()
    other[-1] -= np.uint64(1)
    for second, expected in ((x, True), (other, False)):
        equal(result("aclnnEqual", on_npu(x), on_npu(second), like=np.array([False])), np.array([expected]))


BITS: dict[str, tuple[Callable[..., Numbers], list[torch.dtype]]] = {
    "And": (np.bitwise_and, [U16]),
    "Or": (np.bitwise_or, UNSIGNED),
}


@pytest.mark.parametrize(("name", "dtype"), [(name, dtype) for name in BITS for dtype in BITS[name][1]])
def test_bits(name: str, dtype: torch.dtype) -> None:
    x = numbers(dtype)
    expected = BITS[name][0](x, x[::-1])
    equal(result(f"aclnnBitwise{name}Tensor", on_npu(x), on_npu(x[::-1]), like=x), expected)
    if dtype is U16:
        by_number = BITS[name][0](x, x[5])
        equal(result(f"aclnnBitwise{name}Scalar", on_npu(x), x[5], like=x), by_number)


@pytest.mark.parametrize("dtype", UNSIGNED)
def test_shifts(dtype: torch.dtype) -> None:
    x = numbers(dtype)
    places = np.array([0, 1, 3, 7, 8, 13, 15, 15], dtype=x.dtype)
    equal(result("aclnnLeftShift", on_npu(x), on_npu(places), like=x), np.left_shift(x, places))
    equal(result("aclnnRightShift", on_npu(x), on_npu(places), like=x), np.right_shift(x, places))
    equal(result("aclnnLeftShifts", on_npu(x), places[2], like=x), np.left_shift(x, places[2]))


INDEX = np.array([3, 0, 0, 2])
MOVES: dict[str, Callable[[Numbers], tuple[tuple[Any, ...], Numbers]]] = {
    "aclnnGather": lambda x: (
        (on_npu(x), 1, on_npu(INDEX.reshape(2, 2))),
        np.take_along_axis(x, INDEX.reshape(2, 2), 1),
    ),
    "aclnnIndexSelect": lambda x: ((on_npu(x), 1, on_npu(INDEX)), x[:, INDEX]),
    "aclnnTake": lambda x: ((on_npu(x), on_npu(INDEX)), x.reshape(-1)[INDEX]),
    "aclnnTril": lambda x: ((on_npu(x), 0), np.tril(x)),
    "aclnnTriu": lambda x: ((on_npu(x), 1), np.triu(x, 1)),
    "aclnnRepeat": lambda x: ((on_npu(x), [2, 3]), np.tile(x, (2, 3))),
    "aclnnStack": lambda x: (([on_npu(x), on_npu(x[::-1])], 1), np.stack([x, x[::-1]], 1)),
    "aclnnFloor": lambda x: ((on_npu(x),), x),
    "aclnnSignbit": lambda x: ((on_npu(x),), np.zeros(x.shape, bool)),
}


@pytest.mark.parametrize("dtype", UNSIGNED)
@pytest.mark.parametrize("name", MOVES)
def test_elements_are_moved(name: str, dtype: torch.dtype) -> None:
    arguments, expected = MOVES[name](numbers(dtype, 2, 4))
    equal(result(name, *arguments, like=expected), np.ascontiguousarray(expected))


@pytest.mark.parametrize("dtype", UNSIGNED)
def test_triangles_in_place_and_of_a_transposed_matrix(dtype: torch.dtype) -> None:
    x = numbers(dtype, 2, 4)
    place = on_npu(x)
    run("aclnnInplaceTril", place.mT, 0)
    equal(place.cpu().numpy(), np.tril(x.T).T.copy())
    run("aclnnInplaceTriu", place, 0)
    equal(place.cpu().numpy(), np.triu(np.tril(x.T).T))


@pytest.mark.parametrize("dtype", UNSIGNED)
def test_choice(dtype: torch.dtype) -> None:
    x = numbers(dtype, 2, 4)
    condition = np.array([True, False, False, True])
    equal(result("aclnnSWhere", on_npu(condition), on_npu(x), on_npu(x[::-1]), like=x), np.where(condition, x, x[::-1]))


def test_roll() -> None:
    x = numbers(U32, 2, 4)
    equal(result("aclnnRoll", on_npu(x), [1], [1], like=x), np.roll(x, 1, 1))


@pytest.mark.parametrize("dtype", UNSIGNED)
def test_floor_in_place(dtype: torch.dtype) -> None:
    place = on_npu(numbers(dtype))
    run("aclnnInplaceFloor", place)
    equal(place.cpu().numpy(), numbers(dtype))


@pytest.mark.parametrize("dtype", UNSIGNED)
def test_what_is_found(dtype: torch.dtype) -> None:
    x = np.concatenate([numbers(dtype), numbers(dtype)[::-1]])
    inverse, counts, values = (torch.empty(16, dtype=kind).npu() for kind in (torch.int64, torch.int64, dtype))
    run("aclnnUnique2", on_npu(x), True, True, True, values, inverse, counts)
    unique, expected_inverse, expected_counts = np.unique(x, return_inverse=True, return_counts=True)
    equal(values[:8].cpu().numpy(), unique)
    equal(inverse.cpu().numpy(), expected_inverse)
    equal(counts[:8].cpu().numpy(), expected_counts)
    run("aclnnUnique", on_npu(x), True, True, values, inverse)
    equal(values[:8].cpu().numpy(), unique)
    run("aclnnUniqueConsecutive", on_npu(x), False, False, 1000, values, inverse, counts)
    equal(values[:15].cpu().numpy(), np.delete(x, 8))
    rows = np.stack([x[:4], x[4:8], x[:4]])
    found = torch.empty(12, dtype=dtype).npu()
    run("aclnnUniqueDim", on_npu(rows), True, True, 0, found, inverse, counts)
    equal(found[:8].cpu().numpy(), np.unique(rows, axis=0).reshape(-1))
    places = torch.empty(16, dtype=torch.int64).npu()
    run("aclnnNonzeroV2", on_npu(x), places)
    equal(places[:14].cpu().numpy(), np.flatnonzero(x))


@pytest.mark.parametrize("dtype", UNSIGNED)
@pytest.mark.parametrize(("name", "function"), [("aclnnLogAddExp", np.logaddexp), ("aclnnLogAddExp2", np.logaddexp2)])
def test_logarithms(name: str, function: Callable[..., Numbers], dtype: torch.dtype) -> None:
    x = numbers(dtype)
    exact = function(x.astype(np.float64), x[::-1].astype(np.float64))
    found = result(name, on_npu(x), on_npu(x[::-1]), like=exact.astype(np.float32))
    np.testing.assert_allclose(found, exact, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("aclnnGtTensor", np.arange(8)),
        ("aclnnGtScalar", 3),
        ("aclnnBitwiseOrTensor", np.arange(8)),
        ("aclnnLeftShift", np.arange(8)),
        ("aclnnLeftShifts", 3),
    ],
)
def test_there_is_no_common_type_with_others(name: str, other: Any) -> None:
    x = on_npu(numbers(U32))
    status, message = first_phase(name, x, other if isinstance(other, int) else on_npu(other), x)
    assert status == INVALID_ARGUMENT
    assert "can not promote dtype" in message


@pytest.mark.parametrize("dtype", [U16, U32, U64])
def test_no_sum_is_in_a_wide_unsigned_dtype(dtype: torch.dtype) -> None:
    status, message = first_phase("aclnnReduceSum", torch.ones(2, 3).npu(), [1], False, dtype, torch.zeros(2).npu())
    assert status == INVALID_ARGUMENT and "parameter dtype is UInt" in message, message
