"""The time model's constants from published throughputs, and how far they are off.

The rows are knowledge/zoo.json: models whose step ran dry on an Ascend910A (tools/zoo_runs.py), each with the images a
second that its maker published, and its kernels as the virtual NPU counts them. `fit_constants` finds the constants
that explain them best, `predict_kernel_time` is the formula of csrc/device/clock.cpp, `predict_step_time` what one
stream makes of it. No other rows are in that file, and nothing here opens another.

A published throughput has the program's data loader in it. `predict_step_time` knows that of ImageNet, by the workers
that the program's own script starts; `torchport predict` measures a script's own instead (loading).
"""

from __future__ import annotations

import dataclasses
import json
import math
import random
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

# Where a fit begins and what holds it there where throughputs do not tell: values of Ascend910A before any was looked
# at, from what other chips reach. Throughputs give the sum of all terms, not each of them.
PRIOR = {
    "cube": 0.55,
    "depthwise": 0.25,
    "stream": 0.70,
    "norm": 0.58,
    "pool": 0.20,
    "move": 0.35,
    "floor_us": 5.0,
    "host_us": 45.0,
}
# How far, as a factor of e, a constant may lie from its prior for what one row's error of as much costs.
SPREAD = 0.7
# Images a second that one worker makes ready on the hosts of those rows (Kunpeng 920), in torchvision's transforms for
# ImageNet. No row is in it: Pillow decodes 360 a second on one core of a Neoverse N1 at 3 GHz (measured by
# ternaus/imread_benchmark), a Kunpeng 920 at 2.6 GHz does 0.70 of its work (SPECint2017 rate-1, gcc -O3: 3.10 to 4.41),
# and decoding is 0.52 of what a worker does (RandomResizedCrop, flip, ToTensor, Normalize of images of 400 x 350 and
# 100 kB, measured on x86).
LOADER = 130.0
_RATES = ("cube", "depthwise", "stream", "norm", "pool", "move")


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """A model: images a second as published, images a step, its kernels as (unit, flops, bytes, converted bytes,
    number), and the workers that load its images (0: nobody says)."""

    name: str
    family: str
    batch: int
    published: float
    kernels: tuple[tuple[str, float, float, float, int], ...]
    workers: int = 0


def read_zoo_rows(text: str | None = None) -> list[Row]:
    """The rows of `text`, JSON as tools/zoo_runs.py writes it (default: the calibration's, knowledge/zoo.json)."""
    if text is None:
        text = resources.files("torchport.knowledge").joinpath("zoo.json").read_text("utf-8")
    return [
        Row(
            row["name"],
            row["family"],
            row["batch"],
            row["published"],
            tuple(tuple(k) for k in row["kernels"]),
            row["workers"],
        )
        for row in json.loads(text)["rows"]
    ]


def predict_kernel_time(
    unit: str, flops: float, size: float, converted: float, constants: Mapping[str, float], chip: Mapping[str, Any]
) -> float:
    """Seconds of one kernel, as csrc/device/clock.cpp counts them; a test holds the two together."""
    matrix = chip["cube_cores"] * 16**3 * 2 * chip["clock_ghz"] * 1e9
    memory = chip["bandwidth_gbs"] * 1e9
    floor = constants["floor_us"] * 1e-6
    if unit in ("cube", "depthwise"):
        spent = max(flops / (matrix * constants[unit]), size / (memory * constants["stream"])) + floor
    elif unit == "device_cpu":
        spent = size / (memory * constants["device_cpu"]) + constants["device_cpu_us"] * 1e-6
    elif unit == "host_copy":
        spent = size / (constants["pcie_gbs"] * 1e9) + constants["copy_us"] * 1e-6
    elif unit == "stream" and size <= constants["l2_share"] * chip["l2_mib"] * 2**20:
        spent = size / (constants["l2_gbs"] * 1e9) + floor
    else:
        spent = size / (memory * constants[unit]) + floor
    return float(spent + converted / (memory * constants["move"]))


def predict_step_time(row: Row, constants: Mapping[str, float], chip: Mapping[str, Any]) -> float:
    """Milliseconds of a step: the stream's kernels, or their launches or the data loader where these take longer."""
    total = 0.0
    launches = 0
    for unit, flops, size, converted, count in row.kernels:
        if unit == "host_copy":
            continue  # the loader's, beside the step
        total += count * predict_kernel_time(unit, flops, size, converted, constants, chip)
        launches += count
    loading = row.batch / (row.workers * LOADER) if row.workers else 0.0
    return max(total, launches * constants["host_us"] * 1e-6, loading) * 1e3


def compute_log_error(row: Row, constants: Mapping[str, float], chip: Mapping[str, Any]) -> float:
    """The natural logarithm of predicted by published throughput."""
    return math.log(row.batch / predict_step_time(row, constants, chip) * 1e3 / row.published)


def fit_constants(
    given: Sequence[Row], fixed: Mapping[str, float], chip: Mapping[str, Any], prior: Mapping[str, float] = PRIOR
) -> dict[str, float]:
    """Constants of PRIOR's names that explain the rows best; `fixed` are the others. The same rows give the same."""
    names = list(prior)

    def loss(shift: Sequence[float]) -> float:
        constants = {**fixed, **_moved(prior, shift)}
        # Errors count by their size, not its square: a few rows are off for reasons of their own (data loading, stack).
        far = sum(math.sqrt(0.01 + compute_log_error(row, constants, chip) ** 2) for row in given)
        return far + sum((each / SPREAD) ** 2 for each in shift) * 0.5

    best = [0.0] * len(names)
    least = loss(best)
    width = 0.8
    while width > 0.005:
        moved = False
        for i in range(len(names)):
            for way in (width, -width):
                tried = [*best]
                tried[i] += way
                if (now := loss(tried)) < least - 1e-9:
                    best, least, moved = tried, now, True
                    break
        if not moved:
            width /= 2
    return _moved(prior, best)


def _moved(prior: Mapping[str, float], shift: Sequence[float]) -> dict[str, float]:
    moved = {name: value * math.exp(by) for (name, value), by in zip(prior.items(), shift, strict=True)}
    return {name: min(value, 0.98) if name in _RATES else value for name, value in moved.items()}


def left_out(given: Sequence[Row], fixed: Mapping[str, float], chip: Mapping[str, Any]) -> list[float]:
    """Errors of each row under a fit of the other families: what a model that nobody has measured may be off."""
    found = []
    for family in sorted({row.family for row in given}):
        constants = {**fixed, **fit_constants([row for row in given if row.family != family], fixed, chip)}
        found += [compute_log_error(row, constants, chip) for row in given if row.family == family]
    return found


def draw_splits(families: Sequence[str], number: int, share: float = 1 / 3, seed: int = 0) -> list[set[str]]:
    """`number` random choices of families to calibrate with, `share` of them each."""
    draw = random.Random(seed)  # noqa: S311  repeatable, not secret
    count = max(2, round(len(families) * share))
    return [set(draw.sample(sorted(families), count)) for _ in range(number)]


def compute_median(values: Sequence[float]) -> float:
    """The middle one; of an even number the mean of the two."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def to_relative_error(logarithm: float) -> float:
    """|predicted / published - 1|."""
    return abs(math.expm1(logarithm))
