"""The recorder's pass over a tensor: exact extremes and counts, sums as math.fsum has them, the checksum of Python's."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import numpy
import pytest
import torch

from torchport.record.operators import hook, layout, measure
from torchport.record.operators.checksum import compute_checksum

LIBRARY = hook.load_record_library(torch)
DRAW = numpy.random.default_rng(3)
SIZES = (0, 1, 15, 16, 17, 1023, 1024, 1025, 70_001)


def floats(size: int, dtype: str) -> numpy.ndarray:
    values = (DRAW.standard_normal(size) * 10.0 ** DRAW.integers(-30, 30, size)).astype(dtype)
    values[::7] = 0
    values[1::11] = -0.0
    return values


def special(size: int, dtype: str) -> numpy.ndarray:
    values = floats(size, dtype)
    values[::13], values[1::17], values[2::19] = numpy.nan, numpy.inf, -numpy.inf
    return values


def denormal(size: int, dtype: str) -> numpy.ndarray:
    return (DRAW.integers(-9, 9, size) * numpy.finfo(dtype).smallest_subnormal).astype(dtype)


def modulus(values: numpy.ndarray) -> list[float]:
    if values.dtype.kind != "c":
        return [float(value) for value in values]
    # hypot says infinity of an infinite part beside a NaN
    parts = ((float(value.real), float(value.imag)) for value in values)
    return [math.nan if math.isnan(a) or math.isnan(b) else math.hypot(a, b) for a, b in parts]


def agrees(dtype: str, values: numpy.ndarray) -> bool:
    """Whether the pass says of `values` what is so, one element at a time."""
    (low, high, total, squares, nans, infinities, zeros), check = hook.measure_array(LIBRARY, dtype, values)
    plain = modulus(values)
    numbers = [value for value in plain if not math.isnan(value)]
    finite = [value for value in numbers if math.isfinite(value)]
    ulp = numpy.spacing(numpy.float32(math.fsum(map(abs, finite))))
    # float64 may overflow where the squares of float64 do
    whole = math.fsum(value * value for value in finite) if all(abs(v) < 1e150 for v in finite) else squares
    return (
        (not numbers or (low, high) == (min(numbers), max(numbers)))
        and abs(total - math.fsum(finite)) <= ulp
        and math.isclose(squares, whole, rel_tol=1e-12)
        and (nans, infinities) == (len(plain) - len(numbers), len(numbers) - len(finite))
        and zeros == sum(value == 0 for value in plain)
        and check == compute_checksum(values)
    )


def test_a_wrong_number_is_seen() -> None:
    values = floats(100, "float32")
    found, check = hook.measure_array(LIBRARY, "float32", values)
    other = values.copy()
    other[50] = numpy.nan
    assert hook.measure_array(LIBRARY, "float32", other)[1] != check
    assert hook.measure_array(LIBRARY, "float32", other)[0][4] == found[4] + 1


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("make", [floats, special, denormal])
def test_floats(dtype: str, make: object) -> None:
    with numpy.errstate(all="ignore"):
        assert [size for size in SIZES if not agrees(dtype, make(size, dtype))] == []


def test_nothing_but_nan() -> None:
    values = numpy.full(3000, numpy.nan, numpy.float32)
    (low, high, *_, nans, infinities, zeros), check = hook.measure_array(LIBRARY, "float32", values)
    assert (low, high, nans, infinities, zeros) == (math.inf, -math.inf, 3000, 0, 0)
    assert check == compute_checksum(values)


INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


def integers(size: int, dtype: str) -> numpy.ndarray:
    """As far as they go; where sums of int64 are exact still."""
    limits = numpy.iinfo(dtype)
    values = DRAW.integers(max(limits.min, -(1 << 40)), min(limits.max, 1 << 40), size, dtype, endpoint=True)
    values[::5] = 0
    return values


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers(dtype: str) -> None:
    assert [size for size in SIZES if not agrees(dtype, integers(size, dtype))] == []


@pytest.mark.parametrize("dtype", INTEGERS)
def test_sums_of_the_largest_integers_do_not_overflow(dtype: str) -> None:
    limits = numpy.iinfo(dtype)
    for value in (limits.min, limits.max):
        assert agrees(dtype, numpy.full(150_001, value, dtype))


def test_other_kinds() -> None:
    for size in SIZES:
        assert agrees("bool", DRAW.integers(0, 2, size).astype(bool))
        both = special(2 * size, "float32").view(numpy.complex64)
        assert agrees("complex64", both)
        wide = torch.from_numpy(special(size, "float32")).bfloat16()
        found, check = hook.measure_array(LIBRARY, "bfloat16", wide.view(torch.int16).numpy())
        same, _ = hook.measure_array(LIBRARY, "float32", wide.float().numpy())
        assert (found[:2], found[4:]) == (same[:2], same[4:])
        assert math.isclose(found[3], same[3], rel_tol=1e-12)
        assert check == compute_checksum(wide.view(torch.int16).numpy())


def test_python_measures_the_same() -> None:
    for dtype in ("float32", "float64", "float16", "int32", "bool", "complex64", "bfloat16"):
        tensor = (torch.randn(999) * 3).to(getattr(torch, dtype))
        data, _ = measure.flat_bytes(torch, tensor)
        ours = measure.of_bytes(dtype, data, 1)
        (low, high, total, squares, *counts), check = hook.measure_array(LIBRARY, dtype, data)
        assert ours is not None
        assert (ours.minimum, ours.maximum, ours.checksum) == (low, high, check)
        assert [ours.nans, ours.infinities, ours.zeros] == counts
        assert math.isclose(ours.mean, total / 999, rel_tol=1e-9, abs_tol=1e-12)
        assert math.isclose(ours.l2, math.sqrt(squares), rel_tol=1e-9)
    assert set(hook.DTYPES) <= set(layout.DTYPES)


@pytest.mark.parametrize("instructions", ["avx2", "scalar"])
def test_other_instructions_give_the_same(instructions: str) -> None:
    """In a process of its own, as the choice is made once. What this processor lacks is not tried."""
    code = (
        "import sys, numpy, torch; sys.path.insert(0, sys.argv[1]); import test_record_pass as of;"
        "print(of.LIBRARY.torchportRecordInstructions().decode());"
        "print([m.__name__ for m in (of.floats, of.special, of.denormal) for s in of.SIZES"
        " if not of.agrees('float32', m(s, 'float32'))]);"
        "print(of.agrees('complex64', of.special(2048, 'float32').view('c8')),"
        " [s for s in of.SIZES if not of.agrees('float16', of.special(s, 'float16'))]);"
        "print([d for d in of.INTEGERS if not of.agrees(d, of.integers(9999, d))],"
        " [m.__name__ for m in (of.floats, of.special) if not of.agrees('float64', m(9999, 'float64'))])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, os.path.dirname(__file__)],
        env={**os.environ, "TORCHPORT_RECORD_INSTRUCTIONS": instructions, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    said = ended.stdout.split("\n")
    assert said[1:4] == ["[]", "True []", "[] []"], ended.stderr
    assert said[0] in (instructions, "scalar")
