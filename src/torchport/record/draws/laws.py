"""What random numbers of a distribution are like: mean, variance, fourth moment and range. No torch."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class Law:
    """The moments of one number; of numbers that differ in their law, the means of theirs.

    `variance` is about each number's own mean. `kurtosis` says how far the variance of a sample scatters: its variance
    is (kurtosis - 1) * variance ** 2 / count. `least` and `most` are included; None where there is no bound.
    """

    mean: float
    variance: float
    kurtosis: float
    least: float | None = None
    most: float | None = None


def uniform_law(low: float, high: float) -> Law:
    """Real numbers between two bounds."""
    return Law((low + high) / 2, (high - low) ** 2 / 12, 1.8, low, high)


def normal_law(mean: float, deviation: float) -> Law:
    """Gauss's."""
    return Law(mean, deviation**2, 3.0)


def integer_law(low: int, high: int) -> Law:
    """Whole numbers from `low` to `high`, both included."""
    number = float(high - low + 1)
    kurtosis = 1.8 - 2.4 / (number**2 - 1) if number > 1 else 1.0
    return Law((low + high) / 2, (number**2 - 1) / 12, kurtosis, low, high)


def bernoulli_law(probability: float) -> Law:
    """1 with a probability, else 0 (Bernoulli's)."""
    variance = probability * (1 - probability)
    return Law(probability, variance, 1 / variance - 3 if variance else 1.0, 0.0, 1.0)


def mixed_law(mean: float, variance: float, scatter: float, least: float, most: float) -> Law:
    """Of numbers with a law each; `scatter` is the mean over them of fourth central moment minus squared variance."""
    return Law(mean, variance, 1 + scatter / variance**2 if variance else 1.0, least, most)
