"""How far a predicted step may be off: residuals of models that the constants were not fitted to."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Sequence
from importlib import resources

from torchport.vnpu import chips

# The chip that published throughputs are of (knowledge/zoo.json).
MEASURED = "Ascend910A"
QUANTILES = (0.1, 0.9)


@functools.cache
def _residuals() -> tuple[float, ...]:
    text = resources.files("torchport.knowledge").joinpath("zoo_residuals.json").read_text("utf-8")
    return tuple(sorted(json.loads(text)["left_out"]))


def compute_interval_factors(soc: str) -> tuple[float, float]:
    """What a predicted step time is to be multiplied with: the interval that one more left-out model is in with four
    chances of five, if it is of their kind.

    For chips that no published step is of it is as wide again as that, which nothing says to be enough."""
    found = _residuals()
    low, high = (_between(found, share) for share in QUANTILES)
    # Residuals are of throughput, predicted by published; symmetrical around 1 at least.
    low, high = min(low, 0.0), max(high, 0.0)
    wide = 1.0 if _like(soc) == MEASURED else 2.0
    return math.exp(low * wide), math.exp(high * wide)


def _between(ordered: Sequence[float], share: float) -> float:
    """Where a next value of the same kind lies below with this chance: each gap between n values, and each end, is as
    likely as the others (split conformal prediction), which is wider than the share of the values themselves."""
    place = share * (len(ordered) + 1) - 1
    below = min(max(math.floor(place), 0), len(ordered) - 1)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * min(max(place - below, 0.0), 1.0)


def describe_validation(soc: str) -> str:
    """What stands behind a chip's step times, in a sentence."""
    if soc == MEASURED:
        return "The time model is fitted to published steps of Ascend910A; the interval is that of models left out."
    if _like(soc) == MEASURED:
        return f"No published step is of {soc}: constants are those of Ascend910A, with its own cores and bandwidth."
    return (
        f"Nothing validates step times on {soc}: the constants are of single operators "
        "(docs/reference/chips.md), and no measured step was there to compare with."
    )


def _like(soc: str) -> str:
    """The chip whose constants are fitted or measured."""
    profiles = chips.load_chips()
    name = soc
    while (next_name := profiles[name]["time"].get("like")) is not None:
        name = next_name
    return name
