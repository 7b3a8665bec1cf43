"""Settings that both logs print and that make two curves incomparable: rates, batches, steps, seeds."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

from torchport.logs.pairing import STEP, Paired, Series

_RATES = re.compile(r"^(?:train_)?(?:lr|learning_rate)(?:_?\d+|_pg_?\d+)?$")
# Of one process, so another number with another number of processes.
_LOCAL_BATCH = re.compile(r"^(?:train_|per_device_train_|micro_|instantaneous_)?batch_size(?:_per_device)?$")
_GLOBAL_BATCH = re.compile(r"^(?:global|total|total_train|effective)_batch_size$")
_STEPS = re.compile(
    r"^(?:total_steps|max_steps|max_iters|train_iters|total_optimization_steps|num_epochs|total_epochs|"
    r"num_train_epochs|epochs|max_epochs|num_examples)$"
)
_SEEDS = re.compile(r"^(?:random_|manual_|global_|torch_)?seed$")
_CONSUMED = re.compile(r"^consumed_(?:train_)?(?:samples|tokens)$")
CLOSE = 1e-3  # relative; rates are printed with few digits
# Of the printed digits' distance: less may be rounding, and a whole digit, as between 1e-05 and 2e-05, is none in the
# shortest form that Python prints.
ROUNDED = 0.99
_COUNT = 3  # rates that differ at so many steps are another schedule


def differing_settings(
    first: Mapping[str, Series], second: Mapping[str, Series], paired: Mapping[str, Paired]
) -> Iterator[str]:
    """Differing settings in words, the most telling first."""
    both = [name for name in first if name in second]
    yield from (text for name in both if _RATES.match(name) and (text := _rates(paired[name])))
    wholes = [name for name in both if _GLOBAL_BATCH.match(name) or _CONSUMED.match(name)]
    yield from (text for name in wholes if (text := _at_same_step(paired[name])))
    for name in both:
        told = _SEEDS.match(name) or _STEPS.match(name) or (not wholes and _LOCAL_BATCH.match(name))
        if told and (text := _once(name, first[name], second[name])):
            yield text
    shared = [name for name in both if "loss" in name]
    totals = [
        {number.total for name in shared for number in side[name].numbers if number.total} for side in (first, second)
    ]
    if all(len(total) == 1 for total in totals) and totals[0] != totals[1]:
        yield f"A is a run of {min(totals[0])} steps, B of {min(totals[1])}"


def _rates(paired: Paired) -> str:
    apart = [
        pair
        for pair in paired.pairs
        if math.isfinite(pair.first.value + pair.second.value)
        and abs(pair.first.value - pair.second.value)
        > ROUNDED * pair.digit + CLOSE * max(abs(pair.first.value), abs(pair.second.value))
    ]
    if not apart or len(apart) < min(_COUNT, len(paired.pairs)):
        return ""
    pair = apart[0]
    ratio = f", {pair.second.value / pair.first.value:.4g} times" if pair.first.value else ""
    at = f" at step {pair.first.step}" if paired.by == STEP else ""
    return (
        f"{paired.name} is {pair.first.value:g} in A and {pair.second.value:g} in B{ratio}{at} "
        f"(lines {pair.first.line} and {pair.second.line}), and differs in {len(apart)} of {len(paired.pairs)} places"
    )


def _at_same_step(paired: Paired) -> str:
    for pair in paired.pairs:
        if abs(pair.first.value - pair.second.value) > pair.digit:
            return (
                f"{paired.name} is {pair.first.value:g} in A and {pair.second.value:g} in B "
                f"(lines {pair.first.line} and {pair.second.line})"
            )
    return ""


def _once(name: str, first: Series, second: Series) -> str:
    """A setting that is printed once, or the same each time."""
    values = [{number.value for number in side.numbers} for side in (first, second)]
    if values[0] & values[1] or not all(len(value) == 1 for value in values):
        return ""
    lines = first.numbers[0].line, second.numbers[0].line
    return f"{name} is {min(values[0]):g} in A and {min(values[1]):g} in B (lines {lines[0]} and {lines[1]})"
