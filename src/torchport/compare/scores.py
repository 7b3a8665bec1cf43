"""How far a recorded result is from the reference, and how far rounding alone would take it."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

FLOOR = 0.1  # of a unit in the last place: nothing is more exact than that
# A result is wrong that is so many times further from the reference than rounding explains: other orders of summation
# differ by less (measured: `make accuracy`).
MULTIPLE = 10.0
# Of one element among many: the largest error is held against so many times the bound of the mean.
OF_ONE = 10.0
NOISE = 2.0**-24  # relative, on the inputs: what it makes of a result is its condition
FEW = 8  # numbers say nothing of a dtype
EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


@dataclasses.dataclass(frozen=True, slots=True)
class Score:
    """Of one result. `error`, `cpu` and `declared` are relative to the rms of the reference; `of_one` is the largest
    error over the largest magnitude, relative to its bound. `spoilt` says what is there in place of numbers."""

    score: float
    error: float
    cpu: float
    declared: float
    of_one: float
    spoilt: str = ""

    @property
    def bound(self) -> float:
        """The error that rounding and the device's settings explain."""
        return max(MULTIPLE * self.cpu, self.declared)

    @property
    def wrong(self) -> bool:
        """Whether nothing declared explains it."""
        return bool(self.spoilt) or self.error > self.bound or self.of_one > 1


def estimate_serial_sum(terms: float, dtype: str) -> float:
    """The tenth part of the relative error of a sum of so many numbers, one after the other, which is another order of
    summation than the CPU's and as good a one.

    Of numbers of both signs the partial sums are sqrt(k) of them large, so rounding takes about 0.2 sqrt(terms) units
    in the last place of the sum. How many numbers an operator sums is known to a factor alone. Half precision is summed
    in float32."""
    return FLOOR * EPSILON["float64" if dtype in ("float64", "complex128") else "float32"] * math.sqrt(max(1.0, terms))


def score_exact(torch: Any, recorded: Any, cpu: Any) -> Score:
    """Of a result that has no rounding: integers, truth values, moved numbers."""
    same = recorded.shape == cpu.shape and bool(torch.equal(recorded, cpu))
    if same:
        return Score(1.0, 0.0, 0.0, 0.0, 0.0)
    if recorded.shape != cpu.shape:
        return _misshapen(recorded, cpu, 0.0)
    share = float((recorded != cpu).double().mean())
    return Score(math.inf, share, 0.0, 0.0, math.inf, f"{share:.2%} of the elements differ")


def score_result(
    torch: Any, recorded: Any, cpu: Any, wide: Any, declared: float, terms: float = 1.0, *, saturates: bool = False
) -> Score:
    """`recorded` and `cpu` have the operator's dtype (`cpu` None: it can be computed wide alone), `wide` is float64;
    `terms` is how many numbers may be summed for one; `saturates` says that the device has no infinity."""
    if recorded.shape != wide.shape:
        return _misshapen(recorded, wide, declared)
    dtype = recorded.dtype
    own = wide.to(dtype) if cpu is None else cpu.to(dtype)
    got, own, wide = (one.to(wide.dtype).reshape(-1) for one in (recorded, own, wide))
    finite = torch.isfinite(got) & torch.isfinite(own) & torch.isfinite(wide)
    spoilt = _spoilt(torch, got, own, wide, torch.finfo(dtype), saturates)
    if not bool(finite.all()):
        got, own, wide = got[finite], own[finite], wide[finite]
    if got.numel() == 0:
        return Score(math.inf if spoilt else 1.0, 0.0, 0.0, declared, 0.0, spoilt)
    size = float(wide.abs().square().mean().sqrt())
    off, cpu_off = (one - wide for one in (got, own))
    error, cpu_error = (float(one.abs().square().mean().sqrt()) for one in (off, cpu_off))
    epsilon = torch.finfo(dtype).eps
    serial = estimate_serial_sum(terms, str(dtype).removeprefix("torch."))
    least = max(FLOOR * epsilon * size, serial * size, torch.finfo(dtype).smallest_normal * epsilon)
    scale = max(size, least)
    largest = float(wide.abs().amax())
    allowed = OF_ONE * max(MULTIPLE * float(cpu_off.abs().amax()), declared * largest, MULTIPLE * least)
    # The smallest numbers of a dtype have no relative precision.
    allowed = max(allowed, torch.finfo(dtype).smallest_normal * epsilon)
    at_least = max(cpu_error, least)
    return Score(
        math.inf if spoilt else error / at_least,
        error / scale,
        at_least / scale,
        declared,
        float(off.abs().amax()) / allowed,
        spoilt,
    )


def adjust_for_conditioning(score: Score, wide: Any, noisy: Any, dtype: str) -> Score:
    """What half a unit in the last place of the inputs makes of the result is explained by rounding too: `noisy` is
    `wide` of inputs that are off by NOISE."""
    size = float(wide.abs().square().mean().sqrt())
    epsilon = EPSILON.get(dtype, 2.0**-3) / 2
    moved = float((noisy - wide).abs().square().mean().sqrt()) * epsilon / NOISE
    largest = float((noisy - wide).abs().amax()) * epsilon / NOISE
    if not size or moved / size <= score.cpu:
        return score
    ratio = score.cpu * size / moved
    allowed = max(1.0, largest / max(float(wide.abs().amax()) * score.cpu, 1e-300) / OF_ONE)
    return dataclasses.replace(
        score, score=score.score * ratio, cpu=moved / size, of_one=score.of_one / max(allowed, 1 / ratio)
    )


def find_narrower_dtype(torch: Any, recorded: Any) -> str:
    """The narrower dtype that all numbers of a result fit in; "" where they have its own precision."""
    if recorded.dtype not in (torch.float32, torch.float64) or recorded.numel() < FEW:
        return ""
    for dtype in (torch.bfloat16, torch.float16):
        # Whole numbers, zeros and ones fit in anything.
        if bool((recorded.to(dtype).to(recorded.dtype) == recorded).all()) and not _plain(torch, recorded):
            return str(dtype).removeprefix("torch.")
    return ""


def _plain(torch: Any, recorded: Any) -> bool:
    return bool((recorded == recorded.round()).all()) or recorded.unique().numel() < FEW


def _misshapen(recorded: Any, right: Any, declared: float) -> Score:
    said = f"its shape is {tuple(recorded.shape)}, {tuple(right.shape)} is right"
    return Score(math.inf, math.inf, 0.0, declared, math.inf, said)


def _spoilt(torch: Any, got: Any, own: Any, wide: Any, about: Any, saturates: bool) -> str:
    """NaN, infinity or the largest number of the dtype where the CPU has a number, or the reverse."""
    largest = about.max
    beyond = wide.abs() > largest * (1 + 4 * about.eps)  # whatever the rounding
    numbers = torch.isfinite(own) & (wide.abs() <= largest / 2)
    for word, where in (
        ("NaN", torch.isnan(got) & numbers),
        ("infinite", torch.isinf(got) & numbers),
        ("saturated", (got.abs() == largest) & numbers),
        ("saturated where infinity is right", (got.abs() == largest) & torch.isinf(own) & beyond & (not saturates)),
        ("a number where there should be none", torch.isfinite(got) & torch.isnan(own) & torch.isnan(wide)),
    ):
        count = int(where.sum())
        if count:
            return f"{count:,} elements are {word}"
    return ""
